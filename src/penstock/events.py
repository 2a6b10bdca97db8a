"""The vocabulary: what can happen while a model answers. Every stage speaks it, no stage adds to it.

A model's stream is made of `StreamChunk`s. Each is a small frozen struct with a literal `type`, so that `match` works
on the union and JSON comes for free (`encode`, `decode`). Content carries a `block`, a number of ours that says which
text, which reasoning or which call a piece belongs to, and a `choice`, which is 0 unless several answers were asked
for.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec
from msgspec import Struct

FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "error", "other", "cut"]
CallKind = Literal["function", "custom"]
SealedBy = Literal["call_end", "whole", "finish", "done", "caller"]
Fault = Literal[
    "cut", "malformed", "not_an_object", "unnamed", "too_large", "duplicated", "cumulative", "double_encoded",
    "control_characters", "trailing_text", "withdrawn",
]  # fmt: skip


class Event(Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """What all events have in common: they do not change, and their JSON leaves out what is as usual."""


class Text(Event, frozen=True, gc=False, tag="text"):
    """A piece of visible text."""

    block: int
    text: str
    choice: int = 0
    type: ClassVar[Literal["text"]] = "text"


class Reasoning(Event, frozen=True, gc=False, tag="reasoning"):
    """A piece of the model's reasoning, as far as the provider shows it."""

    block: int
    text: str
    choice: int = 0
    type: ClassVar[Literal["reasoning"]] = "reasoning"


class Refusal(Event, frozen=True, gc=False, tag="refusal"):
    """A piece of the words with which the model declined, on wires that keep them apart from the text."""

    block: int
    text: str
    choice: int = 0
    type: ClassVar[Literal["refusal"]] = "refusal"


class ToolCallStart(Event, frozen=True, gc=False, tag="tool_call_start"):
    """The model began a call; its name is known, its arguments are still to come."""

    block: int
    id: str
    name: str
    choice: int = 0
    type: ClassVar[Literal["tool_call_start"]] = "tool_call_start"


class ToolCallDelta(Event, frozen=True, gc=False, tag="tool_call_delta"):
    """A piece of a call's arguments, as JSON text.

    All pieces of a block add up to `ToolCall.arguments_raw`, unless the protocol then states other arguments.
    """

    block: int
    piece: str
    choice: int = 0
    type: ClassVar[Literal["tool_call_delta"]] = "tool_call_delta"


class ToolCallClosed(Event, frozen=True, tag="tool_call_closed"):
    """The JSON of the arguments closed; the protocol has not confirmed yet that nothing more will come."""

    block: int
    id: str
    name: str
    arguments: dict[str, Any]
    choice: int = 0
    type: ClassVar[Literal["tool_call_closed"]] = "tool_call_closed"


class ToolCall(Event, frozen=True, tag="tool_call"):
    """A whole call: ended by the protocol, with arguments that are a strict JSON object.

    `arguments` may be given as a dict or as JSON text; the text is kept in `arguments_raw` either way. The arguments of
    a `custom` (free-form) call are `{"input": text}`, and `arguments_raw` is the text itself. `sealed_by` says what
    confirmed the call: its own end mark, its arrival in one piece, the turn's finish, or the stream's end mark.
    """

    id: str
    name: str
    arguments: dict[str, Any]
    arguments_raw: str = ""
    origin: str = "native"
    sealed_by: SealedBy = "caller"
    kind: CallKind = "function"
    block: int = 0
    choice: int = 0
    type: ClassVar[Literal["tool_call"]] = "tool_call"

    def __post_init__(self) -> None:
        given: Any = self.arguments
        if isinstance(given, str):
            value = (
                {"input": given} if self.kind == "custom" else msgspec.json.decode(given or "{}", type=dict[str, Any])
            )
            msgspec.structs.force_setattr(self, "arguments", value)
            msgspec.structs.force_setattr(self, "arguments_raw", given)
        elif not self.arguments_raw and self.sealed_by == "caller":
            msgspec.structs.force_setattr(self, "arguments_raw", msgspec.json.encode(given).decode())


class ToolCallInvalid(Event, frozen=True, tag="tool_call_invalid"):
    """A call that must not run: it was cut, or what it says is not a strict JSON object.

    `why` names the fault and `message` explains it. Where the intention is plain all the same (the arguments were sent
    twice, say), `repaired` holds the arguments that were probably meant; to use them is the caller's decision.
    """

    block: int
    id: str
    name: str
    arguments_raw: str
    why: Fault
    message: str = ""
    repaired: dict[str, Any] | None = None
    origin: str = "native"
    kind: CallKind = "function"
    choice: int = 0
    type: ClassVar[Literal["tool_call_invalid"]] = "tool_call_invalid"


class Opaque(Event, frozen=True, tag="opaque"):
    """Vendor state that must go back untouched, on the part it came with: a signature, encrypted reasoning.

    `block` is the part's, `wire` says whose state it is, `kind` is the vendor's own name for it, and `data` is
    verbatim.
    """

    block: int
    wire: str
    kind: str
    data: Any
    choice: int = 0
    type: ClassVar[Literal["opaque"]] = "opaque"


class Usage(Event, frozen=True, tag="usage"):
    """The token counts so far, in the provider's own arithmetic: each `Usage` replaces the one before."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    raw: dict[str, Any] = {}
    type: ClassVar[Literal["usage"]] = "usage"


class Finish(Event, frozen=True, gc=False, tag="finish"):
    """Why the model stopped: the last chunk of every choice, exactly once. `message` is the provider's explanation."""

    reason: FinishReason
    raw_reason: str | None = None
    message: str = ""
    choice: int = 0
    type: ClassVar[Literal["finish"]] = "finish"


class Error(Event, frozen=True, tag="error"):
    """What went wrong, as the provider said in band or as the bytes show; what came before it stands."""

    message: str
    code: str = ""
    retryable: bool = False
    raw: Any = None
    type: ClassVar[Literal["error"]] = "error"


class Retry(Event, frozen=True, gc=False, tag="retry"):
    """An attempt was withdrawn: what was shown of it is void, and the answer begins anew."""

    reason: str
    type: ClassVar[Literal["retry"]] = "retry"


class Unknown(Event, frozen=True, tag="unknown"):
    """Something that arrived and that we have no word for: `raw` as it came, `note` says what was odd."""

    raw: Any
    note: str = ""
    type: ClassVar[Literal["unknown"]] = "unknown"


StreamChunk = (
    Text | Reasoning | Refusal | ToolCallStart | ToolCallDelta | ToolCallClosed | ToolCall | ToolCallInvalid | Opaque
    | Usage | Finish | Error | Retry | Unknown
)  # fmt: skip
"""An event of a model's response."""

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(StreamChunk)


def encode(event: StreamChunk) -> bytes:
    """An event as one line of JSON."""
    return _encoder.encode(event)


def decode(line: bytes | str) -> StreamChunk:
    """The event that `encode` wrote."""
    event: StreamChunk = _decoder.decode(line)
    return event

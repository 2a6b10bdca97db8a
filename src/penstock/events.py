"""The events of a model's stream. Every stage uses these types, and no stage adds to them.

A model's stream consists of `StreamChunk`s. Each is a small frozen struct with a literal `type`, so that `match` works
on the union, and `encode` and `decode` convert it to JSON and back. Content has a `block`, the number of the text,
reasoning or call that a piece belongs to, and a `choice`, which is 0 unless several answers were requested.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import msgspec
from msgspec import Struct

from penstock.errors import UsageError, type_name

FinishReason = Literal["stop", "tool_calls", "length", "content_filter", "error", "other", "cut"]
"""Why a response ended; `cut` if it ended without a reason of the provider."""
CallKind = Literal["function", "custom", "vendor", "approval"]
"""What is called.

A function, a tool that takes free text (`custom`), a tool that the provider defines and the client runs (`vendor`), or
one that the provider runs itself after the client has approved it (`approval`).
"""
Progress = Literal["open", "doubtful", "finished", "ended"]
"""How far a response is.

`ended` if nothing follows; `finished` if the provider sent the reason for the end, or an error, so that only token
counts may follow; `doubtful` if it did so but the content seems to be incomplete.
"""
SealedBy = Literal["call_end", "whole", "finish", "done", "caller"]
"""What confirmed a call.

The end of the call itself, its arrival in one piece (`whole`), the finish reason, the end mark of the stream (`done`),
or the program that made the `ToolCall` (`caller`).
"""
Confirm = Literal["end", "close"]
"""When a call in the text with raw values counts: at the end of the text or another call, or when its tags close it."""
AMBIGUOUS_CALL = "ambiguous_call"
"""The code of the `Error` for a call that was handed over at its end tags, with `confirm="close"`, and may go on."""
Fault = Literal[
    "cut", "malformed", "not_an_object", "unnamed", "too_large", "duplicated", "cumulative", "double_encoded",
    "control_characters", "trailing_text", "withdrawn", "quoted", "duplicate_keys", "ambiguous",
]  # fmt: skip
"""Why a call must not run; `ToolCallInvalid.message` explains it."""


JSONValue = dict[str, Any] | list[Any] | str | int | float | bool | None
"""A value of JSON as Python has it."""


class Event(Struct, frozen=True, omit_defaults=True, tag_field="type"):
    """The base of all events: immutable, and encoded without fields that have their default value."""


class Text(Event, frozen=True, gc=False, tag="text"):
    """A piece of visible text."""

    block: int
    text: str
    choice: int = 0
    type: ClassVar[Literal["text"]] = "text"


class Reasoning(Event, frozen=True, gc=False, tag="reasoning"):
    """A piece of the model's reasoning, if the provider shows it."""

    block: int
    text: str
    choice: int = 0
    type: ClassVar[Literal["reasoning"]] = "reasoning"


class Refusal(Event, frozen=True, gc=False, tag="refusal"):
    """A piece of the model's refusal, on wires that separate it from the text."""

    block: int
    text: str
    choice: int = 0
    type: ClassVar[Literal["refusal"]] = "refusal"


class ToolCallStart(Event, frozen=True, gc=False, tag="tool_call_start"):
    """A call started: its name is known, its arguments follow."""

    block: int
    id: str
    name: str
    choice: int = 0
    type: ClassVar[Literal["tool_call_start"]] = "tool_call_start"


class ToolCallDelta(Event, frozen=True, gc=False, tag="tool_call_delta"):
    """A piece of a call's arguments, as JSON text.

    The pieces of a block add up to `ToolCall.arguments_raw`, unless the protocol sends other arguments at the end.
    """

    block: int
    piece: str
    choice: int = 0
    type: ClassVar[Literal["tool_call_delta"]] = "tool_call_delta"


class ToolCallClosed(Event, frozen=True, tag="tool_call_closed"):
    """The JSON of the arguments closed; the protocol has not confirmed the call yet."""

    block: int
    id: str
    name: str
    arguments: dict[str, Any]
    choice: int = 0
    origin: str = "native"
    type: ClassVar[Literal["tool_call_closed"]] = "tool_call_closed"


class ToolCall(Event, frozen=True, tag="tool_call"):
    """A whole call: ended by the protocol, with arguments that are a strict JSON object.

    `arguments` accepts a dict or JSON text; `arguments_raw` is the text. The arguments of a `custom` (free-form) call
    are `{"input": text}`, and `arguments_raw` is the text itself. `sealed_by` says what confirmed the call: its own
    end, its arrival in one piece, the finish reason, or the stream's end mark.

    A `vendor` call is an item of the provider's own (a shell command, a click); the arguments are the fields of the
    item, which is vendor state on the same block. The result of an `approval` call is only the decision: the provider
    runs the tool. `safety_checks` are what the provider wants a person to confirm before the call runs. `quirks` are
    the numbers of what was healed in it, if the caller asked for that (`Healing`).
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
    safety_checks: tuple[dict[str, Any], ...] = ()
    quirks: tuple[int, ...] = ()
    type: ClassVar[Literal["tool_call"]] = "tool_call"

    def __post_init__(self) -> None:
        arguments: Any = self.arguments
        if isinstance(arguments, str):
            value = {"input": arguments} if self.kind == "custom" else _parsed(arguments, self.name)
            msgspec.structs.force_setattr(self, "arguments", value)
            msgspec.structs.force_setattr(self, "arguments_raw", arguments)
        elif not self.arguments_raw and self.sealed_by == "caller":
            msgspec.structs.force_setattr(self, "arguments_raw", _encoded(arguments, self.name))


def _parsed(arguments: str, name: str) -> dict[str, Any]:
    """The object in JSON text that a caller passed; empty text is the empty object."""
    try:
        value: dict[str, Any] = msgspec.json.decode(arguments or "{}", type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise UsageError(f"the arguments of the call of {name!r} are not a JSON object: {error}") from None
    return value


def _encoded(arguments: Any, name: str) -> str:
    """The arguments that a caller passed as JSON text."""
    try:
        if isinstance(arguments, dict):
            return msgspec.json.encode(arguments).decode()
        problem: object = f"it is {type_name(arguments)}"
    except (TypeError, ValueError, RecursionError) as error:
        problem = error
    raise UsageError(f"the arguments of the call of {name!r} are not a JSON object: {problem}")


class ToolCallInvalid(Event, frozen=True, tag="tool_call_invalid"):
    """A call that must not run: it was cut, or its arguments are not a strict JSON object.

    `why` names the fault and `message` explains it. Where the intended arguments are clear nevertheless (they were sent
    twice, for example), `repaired` holds them; whether to use them is the caller's decision. A call in the text that
    repeats a user message or a tool result is `quoted`; `repaired` holds its arguments.
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


class ArgumentDelta(Event, frozen=True, tag="argument_delta"):
    """A piece of a call's arguments, parsed: what was added at `path`. Only with `partial_arguments=True`.

    For a string, `piece` is the new text; for any other value, it is the value when it is complete. It is derived from
    `ToolCallDelta`, and is not in logs and histories.
    """

    block: int
    path: tuple[str | int, ...]
    piece: Any
    is_complete: bool
    choice: int = 0
    type: ClassVar[Literal["argument_delta"]] = "argument_delta"


class OutputDelta(Event, frozen=True, tag="output_delta"):
    """A piece of a structured output (`output=`), parsed: what was added at `path`, as in `ArgumentDelta`.

    The empty path is the output itself: the text of an output that is a string, or, without a piece, that the whole
    object or list is complete. `problem` says what is wrong with a field
    that is complete and does not fit its type. It is derived from the text of the response, and is not in logs and
    histories.
    """

    path: tuple[str | int, ...]
    piece: Any
    is_complete: bool
    problem: str = ""
    choice: int = 0
    type: ClassVar[Literal["output_delta"]] = "output_delta"


class Opaque(Event, frozen=True, tag="opaque"):
    """Vendor state that must be sent back unchanged with the part it came with: a signature, encrypted reasoning.

    `block` is that of the part, `wire` the protocol it came from, `kind` the vendor's own name for it; `data` is
    verbatim.
    """

    block: int
    wire: str
    kind: str
    data: Any
    choice: int = 0
    type: ClassVar[Literal["opaque"]] = "opaque"


class Usage(Event, frozen=True, tag="usage"):
    """The token counts so far; each `Usage` replaces the previous one.

    `input_tokens` counts all input and `output_tokens` all output, on every wire. The others are parts of these:
    `cached_tokens` was read from a cache and `cache_write_tokens` written to one, `reasoning_tokens` is output. `raw`
    is the provider's own. `cost` is what the tokens cost in US dollars, for an agent with `prices`; None if that is not
    known.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    reasoning_tokens: int = 0
    cache_write_tokens: int = 0
    raw: dict[str, Any] = {}
    cost: float | None = None
    type: ClassVar[Literal["usage"]] = "usage"


class UsagePart(Struct, frozen=True):
    """A field of `Usage` that is a part of another one, its `whole`. `label` is its name for people."""

    field: str
    whole: Literal["input_tokens", "output_tokens"]
    label: str


USAGE_PARTS = (
    UsagePart("cached_tokens", "input_tokens", "cached"),
    UsagePart("cache_write_tokens", "input_tokens", "written to the cache"),
    UsagePart("reasoning_tokens", "output_tokens", "reasoning"),
)
"""The parts of the token counts. What adds, shows or stores counts goes by this table; the names that a protocol has
for them are in the facts of its wire."""
USAGE_COUNTS = tuple(name for name in Usage.__struct_fields__ if name not in ("raw", "cost"))
"""All fields of `Usage` that are counts."""


class Finish(Event, frozen=True, gc=False, tag="finish"):
    """Why the model stopped: the last chunk of every choice, exactly once. `message` is the provider's explanation.

    `client_work` names work that waits for the client other than tool calls: the type of a vendor item that the client
    must answer (`mcp_approval_request`), or a pause after which the history must be sent again (`pause_turn`). `model`
    is the model that answered, if the provider names it; it may be another than the one that was asked for.
    """

    reason: FinishReason
    raw_reason: str | None = None
    message: str = ""
    choice: int = 0
    client_work: str = ""
    model: str = ""
    type: ClassVar[Literal["finish"]] = "finish"


ErrorOrigin = Literal["provider", "tool", "program"]
"""Whose error it is: the provider's or the connection's, that of a tool that ends its run, or the program's."""


class Error(Event, frozen=True, tag="error"):
    """An error that the provider sent in its stream, or that the bytes show; earlier events remain valid.

    In a run it is also an exception that ends it; `code` is its type then. `origin` says whose error it is.
    """

    message: str
    code: str = ""
    retryable: bool = False
    raw: Any = None
    origin: ErrorOrigin = "provider"
    type: ClassVar[Literal["error"]] = "error"


class Retry(Event, frozen=True, gc=False, tag="retry"):
    """An attempt was withdrawn: its events are void, and the response starts again.

    `model` is the name of another model that is asked now (`step.fallbacks`); empty if it is the same one.
    """

    reason: str
    model: str = ""
    type: ClassVar[Literal["retry"]] = "retry"


class Unknown(Event, frozen=True, tag="unknown"):
    """Something that has no event of its own: `raw` is the original, `note` says what it is."""

    raw: Any
    note: str = ""
    type: ClassVar[Literal["unknown"]] = "unknown"


StreamChunk = (
    Text | Reasoning | Refusal | ToolCallStart | ToolCallDelta | ToolCallClosed | ToolCall | ToolCallInvalid | Opaque
    | Usage | Finish | Error | Retry | Unknown | ArgumentDelta | OutputDelta
)  # fmt: skip
"""An event of a model's response."""

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(StreamChunk)


def encode(event: StreamChunk) -> bytes:
    """Encodes an event as one line of JSON."""
    return _encoder.encode(event)


def decode(line: bytes | str) -> StreamChunk:
    """Decodes an event that `encode` wrote."""
    event: StreamChunk = _decoder.decode(line)
    return event

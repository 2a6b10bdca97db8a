"""Folds events into a Turn, the assembled response of a model."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, Literal, Never, NoReturn, cast

from msgspec import Struct

from penstock.errors import OutputError, UsageError, type_name
from penstock.events import (
    ArgumentDelta,
    Error,
    Finish,
    FinishReason,
    Opaque,
    OutputDelta,
    Reasoning,
    Refusal,
    Retry,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    Unknown,
    Usage,
)

TurnPart = Text | Reasoning | Refusal | ToolCall | ToolCallInvalid | Opaque
_NO_FINISH = Finish("cut")
TurnType = Literal["tool_calls", "invalid_calls", "paused", "error", "final_answer"]


if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Output = TypeVar("Output", default=str)
else:
    from typing import TypeVar

    Output = TypeVar("Output")  # which has no default before Python 3.13


class Turn(Struct, Generic[Output], frozen=True):
    """One response of a model: its parts in order, why it ended, and its usage.

    The parts are events, one per block, with the pieces joined. `error` and `usage` are None if the provider reported
    none. `finish_reason` is "cut" if the response ended without one; it is None only in the `turn` of a stream that is
    still being read. `client_work` names work that waits for the client other than tool calls (see `Finish`), `model`
    the model that answered, if the provider reports it.
    """

    parts: tuple[TurnPart, ...] = ()
    finish_reason: FinishReason | None = "cut"
    raw_finish_reason: str | None = None
    finish_message: str = ""
    usage: Usage | None = None
    error: Error | None = None
    unknown: tuple[Unknown, ...] = ()
    client_work: str = ""
    model: str = ""
    outcome: Any = None
    """The structured output as a tuple of one, or the `OutputError` that says why there is none; None for text."""

    @property
    def output(self) -> Output:
        """The text, or the structured output; raises an `OutputError` if the response has none that is valid."""
        match self.outcome:
            case None:
                return cast("Output", self.text)
            case OutputError() as error:
                raise error
            case (value,):
                output: Output = value
                return output
            case _:
                raise OutputError("the output is not kept in stored turns", self.text)

    @property
    def text(self) -> str:
        """The visible text."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def reasoning(self) -> str:
        """The visible reasoning."""
        return "".join(part.text for part in self.parts if isinstance(part, Reasoning))

    @property
    def refusal(self) -> str:
        """The refusal of the model, on wires that separate it from the text."""
        return "".join(part.text for part in self.parts if isinstance(part, Refusal))

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The complete calls of functions and custom tools, in order."""
        return [part for part in self.parts if isinstance(part, ToolCall) and part.kind in ("function", "custom")]

    @property
    def vendor_calls(self) -> list[ToolCall]:
        """The calls of tools that the provider defines and leaves to the client, and requests for its approval."""
        return [part for part in self.parts if isinstance(part, ToolCall) and part.kind in ("vendor", "approval")]

    @property
    def other_work(self) -> str:
        """The `client_work` besides the `vendor_calls`, such as a pause; empty if there is none."""
        blocks = {call.block for call in self.vendor_calls}
        kinds = {part.kind for part in self.parts if isinstance(part, Opaque) and part.block in blocks}
        return "" if self.client_work in kinds else self.client_work

    @property
    def invalid_calls(self) -> list[ToolCallInvalid]:
        """The calls that were cut or are malformed; they must not run."""
        return [part for part in self.parts if isinstance(part, ToolCallInvalid)]

    @property
    def type(self) -> TurnType:
        """What to do next.

        `error`: the response failed, and its calls should not run. `tool_calls`: run the calls. `invalid_calls`: tell
        the model that its calls cannot run (`messages.answer_invalid`). `paused`: do the `client_work`, of which the
        `vendor_calls` are a part.
        `final_answer`: show the answer, which may be cut (see `finish_reason`).
        """
        if self.error is not None or self.finish_reason == "error":
            return "error"
        if self.tool_calls:
            return "tool_calls"
        if self.invalid_calls:
            return "invalid_calls"
        return "paused" if self.client_work or self.vendor_calls else "final_answer"


class TurnBuilder:
    """Folds the events of one choice into a Turn."""

    def __init__(self, choice: int = 0) -> None:
        self._choice = choice
        self._restart()
        self._unknown: list[Unknown] = []

    def _restart(self) -> None:
        self._pieces: dict[int, tuple[Any, list[str]]] = {}  # the first event of each block, and its pieces
        self._whole: list[tuple[int, TurnPart]] = []
        self._settled: set[int] = set()  # blocks with a whole or an invalid call, which nothing changes any more
        self._finish = _NO_FINISH
        self._usage: Usage | None = None
        self._error: Error | None = None

    @property
    def finish(self) -> Finish | None:
        """The end of the response, if it has come."""
        return self._finish if self.has_finish else None

    @property
    def has_finish(self) -> bool:
        """Whether the response has ended."""
        return self._finish is not _NO_FINISH

    @property
    def is_empty(self) -> bool:
        """Whether no event of the response has come."""
        has_content = self._pieces or self._whole or self._usage or self._error or self._unknown
        return not has_content and not self.has_finish

    def add(self, event: StreamChunk) -> None:
        """Adds one event."""
        match event:
            case Text() | Reasoning() | Refusal():
                if event.choice == self._choice:
                    self._pieces.setdefault(event.block, (event, []))[1].append(event.text)
            case ToolCallStart() | ToolCallDelta():
                if event.choice == self._choice and event.block not in self._settled:
                    pieces = self._pieces.setdefault(event.block, (event, []))[1]
                    pieces.append(event.piece if isinstance(event, ToolCallDelta) else "")
            case ToolCall() | ToolCallInvalid() | Opaque():
                if event.choice == self._choice:
                    self._add_whole(event)
            case Finish():
                self._finish = event if event.choice == self._choice else self._finish
            case Usage():
                self._usage = event
            case Error():
                self._error = self._error or event
            case Retry():
                self._restart()
            case Unknown():
                self._unknown.append(event)
            case ToolCallClosed() | ArgumentDelta() | OutputDelta():
                pass
            case _:
                not_an_event(event)

    def _add_whole(self, event: ToolCall | ToolCallInvalid | Opaque) -> None:
        if not isinstance(event, Opaque):
            if event.block in self._settled:
                return
            self._settled.add(event.block)
            self._pieces.pop(event.block, None)
        self._whole.append((event.block, event))

    def build(self, is_live: bool = False) -> Turn:
        """The turn so far; `is_live` if more events may come, so that a missing end is not a cut."""
        joined = [(block, _joined(first, pieces)) for block, (first, pieces) in self._pieces.items()]
        parts = sorted(joined + self._whole, key=lambda part: part[0])
        return Turn(
            tuple(part for _, part in parts),
            None if is_live and not self.has_finish else self._finish.reason,
            self._finish.raw_reason,
            self._finish.message,
            self._usage,
            self._error,
            tuple(self._unknown),
            self._finish.client_work,
            self._finish.model,
        )


def not_an_event(event: Never) -> NoReturn:
    """Raises a `UsageError`: the type checker rules out events here, but not other data of a caller."""
    raise UsageError(f"expected events, not an object of type {type(event).__name__}: pass the data to decode first")


def check_iterable(stream: object, name: str) -> None:
    """Raises a `UsageError` for a stream that is async, or not a stream at all."""
    if hasattr(stream, "__aiter__") and not hasattr(stream, "__iter__"):
        raise UsageError(f"{type(stream).__name__} is not iterable: use `await aconsume({name})` for async events")
    if not hasattr(stream, "__iter__"):
        raise UsageError(f"expected events, not {type_name(stream)}")


def _joined(first: Any, pieces: list[str]) -> TurnPart:
    text = "".join(pieces)
    if isinstance(first, ToolCallStart):
        return ToolCallInvalid(first.block, first.id, first.name, text, "cut", "the events end before the call ends")
    if isinstance(first, ToolCallDelta):
        return ToolCallInvalid(first.block, "", "", text, "unnamed", "the events begin inside the call")
    part: TurnPart = type(first)(first.block, text, first.choice)
    return part


def collect(events: Iterable[StreamChunk], choice: int = 0) -> Turn:
    """Folds the events of one choice into a Turn."""
    check_iterable(events, "events")
    builder = TurnBuilder(choice)
    for event in events:
        builder.add(event)
    return builder.build()


classify = collect
"""The same function, for code that branches on `.type`."""


def extract(events: Iterable[StreamChunk]) -> list[ToolCall]:
    """The complete tool calls."""
    return collect(events).tool_calls

"""The fold: events to a Turn, which is what the model said in one answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal, Never, NoReturn

from msgspec import Struct

from penstock.errors import UsageError
from penstock.events import (
    Error,
    Finish,
    FinishReason,
    Opaque,
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
TurnType = Literal["tool_calls", "final_answer"]


class Turn(Struct, frozen=True):
    """One answer of a model: its parts in order, why it ended, and what it cost.

    The parts are events again, one for each block, with their pieces joined. `error` and `usage` are None if the
    provider told none; `finish_reason` is "cut" if it never said why it stopped.
    """

    parts: tuple[TurnPart, ...] = ()
    finish_reason: FinishReason = "cut"
    raw_finish_reason: str | None = None
    finish_message: str = ""
    usage: Usage | None = None
    error: Error | None = None
    unknown: tuple[Unknown, ...] = ()

    @property
    def text(self) -> str:
        """The visible text."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def reasoning(self) -> str:
        """The reasoning, as far as it was shown."""
        return "".join(part.text for part in self.parts if isinstance(part, Reasoning))

    @property
    def refusal(self) -> str:
        """The words with which the model declined, if it did and the wire keeps them apart."""
        return "".join(part.text for part in self.parts if isinstance(part, Refusal))

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The whole calls, in order."""
        return [part for part in self.parts if isinstance(part, ToolCall)]

    @property
    def invalid_calls(self) -> list[ToolCallInvalid]:
        """The calls that were cut or malformed and must not run."""
        return [part for part in self.parts if isinstance(part, ToolCallInvalid)]

    @property
    def type(self) -> TurnType:
        """What to do next: run the calls, or show the answer; an answer may be cut, see `finish_reason` and `error`."""
        return "tool_calls" if self.tool_calls else "final_answer"


class TurnBuilder:
    """Folds the events of one choice into a Turn."""

    def __init__(self, choice: int = 0) -> None:
        self._choice = choice
        self._restart()
        self._unknown: list[Unknown] = []

    def _restart(self) -> None:
        self._pieces: dict[int, tuple[Any, list[str]]] = {}  # a block's first event, and the pieces of it
        self._whole: list[tuple[int, TurnPart]] = []
        self._finish = Finish("cut")
        self._usage: Usage | None = None
        self._error: Error | None = None

    def add(self, event: StreamChunk) -> None:
        """Take one event in."""
        match event:
            case Text() | Reasoning() | Refusal():
                if event.choice == self._choice:
                    self._pieces.setdefault(event.block, (event, []))[1].append(event.text)
            case ToolCallStart() | ToolCallDelta():
                if event.choice == self._choice:
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
            case ToolCallClosed():
                pass
            case _:
                not_an_event(event)

    def _add_whole(self, event: ToolCall | ToolCallInvalid | Opaque) -> None:
        if not isinstance(event, Opaque):
            self._pieces.pop(event.block, None)
        self._whole.append((event.block, event))

    def build(self) -> Turn:
        """The turn as far as it has come."""
        joined = [(block, _joined(first, pieces)) for block, (first, pieces) in self._pieces.items()]
        parts = sorted(joined + self._whole, key=lambda part: part[0])
        return Turn(
            tuple(part for _, part in parts),
            self._finish.reason,
            self._finish.raw_reason,
            self._finish.message,
            self._usage,
            self._error,
            tuple(self._unknown),
        )


def not_an_event(event: Never) -> NoReturn:
    """The type checker proves that no event comes here; a caller's data may."""
    raise UsageError(
        f"expected events, got an object of type {type(event).__name__}: run the data through decode first"
    )


def _joined(first: Any, pieces: list[str]) -> TurnPart:
    text = "".join(pieces)
    if isinstance(first, ToolCallStart):
        return ToolCallInvalid(first.block, first.id, first.name, text, "cut", "the events end before the call does")
    if isinstance(first, ToolCallDelta):
        return ToolCallInvalid(first.block, "", "", text, "unnamed", "the events begin within the call")
    whole: TurnPart = type(first)(first.block, text, first.choice)
    return whole


def collect(events: Iterable[StreamChunk], choice: int = 0) -> Turn:
    """Fold events into a Turn; of several choices, the one that is asked for."""
    if not hasattr(events, "__iter__"):
        raise UsageError(f"{type(events).__name__} cannot be read in plain code: fold it with `await aconsume(events)`")
    builder = TurnBuilder(choice)
    for event in events:
        builder.add(event)
    return builder.build()


classify = collect
"""The same fold, for those who ask what to do next: `.type` is "tool_calls" or "final_answer"."""


def extract(events: Iterable[StreamChunk]) -> list[ToolCall]:
    """Just the whole tool calls."""
    return collect(events).tool_calls

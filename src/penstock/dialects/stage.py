"""`TextCalls`: the stage that finds calls in the text of an event stream. All other events pass through unchanged."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from penstock.calls.numbering import Numbering
from penstock.dialects.dialect import Dialect
from penstock.dialects.reading.reader import Reader
from penstock.dialects.reading.schema import Tools
from penstock.dialects.reading.source import Source
from penstock.dialects.registry import find_dialect
from penstock.events import (
    Finish,
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
)

_CUT = ("length", "cut", "error", "content_filter")  # why a text is over that the model had not ended


class TextCalls:
    """Finds the calls in the text of a stream of events, in one dialect or in several."""

    def __init__(
        self,
        dialects: str | Iterable[str],
        tools: Iterable[Any] | None = None,
        *,
        only_declared: bool = False,
        reasoning: bool = False,
        inside_reasoning: bool = False,
        id_prefix: str = "call_",
    ) -> None:
        names = [dialects] if isinstance(dialects, str) else dialects
        self._dialects: dict[str, Dialect] = dict(map(find_dialect, names))
        self._tools = Tools(tools)
        self._only_declared = only_declared
        self._reasoning = reasoning
        self._inside = inside_reasoning
        self._blocks = Numbering(id_prefix)
        self._numbers: dict[int, int] = {}  # the blocks of the events that come, and what they are called here
        self._open: dict[int, tuple[int, Reader]] = {}  # by choice: the block of text that is being read
        self._begun: set[int] = set()  # the choices in which there was text
        self._found: set[int] = set()  # the choices in which there was a call

    def feed(self, event: StreamChunk) -> list[StreamChunk]:
        """The events that this one completes."""
        match event:
            case Text():
                return self._read(event)
            case Reasoning() | Refusal() | ToolCallStart() | ToolCall() | ToolCallInvalid():
                return [*self._end(event.choice), self._renumbered(event)]
            case ToolCallDelta() | ToolCallClosed() | Opaque():
                return [self._renumbered(event)]
            case Finish():
                return [*self._end(event.choice, is_cut=event.reason in _CUT), self._finished(event)]
            case Retry():
                self._open.clear()
                self._found.clear()
                self._begun.clear()
                return [event]
            case _:
                return [event]

    def close(self) -> list[StreamChunk]:
        """The events that were still held back. Text that had no `Finish` was cut."""
        return [event for choice in list(self._open) for event in self._end(choice, is_cut=True)]

    def _read(self, event: Text) -> list[StreamChunk]:
        is_new = event.choice not in self._open or self._open[event.choice][0] != event.block
        ended = self._end(event.choice) if is_new else []
        if is_new:
            self._open[event.choice] = event.block, self._new_reader(event.choice)
        _, reader = self._open[event.choice]
        return ended + self._of_choice(reader.feed(event.text), event.choice, event.block)

    def _new_reader(self, choice: int) -> Reader:
        source = Source(self._tools, self._blocks, only_declared=self._only_declared)
        is_inside = self._inside and choice not in self._begun  # only the first text starts there
        self._begun.add(choice)
        return Reader(source, self._dialects, reasoning=self._reasoning or is_inside, inside=is_inside)

    def _end(self, choice: int, *, is_cut: bool = False) -> list[StreamChunk]:
        if choice not in self._open:
            return []
        block, reader = self._open.pop(choice)
        return self._of_choice(reader.close(is_cut=is_cut), choice, block)

    def _of_choice(self, events: list[StreamChunk], choice: int, block: int) -> list[StreamChunk]:
        for event in events:
            match event:
                case Text():
                    self._numbers[block] = event.block  # vendor state of this text goes to what was told last
                case ToolCall():
                    self._found.add(choice)
                case _:
                    pass
        return [msgspec.structs.replace(event, choice=choice) for event in events] if choice else events

    def _renumbered(self, event: Any) -> StreamChunk:
        if event.block not in self._numbers:
            self._numbers[event.block] = self._blocks.new_block()
        block = self._numbers[event.block]
        renumbered: StreamChunk = event if block == event.block else msgspec.structs.replace(event, block=block)
        return renumbered

    def _finished(self, event: Finish) -> Finish:
        is_stop = event.reason == "stop" and event.choice in self._found
        return msgspec.structs.replace(event, reason="tool_calls") if is_stop else event

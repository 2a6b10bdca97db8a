"""`TextCalls`: the stage that finds calls in the text of an event stream. All other events pass through unchanged."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct, field

from penstock.calls.numbering import Numbering, ResponseLimit
from penstock.dialects.mark_table import DialectMarks, mark_table
from penstock.dialects.provenance import Provenance
from penstock.dialects.reading.reader import Reader
from penstock.dialects.reading.schema import Tools
from penstock.dialects.reading.source import Source
from penstock.dialects.registry import find_dialects
from penstock.dialects.unmarked import TextBefore, Unsettled
from penstock.events import (
    Confirm,
    Error,
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
    Unknown,
    Usage,
)

_CUT = ("length", "cut", "error", "content_filter")  # finish reasons after which the text is incomplete


class TextCalls:
    """Finds the calls in the text of an event stream, in one dialect or in several.

    With `provenance`, a call that is a quotation from the conversation is invalid. An invalid call for which `restores`
    returns True becomes the text again that the model wrote; that needs `provenance`. With `only_declared`, calls of
    other tools stay text, and `undeclared` is called with the name of each. `confirm` is that of `TextParser`.
    With `unsettled`, a call without marks counts only as the last thing of a message, and it is called with the name of
    each that stays text, and why. With `is_structured` the answer was asked for as JSON, and what is inside its strings
    is text.
    """

    def __init__(
        self,
        dialects: str | Iterable[str],
        tools: Iterable[Any] | None = None,
        *,
        only_declared: bool = False,
        reasoning: bool = False,
        inside_reasoning: bool = False,
        id_prefix: str = "call_",
        provenance: Provenance | None = None,
        confirm: Confirm = "end",
        restores: Callable[[ToolCallInvalid], bool] | None = None,
        undeclared: Callable[[str], None] | None = None,
        unsettled: Unsettled | None = None,
        is_structured: bool = False,
    ) -> None:
        names = [dialects] if isinstance(dialects, str) else dialects
        numbering = Numbering(id_prefix)
        self._dialects = find_dialects(*names)
        declared = Tools(tools)
        self._tool_names, self._only_declared = tuple(declared.names), only_declared
        self._new_source = partial(
            Source, declared, numbering, only_declared=only_declared, provenance=provenance, restores=restores,
            undeclared=undeclared, unsettled=unsettled, confirm=confirm, is_structured=is_structured,
        )  # fmt: skip
        self._reasoning = reasoning
        self._inside = inside_reasoning
        self._numbering = numbering
        self._blocks = BlockNumbers(numbering)
        self._provenance = provenance
        self._own: set[int] = set()  # the blocks of reasoning and calls: their vendor state is the model's own
        self._choices: dict[int, ChoiceText] = {}
        self._is_stopped = False  # the response has too many calls: its content is dropped from here on

    def feed(self, event: StreamChunk) -> list[StreamChunk]:
        """Reads an event, and returns the events that it completes."""
        if self._is_stopped:
            return _after_stop(event)
        match event:
            case Text():
                return self._read(event)
            case ToolCallStart() if (stop := self._counted()) is not None:
                return stop
            case Reasoning() | ToolCallStart() | ToolCall() | ToolCallInvalid():
                self._own.add(event.block)
                return [*self._end(event.choice), self._blocks.renumber(event)]
            case Refusal():
                return [*self._end(event.choice), self._blocks.renumber(event)]
            case ToolCallDelta() | ToolCallClosed():
                return [self._blocks.renumber(event)]
            case Opaque():
                if self._provenance is not None and event.block not in self._own:
                    self._provenance.add_state(event)
                return [self._blocks.renumber(event)]
            case Finish():
                return [*self._end(event.choice, is_cut=event.reason in _CUT, is_last=True), self._finish(event)]
            case Retry():
                self._choices.clear()
                return [event]
            case _:
                return [event]

    def close(self) -> list[StreamChunk]:
        """Returns the events that were held back. Text without a `Finish` counts as cut."""
        return [event for choice in self._choices for event in self._end(choice, is_cut=True)]

    def reader(self, choice: int = 0) -> Reader | None:
        """The reader of the text of a choice that is open."""
        return text.reader if (text := self._choices.get(choice)) is not None else None

    def may_call(self, event: Text) -> bool:
        """Whether a call may begin or end in a piece of text."""
        reader = self.reader(event.choice)
        if reader is None:
            table = mark_table(self._dialects, self._tool_names, self._only_declared)
            return (
                bool(table.inside)
                or DialectMarks(table, has_unmarked=True).everywhere().find_start(event.text) is not None
            )
        return not reader.flows or reader.find_start(event.text) is not None

    @property
    def is_in_call(self) -> bool:
        """Whether a call is open, or text is held back that may begin one."""
        return any(choice.reader is not None and not choice.reader.flows for choice in self._choices.values())

    def _counted(self) -> list[StreamChunk] | None:
        """Counts a native call; returns an error if there are too many, with those in the text."""
        try:
            self._numbering.count_call()
        except ResponseLimit as limit:
            self._is_stopped = True
            return [Error(limit.message, limit.code)]
        return None

    def _read(self, event: Text) -> list[StreamChunk]:
        choice = self._choices.get(event.choice)
        ended: list[StreamChunk] = []
        if choice is None or choice.reader is None or choice.block != event.block:
            ended = self._end(event.choice)
            choice = self._start(event)
        reader = choice.reader
        assert reader is not None
        events = ended + self._register(reader.feed(event.text), event.choice, choice)
        self._is_stopped = reader.is_stopped
        return events

    def _start(self, event: Text) -> ChoiceText:
        """Starts to read another block of text; only the first one of a choice can start inside reasoning."""
        is_inside = self._inside and event.choice not in self._choices
        choice = self._choices.setdefault(event.choice, ChoiceText())
        choice.block = event.block
        source = self._new_source()
        source.output.before = choice.before
        choice.reader = Reader(
            source, self._dialects, splits_reasoning=self._reasoning or is_inside, starts_inside=is_inside
        )
        return choice

    def _end(self, index: int, *, is_cut: bool = False, is_last: bool = False) -> list[StreamChunk]:
        choice = self._choices.get(index)
        if choice is None or choice.reader is None:
            return []
        reader, choice.reader = choice.reader, None
        events = self._register(reader.close(is_cut=is_cut, is_last=is_last), index, choice)
        self._is_stopped |= reader.is_stopped
        return events

    def _register(self, events: list[StreamChunk], index: int, choice: ChoiceText) -> list[StreamChunk]:
        for event in events:
            match event:
                case Text():
                    self._blocks.rename(choice.block, event.block)
                case ToolCall():
                    choice.has_call = True
                case _:
                    pass
        if not index:
            return events
        return [event if isinstance(event, Error) else msgspec.structs.replace(event, choice=index) for event in events]

    def _finish(self, event: Finish) -> Finish:
        if self._is_stopped:
            return msgspec.structs.replace(event, reason="error")
        choice = self._choices.get(event.choice)
        is_stop = event.reason == "stop" and choice is not None and choice.has_call
        return msgspec.structs.replace(event, reason="tool_calls") if is_stop else event


def _after_stop(event: StreamChunk) -> list[StreamChunk]:
    """What is left of an event after the error that ended the response."""
    match event:
        case Finish():
            return [msgspec.structs.replace(event, reason="error")]
        case Usage() | Error() | Unknown() | Retry():
            return [event]
        case _:
            return []


class ChoiceText(Struct):
    """The text of one choice: the block that is open, its reader, its text so far, and whether there was a call."""

    block: int = -1
    reader: Reader | None = None
    before: TextBefore = field(default_factory=TextBefore)
    has_call: bool = False


class BlockNumbers:
    """New numbers for the blocks of a stream: a block of text may become several."""

    __slots__ = ("_new", "_numbering")

    def __init__(self, numbering: Numbering) -> None:
        self._numbering = numbering
        self._new: dict[int, int] = {}

    def rename(self, block: int, new: int) -> None:
        """Gives a block its new number. Vendor state of a text goes to the last block that the text became."""
        self._new[block] = new

    def renumber(self, event: Any) -> StreamChunk:
        """Returns the event with the new number of its block."""
        if event.block not in self._new:
            self._new[event.block] = self._numbering.new_block()
        block = self._new[event.block]
        renumbered: StreamChunk = event if block == event.block else msgspec.structs.replace(event, block=block)
        return renumbered

"""The record of a run: the events from which it is rebuilt, so that it can be stored without a log.

It has what a log has, with the pieces of each response joined, so it grows as the history does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import cast

from msgspec.structs import replace

from penstock.events import (
    Error,
    Opaque,
    Retry,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    Usage,
)
from penstock.messages import Message, ToolResult
from penstock.run.events import (
    ApprovalRequest,
    CallReviewed,
    Decision,
    HistoryReplaced,
    LogEvent,
    OutputInvalid,
    RunStart,
    Said,
    StepEnd,
    StepStart,
    ToolEnd,
    ToolResults,
    ToolReturned,
    ToolStart,
)
from penstock.sentences import UNREAD
from penstock.turn import TurnBuilder

CONSEQUENTIAL = frozenset({ToolCallStart, ToolCallClosed, ToolCall, ToolCallInvalid, Opaque, Retry, Usage, Error})
"""Chunks with consequences for the run, or whose order matters."""

_CALLS = ToolCallClosed | ToolCall | ToolCallInvalid
_OF_CALLS = ToolStart | ToolEnd | ApprovalRequest | CallReviewed | ToolReturned
_KEPT = CONSEQUENTIAL - {ToolCallStart} | {
    StepStart, StepEnd, ToolStart, ToolEnd, ToolResults, ApprovalRequest, Decision, Said, HistoryReplaced,
    OutputInvalid, CallReviewed, ToolReturned,
}  # fmt: skip
_RESULTS = ToolResults(Message("tool"))  # the results themselves are in `ToolEnd`


class Record:
    """The events of a run so far. The content of a response is added when it has ended.

    `base` is the run as version 1 stored it, before these events; None if they begin with the run.
    """

    def __init__(self, messages: Iterable[Message]) -> None:
        self.events: list[LogEvent] = [RunStart(tuple(messages))]
        self.base: bytes | None = None
        self._earlier: Collection[int] = ()

    def begin_after(self, base: bytes, blocks: Collection[int]) -> None:
        """The run was stored by version 1: keep only what follows, and nothing of these blocks."""
        self.base = base
        self.events.clear()
        self._earlier = blocks

    def add(self, event: object) -> None:
        """Keep an event, if it is needed; the private data of a tool is not."""
        kind = type(event)
        if kind not in _KEPT:
            return
        if isinstance(event, ToolEnd | ToolReturned):
            event = replace(event, data=None)
        elif kind is ToolResults:
            event = _RESULTS
        elif kind is Retry:
            self._earlier = ()
        self.events.append(cast(LogEvent, event))

    def add_response(self, builder: TurnBuilder) -> None:
        """A response has ended: keep its content."""
        self.events += self._content(builder, self.events)
        self._earlier = ()

    def to_store(self, builder: TurnBuilder, unread: Iterable[StreamChunk]) -> list[LogEvent]:
        """The events during a response: with its content as far as it was read, without unread calls."""
        last = [*unread]
        is_withdrawn = False
        for place in reversed(range(len(last))):
            if isinstance(last[place], Retry):
                last, is_withdrawn = last[place + 1 :], True
                break
        events = self._without([chunk for chunk in last if isinstance(chunk, _CALLS | Opaque)])
        return events if is_withdrawn else [*events, *self._content(builder, events)]

    def _without(self, unread: list[ToolCallClosed | ToolCall | ToolCallInvalid | Opaque]) -> list[LogEvent]:
        """The events without these chunks, and without the consequences of entirely unread calls."""
        if not unread:
            return self.events
        known = {id(chunk) for chunk in unread}
        events = [event for event in self.events if id(event) not in known]
        read = {event.block for event in events if isinstance(event, _CALLS)}
        calls = {chunk.id for chunk in unread if isinstance(chunk, _CALLS) and chunk.block not in read}
        return [*_with_discarded(events, calls)]

    def _content(self, builder: TurnBuilder, events: Sequence[LogEvent]) -> list[LogEvent]:
        """The content of a response that is not among the events yet."""
        known, content = {*_known_calls(events), *self._earlier}, list[LogEvent]()
        for part in builder.build().parts:
            if isinstance(part, Opaque) or part.block in known:
                continue
            if not isinstance(part, ToolCall | ToolCallInvalid):
                content.append(part)
                continue
            start = [ToolCallStart(part.block, part.id, part.name)] if part.id or part.name else []
            content += [*start, ToolCallDelta(part.block, part.arguments_raw)]  # it has not come to its end
        return content if builder.finish is None else [*content, builder.finish]


def _with_discarded(events: Iterable[LogEvent], calls: Collection[str]) -> Iterator[LogEvent]:
    """The events; of these calls only the starts of their tools, which a limit counts, and their ends."""
    for event in events:
        if not (isinstance(event, _OF_CALLS) and event.call_id in calls):
            yield event
        elif isinstance(event, ToolStart):
            yield event
            result = ToolResult(event.call_id, event.name, (Text(0, UNREAD),), True)
            yield ToolEnd(event.key, result, "discarded")


def _known_calls(events: Sequence[LogEvent]) -> set[int]:
    """The blocks of the last response's calls among the events."""
    blocks: set[int] = set()
    for event in reversed(events):
        match event:
            case ToolCall(choice=0) | ToolCallInvalid(choice=0):
                blocks.add(event.block)
            case StepStart() | Retry():
                break
            case _:
                pass
    return blocks

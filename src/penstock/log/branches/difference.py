"""The first difference between two runs: the event of each where they part.

Only what the model, its tools and people did is compared: not which worker drives the run, times, usage, vendor state,
the ids of calls, when tools run, responses that were withdrawn, or where a provider has cut its text.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
from msgspec import Struct

from penstock.events import Opaque, Reasoning, Refusal, Retry, Text, ToolCallClosed, ToolCallDelta, ToolCallStart, Usage
from penstock.log.store import Store, check_version, unknown_run
from penstock.log.take_up import read_log
from penstock.run.events import (
    CallReviewed,
    Done,
    HistoryReplaced,
    LogEvent,
    Nested,
    StepStart,
    Taken,
    ToolEnd,
    ToolPrepare,
    ToolProgress,
    ToolReturned,
    ToolStart,
    Waiting,
    innermost,
)
from penstock.run.forked import Forked

_OMITTED = (
    Taken | Waiting | Forked | ToolPrepare | ToolStart | ToolProgress | CallReviewed | ToolReturned
    | Usage | Opaque | ToolCallStart | ToolCallDelta | ToolCallClosed
)  # fmt: skip
"""Events that are not compared, also because others say the same: `tool_call` and `tool_end`."""
_VOLATILE = frozenset({
    "started", "seconds", "usage", "raw", "raw_reason", "sources", "cost", "response_id", "meta", "model", "block",
    "key", "is_early", "sealed_by", "quirks", "origin", "shown", "preview",
})  # fmt: skip
"""Fields that are not compared."""
_IDS = frozenset({"id", "call_id"})


class PartingEvent(Struct, frozen=True):
    """An event of a run, with its number."""

    number: int
    event: LogEvent


class RunDifference(Struct, frozen=True):
    """Where two runs part. `first` and `second` are the first events that differ; None if a run ends before that.

    Both are None if the runs are the same. `common` is the number of the first run's last event before that.
    """

    first: PartingEvent | None
    second: PartingEvent | None
    common: int

    @property
    def is_same(self) -> bool:
        """Whether the runs are the same."""
        return self.first is None and self.second is None


def difference(store: Store, first: str, second: str) -> RunDifference:
    """The first difference between two runs in a store."""
    return parting(_events(store, first), _events(store, second))


def parting(first: Iterable[tuple[int, LogEvent]], second: Iterable[tuple[int, LogEvent]]) -> RunDifference:
    """The first difference between two logs."""
    left, right = _Reader(first), _Reader(second)
    while left.item is not None and right.item is not None:
        if isinstance(left.item, _Piece) and isinstance(right.item, _Piece) and left.item.place == right.item.place:
            size = min(len(left.item.text), len(right.item.text))
            if left.item.text[:size] != right.item.text[:size]:
                break
            left.take(size)
            right.take(size)
            continue
        if left.item.value != right.item.value:
            break
        left.next()
        right.next()
    return RunDifference(left.parting, right.parting, left.passed)


class _Item(Struct, frozen=True):
    """An event as it is compared."""

    number: int
    event: LogEvent
    value: Any


class _Piece(_Item, frozen=True):
    """A piece of text, as far as it was not compared; `place` is where it belongs."""

    place: tuple[Any, ...]
    text: str


class _Reader:
    """Reads the events of a log as they are compared; `item` is the next one."""

    def __init__(self, events: Iterable[tuple[int, LogEvent]]) -> None:
        self._items = _items(events)
        self.passed = 0  # the number of the last event that was compared
        self.item: _Item | None = None
        self.next()

    def next(self) -> None:
        """Go on to the next event."""
        self.passed = self.item.number if self.item is not None else self.passed
        self.item = next(self._items, None)

    def take(self, size: int) -> None:
        """This much of a piece is the same."""
        piece = self.item
        assert isinstance(piece, _Piece)
        if size == len(piece.text):
            self.next()
        else:
            self.item = msgspec.structs.replace(piece, text=piece.text[size:])

    @property
    def parting(self) -> PartingEvent | None:
        return None if self.item is None else PartingEvent(self.item.number, self.item.event)


def _items(events: Iterable[tuple[int, LogEvent]]) -> Iterator[_Item]:
    """The events as they are compared. Tools end in any order: their results come with the end of the step."""
    names = _CallNames()
    results: dict[tuple[str, ...], list[_Item]] = {}  # of the step under way, by the path of its run
    for number, event, inner in _lasting(events):
        path = _path(event)
        if isinstance(inner, Text | Reasoning | Refusal):
            yield _Piece(number, event, None, (names.all(path), inner.type), inner.text)
            continue
        item = _Item(number, event, (names.all(path), names.plain(msgspec.to_builtins(inner))))
        if isinstance(inner, ToolEnd):
            results.setdefault(path, []).append(item)
            continue
        if isinstance(inner, StepStart | HistoryReplaced | Done):
            yield from _in_order(results.pop(path, []))
        yield item
    for left in results.values():
        yield from _in_order(left)


def _lasting(events: Iterable[tuple[int, LogEvent]]) -> list[tuple[int, LogEvent, LogEvent]]:
    """The events that are compared, without responses that were withdrawn; the last of each is that of its run."""
    lasting: list[tuple[int, LogEvent, LogEvent]] = []
    begins: dict[tuple[str, ...], int] = {}  # where the last response of each run begins
    for number, event in events:
        inner, path = innermost(event), _path(event)
        if isinstance(inner, Retry):
            del lasting[begins.get(path, len(lasting)) :]
        elif not isinstance(inner, _OMITTED) and not (isinstance(inner, ToolEnd) and inner.ending == "discarded"):
            lasting.append((number, event, inner))
        if isinstance(inner, StepStart):
            begins[path] = len(lasting)
    return lasting


def _in_order(results: list[_Item]) -> list[_Item]:
    """Results in the order of their calls."""
    return sorted(results, key=lambda item: item.value[1]["result"]["call_id"])


def _path(event: LogEvent) -> tuple[str, ...]:
    return event.path if isinstance(event, Nested) else ()


class _CallNames:
    """Numbers the calls of a run in the order in which they appear: providers give them other ids in every run."""

    def __init__(self) -> None:
        self._known: dict[str, int] = {}

    def all(self, ids: Iterable[str]) -> tuple[int, ...]:
        return tuple(self._number(id) for id in ids)

    def plain(self, fields: dict[str, Any]) -> dict[str, Any]:
        """The fields of an event that are compared; arguments and results as they are."""
        plain: dict[str, Any] = {}
        for name, value in fields.items():
            if name in _IDS:
                plain[name] = self._number(value)
            elif name == "result":
                plain[name] = self.plain(value)
            elif name not in _VOLATILE and not (name == "arguments_raw" and "arguments" in fields):
                plain[name] = value
        return plain

    def _number(self, id: str) -> int:
        return self._known.setdefault(id, len(self._known))


def _events(store: Store, run_id: str) -> Iterator[tuple[int, LogEvent]]:
    row = store.find(run_id)
    if row is None:
        raise unknown_run(run_id)
    check_version(row)
    for number, _, event in read_log(store, run_id, last=row.seq):
        yield number, event

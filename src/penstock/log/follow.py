"""The events of a run as they come, for readers in any process.

A reader looks at the log; the doorbell of the store tells it when.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Generator, Iterator
from contextlib import contextmanager, suppress
from functools import partial

from penstock.errors import UsageError
from penstock.log.position import START, OtherPastError, Position, parse_position, past_of, position_at
from penstock.log.store import DamagedRunError, Row, RunRow, Store, StoreError, unknown_run
from penstock.log.store_retries import awith_retries, with_retries
from penstock.log.take_up import PAGE, hole, read_log, read_run
from penstock.run.events import Done, LogEvent, Reset

WAIT = 2.0
"""How many seconds a plain reader waits for events at a time: then it checks whether the run was set aside."""


def follow(store: Store, run_id: str, after: int | str = 0) -> Iterator[tuple[Position, LogEvent]]:
    """The events of a run after a position, with their positions, as they come; ends with `Done`.

    There are none after `Done`. If the log no longer has what was read until that position, a `Reset` comes, and then
    all events. A `UsageError` if the position is a bare number, and the run has fewer events.
    """
    reader = LogReader(store, run_id, after)
    while True:
        events = with_retries(reader.next)
        for position, _, event in events:
            yield position, event
        if reader.is_over:
            return
        if not events:
            with_retries(partial(store.wait, run_id, reader.position, WAIT))


async def afollow(store: Store, run_id: str, after: int | str = 0) -> AsyncIterator[tuple[Position, LogEvent]]:
    """The same for async code. It blocks no thread while it waits."""
    reader = LogReader(store, run_id, after)
    with ringing(store, run_id) as bell:
        while True:
            bell.clear()
            events = await awith_retries(reader.next)
            for position, _, event in events:
                yield position, event
            if reader.is_over:
                return
            if not events:
                await wait_for_ring(bell, store.poll)


class LogReader:
    """Reads the log of a run from a position on. It begins again, with a `Reset`, if the log has another past.

    `position` is that of the last event, and `is_over` whether that was the end.
    """

    def __init__(self, store: Store, run_id: str, after: int | str = 0) -> None:
        self.position = parse_position(after)
        self.is_over = False
        self._store = store
        self._run_id = run_id

    def next(self) -> list[tuple[Position, float, LogEvent]]:
        """The next events with their positions and times; none if there are none at the moment."""
        try:
            rows = next_events(self._store, self._run_id, self.position)
        except OtherPastError:
            self.position = START
            return [(START, time.time(), Reset())]
        events = [(position_at(number, at), at, event) for number, at, event in rows]
        if events:
            self.position = events[-1][0]
            self.is_over = isinstance(events[-1][2], Done)
        else:
            row = _row_of(self._store, self._run_id)
            self.is_over = row.state == "over" and row.seq == self.position
        return events


def next_events(store: Store, run_id: str, after: Position, limit: int = PAGE) -> list[tuple[int, float, LogEvent]]:
    """The next events of a run, at most this many, with their numbers and times.

    An `OtherPastError` if the log has other events before them than the reader has read. A `DamagedRunError` if there
    will be none until the log is repaired.
    """
    row = _row_of(store, run_id)
    if row.seq < after and after.past is None:
        raise UsageError(f"the run {run_id!r} has {row.seq} events: none can be read after event {after}")
    if row.seq <= after:
        if not is_in_log(store, row, after):
            raise _other_past(run_id, after)
        if row.state == "damaged":
            read_run(store, row)  # says why there is nothing more
        return []
    events: list[tuple[int, float, LogEvent]] = []
    try:
        events.extend(read_after(store, run_id, after, after + limit))
    except StoreError:
        if not events:  # else those before it are read first
            raise
    if not events:
        _row_of(store, run_id)  # the run may have been deleted meanwhile
        raise hole(run_id, after + 1)
    return events


def read_after(
    store: Store, run_id: str, after: Position, last: int | None = None
) -> Iterator[tuple[int, float, LogEvent]]:
    """The events of a run after a position, until the last one; an `OtherPastError` if that has another event."""
    first = after if after.past is None else after - 1  # the event at the position is compared
    for number, at, event in read_log(store, run_id, first, last):
        if number > after:
            yield number, at, event
        elif past_of(at) != after.past:
            raise _other_past(run_id, after)


def _other_past(run_id: str, after: Position) -> OtherPastError:
    return OtherPastError(f"the log of the run {run_id!r} does not have event {after.token}")


def is_in_log(store: Store, row: RunRow, position: Position) -> bool:
    """Whether a run has the event at a position; of a bare number, whether it has that many events."""
    if position > row.seq:
        return False
    if position.past is None or not position:
        return True
    if position == row.seq and past_of(row.updated) == position.past:  # without reading the event
        return True
    rows = store.read(row.id, position - 1, 1)
    return not rows or rows[0][0] != position or past_of(rows[0][1]) == position.past  # a missing one is a hole


def last_position(store: Store, row: RunRow) -> Position:
    """The position of the last event of a run; a bare number if that event cannot be read."""
    rows: list[Row] = []
    with suppress(DamagedRunError):
        rows = store.read(row.id, row.seq - 1, 1) if row.seq else []
    return position_at(row.seq, rows[0][1]) if rows and rows[0][0] == row.seq else Position(row.seq)


def _row_of(store: Store, run_id: str) -> RunRow:
    row = store.find(run_id)
    if row is None:
        raise unknown_run(run_id)
    return row


@contextmanager
def ringing(store: Store, run_id: str) -> Generator[asyncio.Event]:
    """An event of this loop that is set when a run may have new events."""
    bell, loop = asyncio.Event(), asyncio.get_running_loop()

    def ring(_: object) -> None:  # from any thread
        with suppress(RuntimeError):  # the loop was closed
            loop.call_soon_threadsafe(bell.set)

    with store.watch(run_id, ring):
        yield bell


async def wait_for_ring(bell: asyncio.Event, seconds: float) -> None:
    """Wait until the event is set, at most this many seconds."""
    try:
        async with asyncio.timeout(seconds):
            await bell.wait()
    except TimeoutError:
        pass

"""The logged events of a run with their times, and facts derived from them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from penstock.log.follow import WAIT, LogReader
from penstock.log.position import Position
from penstock.log.store import RunRow, Store
from penstock.log.store_retries import with_retries
from penstock.log.take_up import read_log, read_run
from penstock.run.events import ApprovalRequest, Done, LogEvent

Timed = tuple[int, float, LogEvent]
"""An event with its number, and its time in seconds since 1970."""


def past_events(store: Store, run_id: str, after: int = 0) -> Iterator[Timed]:
    """The logged events after a number."""
    return read_log(store, run_id, after)


def follow_events(store: Store, run_id: str, after: int | str = 0) -> Iterator[tuple[Position, float, LogEvent]]:
    """The logged events after a position, then new ones, until the run has finished."""
    reader = LogReader(store, run_id, after)
    while not reader.is_over:
        events = with_retries(reader.next)
        yield from events
        if not events and not reader.is_over:
            with_retries(partial(store.wait, run_id, reader.position, WAIT))


def end_of(store: Store, run_id: str) -> Done | None:
    """The end of a run, if the log has it."""
    row = store.find(run_id)
    events = [event for _, _, event in read_log(store, run_id, row.seq - 1)] if row else []
    return next((event for event in events if isinstance(event, Done)), None)


def waiting_calls(store: Store, row: RunRow) -> list[ApprovalRequest]:
    """The waiting calls of a run without an answer."""
    if row.state in ("over", "damaged", "parked"):
        return []
    answered = {input.key for input in store.inputs([row.id]) if input.kind in ("decide", "provide")}
    return [request for request in read_run(store, row).waiting if request.call_id not in answered]

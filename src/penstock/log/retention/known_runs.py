"""Runs that a store already has when they are added again, and those that it need not keep."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.log.store import Cutoff, Row, RunRow, Store, run_exists


def same_run(store: Store, row: RunRow, events: Sequence[Row]) -> bool:
    """False, if the store has this run with these events: nothing was added. A `RunExistsError` if it differs."""
    found = store.find(row.id)
    if found is None or found.seq != row.seq or not _has_events(store, row.id, events):
        raise run_exists(row.id)
    return False


def is_old(row: RunRow, cutoff: Cutoff) -> bool:
    """Whether a run has ended before the time of its tenant."""
    return row.state == "over" and row.updated < cutoff.tenants.get(row.tenant, cutoff.before)


def _has_events(store: Store, run_id: str, events: Sequence[Row]) -> bool:
    """Whether a run begins with these events."""
    after = 0
    while after < len(events):
        page = [body for _, _, body in store.read(run_id, after)]
        if not page or page != [body for _, _, body in events[after : after + len(page)]]:
            return False
        after += len(page)
    return True

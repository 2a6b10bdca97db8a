"""Cancels or retries many runs at once: those of an agent or a tenant, in a state, or older than some time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, get_args

from msgspec import Struct

from penstock.errors import UsageError
from penstock.log.ending import release_claimed
from penstock.log.follower import new_owner
from penstock.log.retention.survey import age
from penstock.log.store import DamagedRunError, RunPhase, RunRow, Store
from penstock.log.take_up import read_run, take_up

CANCELLABLE: Sequence[RunPhase] = ("ready", "running", "waiting", "parked", "damaged")
RETRIABLE: Sequence[RunPhase] = ("parked", "damaged")
EVERY = 2**31 - 1
"""The limit of a list that has all runs."""


class RunFilter(Struct, frozen=True, kw_only=True):
    """Which runs are meant; None means any. `older_than` is in seconds since the last event of a run."""

    state: RunPhase | None = None
    agent: str | None = None
    tenant: str | None = None
    older_than: float | None = None

    def __post_init__(self) -> None:
        state: Any = self.state
        if state is not None and state not in (states := get_args(RunPhase)):
            raise UsageError(f"unknown state {state!r} of a run; use one of: {', '.join(states)}")
        if self.older_than is not None and not self.older_than >= 0:
            raise UsageError("older_than must be a number of seconds, of 0 or more")

    def rows(self, store: Store, states: Sequence[RunPhase]) -> list[RunRow]:
        """Those of the runs in these states, the oldest first."""
        wanted: list[RunPhase] = [state for state in states if self.state in (None, state)]
        if not wanted:
            raise UsageError(f"this is not possible for runs in the state {self.state!r}, only for {', '.join(states)}")
        now = time.time()
        rows = [
            row
            for state in wanted
            for row in store.list(state=state, agent=self.agent, tenant=self.tenant, limit=EVERY)
            if self.older_than is None or age(row.updated, now) >= self.older_than
        ]
        return sorted(rows, key=lambda row: (row.created, row.id))


def retry_run(store: Store, row: RunRow) -> bool:
    """Let a worker continue a parked run, or a damaged one that can be read again; False if that is not so."""
    if row.state == "parked":
        return store.retry(row.id)
    try:
        read_run(store, row)
        if (claim := store.claim(new_owner(), run_id=row.id)) is None:
            return False
        take_up(store, claim, {})
    except DamagedRunError:
        return False
    release_claimed(store, claim)
    return True

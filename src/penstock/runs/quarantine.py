"""Which runs a process may claim beside those that it drives: suspects are kept apart from others.

A suspect is a run that was on a worker which has died (`penstock.log.suspects`). A process without runs claims a group
of suspects first, and nothing else until all of them are cleared. Suspects that have lost more than one worker need
such a process. Where all of them are busy, each stops claiming runs for a while, at a time of its own, so that one
becomes free.
"""

from __future__ import annotations

import random
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from penstock.log.flusher import flusher_of
from penstock.log.store import Claim, RunRow, Store
from penstock.log.suspects import is_joinable

LOOKS = 5
"""How many times per length of a lease a busy process looks for suspects that need a process of their own."""

DRAIN_LEASES = 4.0
"""For how many leases a busy process claims no runs, so that it can take suspects when its runs have ended."""

PATIENCE_LEASES = 16.0
"""How many leases a run that is driven by its id waits at most for suspects that are driven here, or for its turn."""


class Quarantine:
    """The runs that this process drives on a store."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: dict[str, Claim] = {}
        self._group = ""  # of the suspects that are driven here, apart from others
        self._drain = Drain(store.lease)
        self._waiting: dict[str, float] = {}  # runs that are not admitted, since when

    @property
    def tenants(self) -> dict[str, str]:
        """The runs that this process drives, each with its tenant."""
        return {run_id: claim.tenant for run_id, claim in self._held.copy().items()}

    @contextmanager
    def holding(self, claim: Claim) -> Generator[None]:
        """Drive a claimed run."""
        self._add(claim)
        try:
            yield
        finally:
            if self._held.get(claim.run_id) is claim:
                del self._held[claim.run_id]

    def take(self, owner: str, agents: Sequence[str], limit: int) -> Sequence[Claim]:
        """Claim the next runs that may run here, at most `limit`."""
        group = self.group
        if group is None and (suspects := self._drain.look(self._store, agents)):
            group = self._drain.group(suspects)
            if group is None:
                return ()
        claims = self._store.claim_next(owner, agents=agents, limit=limit, group=group)
        for claim in claims:
            self._add(claim)
        return claims

    def _add(self, claim: Claim) -> None:
        if not self._held or not is_joinable(claim.suspect):
            self._group = claim.suspect
        self._held[claim.run_id] = claim

    @property
    def group(self) -> str | None:
        """The group of which runs may be claimed: empty for the next one, None for runs that are no suspects."""
        if not self._held:
            return ""
        suspects = [claim.run_id for claim in list(self._held.values()) if claim.suspect]
        if self._group and not flusher_of(self._store).on_trial(suspects):
            self._group = ""
        return self._group or None

    def admits(self, row: RunRow) -> bool:
        """Whether a run may be claimed by its id, now or because it has waited for long enough."""
        group = self.group
        is_apart = not is_joinable(row.suspect) and group not in ("", row.suspect)
        if not is_apart and (not group or is_joinable(group) or group == row.suspect):
            self._waiting.pop(row.id, None)
            return True
        since = self._waiting.setdefault(row.id, time.monotonic())
        if time.monotonic() - since < PATIENCE_LEASES * self._store.lease:
            return False
        del self._waiting[row.id]
        return True


class Drain:
    """When a busy process claims no runs, so that it can take suspects."""

    def __init__(self, lease: float) -> None:
        self._lease = lease
        self._next_look = 0.0
        self._begin: float | None = None
        self._suspects: Sequence[RunRow] = ()

    def look(self, store: Store, agents: Sequence[str]) -> Sequence[RunRow]:
        """The suspects that wait for a process without other runs, if this one makes room for them now."""
        now = time.monotonic()
        if now >= self._next_look:
            self._next_look = now + self._lease / LOOKS
            self._suspects = store.suspects(agents=agents)
            if not self._suspects:
                self._begin = None
            elif self._begin is None:
                self._begin = now + random.uniform(0.2, 1.2) * self._lease
        return self._suspects if self._begin is not None and now >= self._begin else ()

    def group(self, suspects: Sequence[RunRow]) -> str | None:
        """The group to take although other runs have not ended, because it has waited for long enough; else None.

        A run that is alone in its group goes on waiting: nobody else waits with it, and it is the likely cause.
        """
        now = time.monotonic()
        if self._begin is None or now < self._begin + DRAIN_LEASES * self._lease:
            return None
        self._begin = now + random.uniform(1.0, 2.0) * DRAIN_LEASES * self._lease
        sizes: dict[str, int] = {}
        for row in suspects:
            sizes[row.suspect] = sizes.get(row.suspect, 0) + 1
        return next((group for group, size in sizes.items() if size > 1), None)

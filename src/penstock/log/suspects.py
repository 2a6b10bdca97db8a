"""Runs that may have ended their worker: which of them continue together, and which of them no worker claims.

Nobody knows which of the runs of a dead worker was the cause, so all of them are suspects. They continue in groups, and
a worker that has none takes one group and no other runs. If it dies too, the group is split: first into the runs with a
running tool and those without, then into halves. So the cause is soon alone, and all others are cleared: by a
completed step, or by surviving for a while. A worker that has other runs may take suspects which have lost one worker
only, so that they need not wait.

Leases also end while the store is away, and then nobody could renew them. A process that saw this lets the store answer
for a while before it takes the runs of others: workers that live renew their leases first.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from penstock.events import Usage
from penstock.log.bodies import body_of
from penstock.log.store import MAX_LEASES, VERSION, Batch, Claim, Progress, RunRow, Store
from penstock.run.events import Done, Waiting
from penstock.run.limits import Limits

REPEATED = "1"
"""The first character of the groups whose runs have lost more than one worker in a step."""

JOINABLE = "2"
"""That of the groups whose runs have lost one: a worker may take them in addition to other runs."""

DOUBLINGS = 3
"""The time that a suspect has to survive is a lease, doubled for each further worker that it has lost, so often."""

RENEWAL_PAUSE = 1.0
"""How many seconds a worker waits at most between two attempts to reach a store that is away."""

Kind = Literal["a", "t", "x"]
"""The second character of a group: alone on its worker, with a running tool, or neither. They are claimed in this
order."""


class LostLease(Struct, frozen=True):
    """A run whose lease has ended; `is_overdue` if that was more than the length of a lease ago."""

    run_id: str
    epoch: int
    owner: str
    suspect: str
    lost: int
    in_tool: bool
    is_overdue: bool


class Suspect(Struct, frozen=True):
    """A run whose worker has died: how many it has lost in this step, and the group with which it continues."""

    run_id: str
    epoch: int
    lost: int
    group: str


class Outages:
    """Whether the leases of others count as lost, although the store was away from this process.

    They do when the store has answered for a lease since then, in total: one that fails again and again delays a
    takeover, and does not prevent it. An operation that takes longer than `slow` seconds is an outage too: a pooler
    holds statements back until its server returns.
    """

    def __init__(self, lease: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.slow = lease / 2
        self._grace = lease + RENEWAL_PAUSE
        self._clock = clock
        self._left = 0.0  # the seconds that the store has to answer
        self._answered: float | None = None  # when it did so last, since the outage

    def note(self) -> None:
        """The store has failed, or has answered late."""
        if self._left <= 0:
            self._left = self._grace
        self._answered = None

    def are_over(self) -> bool:
        """Whether leases count as lost now, when the store has just answered."""
        if self._left > 0:
            now = self._clock()
            self._left -= 0.0 if self._answered is None else now - self._answered
            self._answered = now
        return self._left <= 0


def suspects_of(leases: Sequence[LostLease], living: Collection[str]) -> list[Suspect]:
    """The runs that continue without their worker, of those whose leases have ended.

    A worker in `living` has other leases that last. If one that it does not renew is overdue, it has lost track of that
    run, which is no suspect. Otherwise its leases may be about to end, each at its own time.
    """
    owners: dict[str, list[LostLease]] = {}
    for lease in sorted(leases, key=lambda lease: lease.run_id):
        owners.setdefault(lease.owner, []).append(lease)
    found: list[Suspect] = []
    for owner, lost in owners.items():
        if owner in living:
            found += [Suspect(one.run_id, one.epoch, one.lost, one.suspect) for one in lost if one.is_overdue]
        else:
            found += _regroup(lost)
    return found


def was_alone(group: str) -> bool:
    """Whether the last worker that the run of this group has lost had no other runs."""
    return group[1:2] == "a"


def is_joinable(group: str) -> bool:
    """Whether a worker with other runs may take the runs of this group; those of no group are not suspects."""
    return not group or group >= JOINABLE


def retry_group(run_id: str) -> str:
    """The group of a parked run that is tried again: it continues alone."""
    return _name(REPEATED, "t", [run_id])


def trial_seconds(lost: int, lease: float) -> float:
    """How long a suspect has to survive until it is cleared, though its step is not completed."""
    return lease * (1 << min(max(lost - 1, 0), DOUBLINGS))


def _regroup(lost: Sequence[LostLease]) -> Iterator[Suspect]:
    """The runs of a dead worker, in their new groups."""
    if len(lost) == 1:
        yield from _group(lost, "a")
        return
    groups: dict[tuple[str, bool], list[LostLease]] = {}
    for one in lost:
        groups.setdefault((one.suspect, one.lost > 0), []).append(one)
    for (group, _), members in groups.items():
        with_tool = [one for one in members if one.in_tool]
        without = [one for one in members if not one.in_tool]
        parts = [with_tool, without]
        if group and not (with_tool and without):
            middle = len(members) // 2
            parts = [members[:middle], members[middle:]]
        for part in parts:
            yield from _group(part, "t" if part and part[0].in_tool else "x")


def _group(members: Sequence[LostLease], kind: Kind) -> Iterator[Suspect]:
    """These runs as one group; they have lost equally many workers, or all of them more than one."""
    if not members:
        return
    level = REPEATED if members[0].lost else JOINABLE
    name = _name(level, kind, [members[0].owner, *(one.run_id for one in members)])
    for one in members:
        yield Suspect(one.run_id, one.epoch, one.lost + 1, name)


def _name(level: str, kind: Kind, parts: Iterable[str]) -> str:
    digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
    return f"{level}{kind}-{digest[:16]}"


# -- runs that no worker claims: their log is damaged, or they may have ended their workers; their events stay --------


def set_aside(store: Store, claim: Claim) -> None:
    """Set a claimed, damaged run aside: no worker claims it again. A cancelled run ends."""
    cancel = next((input for input in store.inputs([claim.run_id]) if input.kind == "cancel"), None)
    if cancel is not None:
        end_damaged(store, claim, cancel.body.decode("utf-8", "replace"))
    else:
        store.append([Batch(claim.run_id, claim.epoch, claim.seq, (), "damaged")], durable=True)


def end_damaged(store: Store, claim: Claim, why: str) -> bool:
    """End a claimed, damaged run, although its calls are unknown. False if another worker owns it by now."""
    inputs = [input.number for input in store.inputs([claim.run_id])]
    body = body_of(Done("cancelled", "", (), Usage(), why))
    [is_owner] = store.append([Batch(claim.run_id, claim.epoch, claim.seq, [body], "over", inputs)], durable=True)
    return is_owner


def reason_to_park(claim: Claim, limits: Limits | None) -> str:
    """Why a claimed run must not continue; empty if it may.

    It has lost too many workers in this step, and the last one had no other runs.
    """
    most = (limits or Limits()).takeovers
    if most is None or claim.lost <= most or not was_alone(claim.suspect):
        return ""
    return (
        f"{claim.lost} workers died or lost the run in one step, the last of them while it had no other runs: the run "
        "may be the cause"
    )


def park(store: Store, claim: Claim, why: str) -> bool:
    """Park a claimed run: no worker claims it until `retry`. False if another worker owns it by now."""
    batch = Batch(claim.run_id, claim.epoch, claim.seq, [body_of(Waiting(why=why))], "parked", progress="cleared")
    [is_owner] = store.append([batch], durable=True)
    return is_owner


# -- for a store in memory, which has no statements --------------------------------------------------------------------


def has_ended(row: RunRow, now: float, lease: float) -> bool:
    """Whether the lease of a run has ended, and nobody has noted that yet."""
    has_lease = row.state == "running" and row.lease_until != 0
    return has_lease and not now <= row.lease_until <= now + MAX_LEASES * lease


def is_open(row: RunRow, now: float, lease: float, agents: Sequence[str] | None) -> bool:
    """Whether a run can be claimed, or its lease has ended."""
    is_known = (agents is None or row.agent in agents) and row.version <= VERSION
    return is_claimable(row, now, agents) or (has_ended(row, now, lease) and is_known)


def swept(runs: Collection[tuple[RunRow, bool]], now: float, lease: float) -> list[RunRow]:
    """The new rows of runs whose workers have died, of all runs, with whether a tool of each is running."""
    ended = [(row, in_tool) for row, in_tool in runs if has_ended(row, now, lease)]
    leases = [
        LostLease(row.id, row.epoch, row.owner, row.suspect, row.lost, in_tool, row.lease_until < now - lease)
        for row, in_tool in ended
    ]
    rows = {row.id: row for row, _ in ended}
    owners = (
        {row.owner for row, _ in runs if row.id not in rows and row.state == "running" and row.lease_until}
        if rows
        else set()
    )
    return [
        replace(rows[one.run_id], lost=one.lost, suspect=one.group, lease_until=0.0)
        for one in suspects_of(leases, owners)
    ]


def living(row: RunRow, progress: Progress = "none") -> RunRow:
    """The row of a run whose owner writes: it has not died, so what was noted when its lease ended is taken back."""
    if not row.lease_until:
        row = replace(row, lost=max(row.lost - 1, 0), suspect="")
    if progress == "none":
        return row
    return replace(row, suspect="", lost=0 if progress == "step" else row.lost)


def next_rows(free: Sequence[RunRow], group: str | None) -> list[RunRow]:
    """The runs to claim, of those that may be claimed: see `Store.claim_next`."""
    if group == "":
        group = min((row.suspect for row in free if row.suspect), default=None)
    if group is None:
        return [row for row in free if is_joinable(row.suspect)]
    return [row for row in free if row.suspect == group]


def is_claimable(row: RunRow, now: float, agents: Sequence[str] | None, run_id: str | None = None) -> bool:
    """Whether a run has no owner and can continue; a damaged one if it is claimed by its id."""
    match row.state:
        case "ready":
            is_free = True
        case "running":
            is_free = not row.lease_until
        case "waiting":
            is_free = 0 < row.wake_at <= now
        case "damaged":
            is_free = run_id is not None
        case _:
            is_free = False
    is_wanted = (run_id is None or row.id == run_id) and (agents is None or row.agent in agents)
    return is_free and is_wanted and row.version <= VERSION

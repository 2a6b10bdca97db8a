"""The interface of a store of logs: its tables as structs, and its operations.

A store is blocking code without a thread of its own. The flusher calls `append` and `claim` from its thread, readers
call `read` from theirs.

| table | what it has |
|---|---|
| runs | one row per run: agent, thread, tenant, state, who owns it, until when, and the number of its last event |
| events | the events of each run, numbered from 1 without gaps |
| inputs | decisions, results, messages and cancels from any process, until the owner of the run has taken them |
| media | large images and files that events refer to, by hash |
| starts | the requests that started runs, so that the same request again joins its run |
| workers | the processes that drive runs, and when each was last seen |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec import Struct

from penstock.errors import PenstockError, UsageError
from penstock.log.starts.requests import StartRequest, Starts, StoredStart
from penstock.run.events import LogEvent

if TYPE_CHECKING:
    from penstock.log.retention.keep import Keep
    from penstock.log.retention.survey import Survey

VERSION = 2
"""The version of the events that this code knows. A worker does not claim a run of a later version: 2 are forks."""

MAX_LEASES = 10
"""A lease that ends later than this many of its lengths from now was given by a clock that was set back since: it has
ended. The length is that of the owner, in the row of the run: others may have opened the store with another lease."""

LEASE = 15.0
"""How many seconds a worker owns a run after it last wrote to its log, unless the store is opened with another."""

QUEUE = ""
"""Who watches this instead of the id of a run is called when a run may have become claimable."""

Row = tuple[int, float, bytes]
"""An event as it is stored: its number, its time and its body."""


class Committed(Struct, frozen=True, gc=False):
    """An event that this process has committed: its number, its time, its body, and how many bytes that has.

    `event` is what the body was made of, so that nobody here has to decode it; None if the decoded body may differ from
    it, as with the data of a tool.
    """

    seq: int
    at: float
    body: bytes
    size: int
    event: LogEvent | None


Watcher = Callable[[Sequence[Committed]], object]
"""Is called when a run may have new events; with these events, if they were committed here."""

RunPhase = Literal["ready", "running", "waiting", "over", "damaged", "parked"]
Progress = Literal["none", "cleared", "step"]
"""What a batch says about a suspect: nothing, that it is none any more, or also that it has completed a step."""
InputKind = Literal["decide", "provide", "say", "cancel"]


class StoreError(PenstockError):
    """The store of a log failed; `is_temporary` if the same operation may work later."""

    def __init__(self, message: str, *, is_temporary: bool = False) -> None:
        super().__init__(message)
        self.is_temporary = is_temporary


class DamagedRunError(StoreError):
    """The log of a run lacks events, or has some that cannot be read. Nobody continues the run until it is repaired."""


class RunExistsError(UsageError):
    """A run with this id exists, with another agent, other messages or another `meta`."""


def run_exists(run_id: str) -> RunExistsError:
    """The error for a run id that is already taken."""
    return RunExistsError(
        f"a run with the id {run_id!r} exists, with another agent, other messages or another meta; use another id"
    )


class UnknownRunError(UsageError):
    """There is no run with this id."""


def unknown_run(run_id: str) -> UnknownRunError:
    """The error for an unknown run id."""
    return UnknownRunError(f"there is no run with the id {run_id!r}")


def not_text(error: UnicodeEncodeError) -> UsageError:
    """The error for text that no store can keep."""
    return UsageError(f"{error.object!r:.60} has half of a character (a lone surrogate), which is not valid text")


class ParkedRunError(StoreError):
    """The run may have ended its workers: nobody continues it until it is retried."""


class LostRunError(PenstockError):
    """Another worker has taken the run over: this one must not continue it."""


class RunRow(Struct, frozen=True, kw_only=True):
    """The row of a run in a store.

    `state` is `ready` for any worker, `running` while a worker owns it, `waiting` for a decision or a result, `over`,
    `damaged` (its log could not be read, so it is claimed only by its id), or `parked` (it may have ended its workers,
    or nobody knows its model, and nobody claims it until it is retried). `epoch` counts the owners, `lease_until`
    is in seconds since 1970, `seq` the number of the last event. A run that waits can be claimed from `wake_at` on, if
    that is not 0: then a call that waits expires. `lost` counts the workers that died or were cut off in this step of
    the run. While the run may have been the cause, `suspect` names the runs that continue together with it.
    """

    id: str
    agent: str = ""
    thread: str = ""
    tenant: str = ""
    version: int = 1
    state: RunPhase = "ready"
    epoch: int = 0
    owner: str = ""
    lease_until: float = 0.0
    seq: int = 0
    created: float = 0.0
    updated: float = 0.0
    wake_at: float = 0.0
    lost: int = 0
    suspect: str = ""


FIELDS = ", ".join(RunRow.__struct_fields__)
"""The columns of a `RunRow`, as SQL."""


def row_of(values: Sequence[Any]) -> RunRow:
    """The row with the values of `FIELDS`."""
    return RunRow(**dict(zip(RunRow.__struct_fields__, values, strict=True)))


def check_version(row: RunRow) -> None:
    """Raise a `StoreError` if this version cannot continue a run."""
    if row.version > VERSION:
        raise StoreError(f"the run {row.id} was started by a later version of penstock: upgrade this one")


class Claim(Struct, frozen=True):
    """A run that a worker owns from now on; `seq` is the number of its last event, the `Taken` of this claim.

    `deadline` is when the lease ends, by the monotonic clock, counted from before the store was asked: a process that
    was frozen since then must not start anything. `previous_state` is the state that the run had: `running` if its last
    owner has lost it. `lost` and `suspect` are those of the row, and `in_tool` says whether a tool was running when the
    last owner was lost. When this many steps have begun, one was completed: `steps`.
    """

    run_id: str
    agent: str
    epoch: int
    seq: int
    deadline: float
    previous_state: RunPhase = "ready"
    lost: int = 0
    suspect: str = ""
    in_tool: bool = False
    steps: int = 1
    tenant: str = ""


def first_claim(store: Store, row: RunRow, asked: float) -> Claim:
    """The claim of a run that was created with an owner; the store was asked at this time of the monotonic clock."""
    return Claim(row.id, row.agent, 1, 2, asked + store.lease, tenant=row.tenant)


class QueuedRuns(Struct, frozen=True):
    """The runs of one agent that are ready: how many, and when the oldest was created."""

    count: int
    oldest: float


class Batch(Struct, frozen=True, gc=False):
    """Events to append to a run: whole units, numbered from `seq` + 1, with the state that the run has afterwards.

    `inputs` are the numbers of those that the events come from. Those that were `refused` are deleted, so that a valid
    input with the same key still counts. A run that waits from now on can be claimed after `wake_in` seconds. A store
    may leave the lease as it is if the batch does not `renew` it, where that is cheaper. `units` is how many there are.
    `events` are for readers in this process, see `Committed`; no store looks at them. `in_tool` says whether a tool of
    the run is running afterwards; None if that has not changed. `progress` is that of a suspect.
    """

    run_id: str
    epoch: int
    seq: int
    bodies: Sequence[bytes]
    state: RunPhase = "running"
    inputs: Sequence[int] = ()
    wake_in: float | None = None
    refused: Sequence[int] = ()
    renew: bool = True
    units: int = 1
    events: Sequence[LogEvent | None] = ()
    in_tool: bool | None = None
    progress: Progress = "none"


class Cutoff(Struct, frozen=True):
    """Finished runs that ended before this time may be deleted, in seconds since 1970; some tenants have their own.

    A run of a conversation (the same tenant and thread) may be deleted only if all of its runs may.
    """

    before: float
    tenants: Mapping[str, float] = {}

    @property
    def latest(self) -> float:
        return max([self.before, *self.tenants.values()])


class Input(Struct, frozen=True):
    """A decision, a result, a message or a cancel from any process, which the owner of the run takes.

    Of several inputs with the same kind and `key` only the first counts. The store sets the `number` and the time.
    """

    run_id: str
    kind: InputKind
    key: str
    body: bytes = b""
    number: int = 0
    at: float = 0.0


class Store(Protocol):
    """The operations of a store. All of them raise a `StoreError` if the store fails, and then change nothing."""

    lease: float
    poll: float  # the seconds between two checks for new events, in addition to the calls of `watch`
    flusher: object  # the flusher of this process, once there is one
    keep: Keep | None  # how long finished runs are kept, if workers and servers delete them

    @property
    def starts(self) -> Starts:
        """The requests that started runs."""
        ...

    @property
    def survey(self) -> Survey:
        """How many runs there are in each state, which processes drive them, and the size of the log."""
        ...

    def create(self, row: RunRow, start: bytes, *, owner: str = "", request: StartRequest | None = None) -> bool:
        """Add a run with its first event. False if there is one with this id and an equal start.

        Raises a `RunExistsError` if its start differs, and a `KeyTakenError` if another run has the key of the
        `request`, which is added with the run. With an `owner`, it is claimed at once, as its `first_claim`.
        """
        ...

    def claim(self, owner: str, *, run_id: str | None = None, agents: Sequence[str] | None = None) -> Claim | None:
        """Claim a run that is ready, whose lease expired, or that has an expired call, and log the claim.

        With `run_id` only that run, also if it is damaged or a suspect; with `agents` only runs of these agents. None
        if there is none. A lease counts as expired when all leases of its owner are.
        """
        ...

    def claim_next(
        self, owner: str, *, agents: Sequence[str] | None = None, limit: int = 1, group: str | None = None
    ) -> list[Claim]:
        """Claim the next runs, at most `limit`. Runs that had an owner before are claimed first, then the oldest.

        With a `group` of suspects only its runs, with an empty one the runs of the first group, if there is one. Else
        no suspects but those that have lost one worker only.
        """
        ...

    def suspects(self, *, agents: Sequence[str] | None = None, limit: int = 1000) -> list[RunRow]:
        """The suspects for a worker without other runs, group by group, in the order in which those are claimed."""
        ...

    def acquit(self, owned: Sequence[tuple[str, int]]) -> None:
        """Note that runs, by id and epoch, are no suspects any more. The workers that they have lost still count."""
        ...

    def retry(self, run_id: str) -> bool:
        """Make a parked run ready, as a suspect that continues alone; False if it is not parked."""
        ...

    def claimable(
        self, *, agents: Sequence[str] | None = None, after: RunRow | None = None, limit: int = 1000
    ) -> Sequence[RunRow]:
        """The runs that can be claimed, the oldest first; with `after`, those that follow it."""
        ...

    def queued(self) -> dict[str, QueuedRuns]:
        """The runs that are ready, by the name of their agent."""
        ...

    def append(self, batches: Sequence[Batch], *, durable: bool) -> list[bool]:
        """Append units to their runs, and renew leases; for each batch, False if another worker owns the run.

        A `durable` append survives the loss of power, any other the end of the process. A run has one batch.
        """
        ...

    def renew(self, owned: Sequence[tuple[str, int]]) -> list[bool]:
        """Renew the leases of runs, by id and epoch; for each, False if another worker owns the run."""
        ...

    def read(self, run_id: str, after: int = 0, limit: int = 1000) -> list[Row]:
        """The events of a run after a number: their numbers, times and bodies."""
        ...

    def wait(self, run_id: str, after: int, seconds: float) -> None:
        """Wait until a run has an event after a number, at most this many seconds.

        An `UnknownRunError` if the run does not exist or was deleted.
        """
        ...

    def watch(self, run_id: str, callback: Watcher) -> AbstractContextManager[None]:
        """Call back, from any thread, when a run may have new events: a hint, which may fail to come.

        With `QUEUE`, when a run may have become claimable. It has the events if they were written here, in their order.
        """
        ...

    def put(self, input: Input) -> bool:
        """Add an input; False if it was there already, or the run has finished. A waiting run is ready afterwards.

        A damaged or parked run is ready after a cancel, so that a worker ends it. An `UnknownRunError` if there is no
        such run.
        """
        ...

    def inputs(self, run_ids: Sequence[str]) -> list[Input]:
        """The inputs of these runs that were not taken yet, in order."""
        ...

    def find(self, run_id: str) -> RunRow | None:
        """The row of a run."""
        ...

    def list(
        self, *, state: RunPhase | None = None, agent: str | None = None, thread: str | None = None,
        tenant: str | None = None, prefix: str = "", limit: int = 100,
    ) -> list[RunRow]:  # fmt: skip
        """The rows of runs with these properties, whose ids begin with `prefix`, the newest first."""
        ...

    def prunable(
        self, cutoff: Cutoff, *, after: RunRow | None = None, limit: int = 1000
    ) -> tuple[Sequence[RunRow], RunRow | None]:
        """Those of the next `limit` finished runs that may be deleted, and where the next page begins, if there is one.

        Runs that ended first come first. A page may be empty."""
        ...

    def delete(self, run_ids: Sequence[str], cutoff: Cutoff) -> int:
        """Delete those of these runs that may be deleted, with their events and media; returns how many."""
        ...

    def prune(self, *, before: float, limit: int = 1000) -> int:
        """Delete those of the first `limit` finished runs that ended before a time, as their conversations did."""
        ...

    def add(
        self, row: RunRow, events: Sequence[Row], inputs: Sequence[Input] = (), starts: Sequence[StoredStart] = ()
    ) -> bool:
        """Add a whole run, as of another store; False if this one has it. A `RunExistsError` if it differs.

        A `KeyTakenError` if another run has a key of the requests that started it.
        """
        ...

    def close(self) -> None:
        """Release files and connections. The store cannot be used any more."""
        ...

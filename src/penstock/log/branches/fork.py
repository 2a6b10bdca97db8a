"""Forks of runs: a new run with the events of another one until any of them, which continues differently.

| at the event, a call | in the fork |
|---|---|
| has a result | has it too, or the one that the fork is given |
| is running | has the result that it got in the parent; else it was interrupted, unless it only reads |
| waits for a person, or for its result | waits |
| has not started | starts; if the parent has made it, it gets the result from there |
| is in a response that had not ended | is asked for again, with the response |

The parent is only read.
"""

from __future__ import annotations

import hashlib
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from penstock.errors import UsageError
from penstock.jsontext.nearest import nearest_json
from penstock.log.bodies import body_of, event_of
from penstock.log.branches.cut import had_effect_after, last_step_start, whole_until
from penstock.log.branches.past_calls import ParentCalls
from penstock.log.inputs import decision_input
from penstock.log.position import parse_position, past_of
from penstock.log.start import expect_line
from penstock.log.starts.requests import StoredStart
from penstock.log.store import (
    VERSION,
    DamagedRunError,
    Input,
    Row,
    RunExistsError,
    RunRow,
    Store,
    UnknownRunError,
    check_version,
    run_exists,
)
from penstock.log.take_up import PAGE, fold, hole, read_log
from penstock.messages import Message, ToolResult
from penstock.results import as_outcome, error_outcome, failure
from penstock.run.calls.execution import Execution
from penstock.run.events import (
    Done,
    InnerEvent,
    LogEvent,
    Nested,
    Said,
    StepEnd,
    StepStart,
    Taken,
    ToolEnd,
    ToolReturned,
    innermost,
)
from penstock.run.forked import Forked
from penstock.run.input_checks import expect_user
from penstock.run.machine import Run
from penstock.sentences import interrupted

Path = tuple[str, ...]


class ForkRequest(Struct, frozen=True, kw_only=True):
    """What is asked of a fork: where it begins, and what is different in it.

    `results` are those of calls, by their ids, instead of those that they had. `say` is a user message, `decisions` are
    those on calls that wait for approval. With `repeats_effects`, calls that the parent has made are made again.
    """

    run_id: str
    at: int | str
    model: str = ""
    results: Mapping[str, Any] = {}
    say: Message | None = None
    decisions: Mapping[str, bool] = {}
    repeats_effects: bool = False

    @property
    def digest(self) -> str:
        """Text that is equal for equal requests."""
        fields = nearest_json({name: getattr(self, name) for name in self.__struct_fields__ if name != "say"})
        message = b"" if self.say is None else msgspec.json.encode(self.say)
        return hashlib.sha256(msgspec.json.encode(fields, order="sorted") + message).hexdigest()[:32]


def fork_run(
    store: Store, request: ForkRequest, *, fork_id: str | None = None, thread: str | None = None,
    starts: Sequence[StoredStart] = (),
) -> RunRow:  # fmt: skip
    """Add a fork to the store; returns its row. The same request with the same id is the fork that exists.

    Without a `thread`, the fork of a run in one begins its own, which has the id of the fork.
    """
    for name, text in {"fork_id": fork_id or "", "thread": thread or "", "model": request.model}.items():
        expect_line(name, text)
    if fork_id is not None and (known := _known_fork(store, fork_id, request)) is not None:
        return known
    parent = _Parent(store, request)
    fork = _Fork(parent, request)
    id = fork_id or uuid.uuid4().hex
    now = time.time()
    rows = fork.rows(now)
    row = RunRow(
        id=id, agent=parent.row.agent, thread=_thread(parent.row, id) if thread is None else thread,
        tenant=parent.row.tenant, version=VERSION, state="over" if fork.is_over else "ready",
        epoch=max((event.epoch for event in fork.events if isinstance(event, Taken)), default=0), seq=len(rows),
        created=now, updated=now,
    )  # fmt: skip
    try:
        store.add(row, rows, fork.inputs(id, now), [msgspec.structs.replace(each, run_id=id) for each in starts])
    except RunExistsError:
        if (known := _known_fork(store, id, request)) is None:  # another process has just made it
            raise
        return known
    return row


def fork_of(store: Store, run_id: str) -> Forked | None:
    """Where a run was forked; None if it was not."""
    forks = [event for _, _, event in read_log(store, run_id) if isinstance(event, Forked)]
    return forks[-1] if forks else None


def _known_fork(store: Store, fork_id: str, request: ForkRequest) -> RunRow | None:
    row = store.find(fork_id)
    if row is not None and ((forked := fork_of(store, fork_id)) is None or forked.request != request.digest):
        raise run_exists(fork_id)
    return row


def _thread(parent: RunRow, id: str) -> str:
    return id if parent.thread else ""


class _Parent:
    """The run that is forked: its row, its events as they are stored, and what its tools did."""

    def __init__(self, store: Store, request: ForkRequest) -> None:
        row = store.find(request.run_id)
        if row is None:
            raise UnknownRunError(
                f"there is no run with the id {request.run_id!r}; if it was archived or exported, import it first"
            )
        check_version(row)
        self.row = row
        self.number = _number(request, row)
        self.rows: list[Row] = []
        self.events: list[LogEvent] = []
        self.calls = ParentCalls()
        try:
            self._read(store)
        except DamagedRunError as error:
            if len(self.events) < self.number:
                raise
            if not request.repeats_effects:
                raise DamagedRunError(
                    f"{error}. It is after the event {self.number}, so that it is not known which effects the run had "
                    "since then: a fork that may repeat them can be made"
                ) from error
        self._check_past(request)

    def _read(self, store: Store) -> None:
        while len(self.events) < self.row.seq:
            page = store.read(self.row.id, len(self.events), min(PAGE, self.row.seq - len(self.events)))
            if not page:
                raise hole(self.row.id, len(self.events) + 1)
            for seq, at, body in page:
                if seq != len(self.events) + 1:
                    raise hole(self.row.id, len(self.events) + 1)
                event = event_of(self.row.id, seq, body)
                self.rows.append((seq, at, body))
                self.events.append(event)
                self.calls.add(seq, event)

    def _check_past(self, request: ForkRequest) -> None:
        """Raise a `UsageError` for the position of a reader of another past."""
        past = parse_position(request.at).past
        if past is not None and past != past_of(self.rows[self.number - 1][1]):
            raise UsageError(f"the log has lost the event {request.at} of the run {self.row.id}: read the run again")


class _Fork:
    """The events of a fork: those of its parent until an event, and those that follow from the request."""

    def __init__(self, parent: _Parent, request: ForkRequest) -> None:
        self._parent = parent
        self._request = request
        self._replaced: dict[int, LogEvent] = {}  # by their places
        self.end: LogEvent | None = None
        self.events = self._history()
        self.run = fold(parent.row.id, self.events, {})
        if self.run.state.is_over:
            self.end = self.events.pop()
        self.added: list[LogEvent] = [*self._given_results(), *self._interrupted()]
        self._check_decisions()

    @property
    def is_over(self) -> bool:
        """Whether it has ended with the response at which it was forked."""
        return self.end is not None

    def rows(self, now: float) -> list[Row]:
        """Its events as they are stored."""
        request = self._request
        rows = [
            (seq, at, body_of(self._replaced[place]) if place in self._replaced else body)
            for place, (seq, at, body) in enumerate(self._parent.rows[: len(self.events)])
        ]
        past = () if request.repeats_effects else self._parent.calls.after(len(self.events), [*request.results])
        forked = Forked(self._parent.row.id, self._parent.number, request.model, past, request.digest)
        message = [] if request.say is None else [Said(request.say)]
        events = [*self.added, *message, forked, *([] if self.end is None else [self.end])]
        return [*rows, *((len(rows) + index, now, body_of(event)) for index, event in enumerate(events, 1))]

    def inputs(self, id: str, now: float) -> list[Input]:
        """The decisions for it."""
        made = (decision_input(id, call_id, approved) for call_id, approved in self._request.decisions.items())
        return [msgspec.structs.replace(input, at=now) for input in made]

    def _history(self) -> list[LogEvent]:
        """The events that it has from its parent."""
        events = self._parent.events
        taken = events[: whole_until(events, self._parent.number)]
        if (say := self._request.say) is None:
            return taken
        expect_user(say)
        if isinstance(taken[-1], Done):
            return taken[:-1]
        if fold(self._parent.row.id, taken, {}).state.phase == "answer":
            place = last_step_start(taken)
            if not had_effect_after(taken, place):  # so its request is sent again: with the message
                return taken[:place]
        return taken

    def _given_results(self) -> Iterator[LogEvent]:
        """The ends of open calls for which there is a result. Those that the history has are replaced."""
        for call_id, value in self._request.results.items():
            if self.is_over:
                raise UsageError(f"the run has ended at event {self._parent.number}: no call of it needs a result")
            if (place := self._ended(call_id)) is None:
                yield from self._ended_now(call_id, value)
                continue
            path, end = _path(self.events[place]), innermost(self.events[place])
            assert isinstance(end, ToolEnd)
            if any(run.state.phase == "answer" for member, run in _members(self.run) if member == path):
                raise UsageError(self._is_growing(call_id, path))  # a tool that has started early
            self._replaced[place] = _wrap(path, _end(end.key, end.call_id, end.name, value))

    def _ended(self, call_id: str) -> int | None:
        """The place of the end of a call, whose result the model has not read yet; None if it has not ended."""
        for place in reversed(range(len(self.events))):
            event, end = self.events[place], innermost(self.events[place])
            if not isinstance(end, ToolEnd) or end.call_id != call_id or end.ending == "discarded":
                continue
            for later in range(place, len(self.events)):
                step = innermost(self.events[later])
                if isinstance(step, StepStart) and _path(self.events[later]) == _path(event):
                    raise UsageError(
                        f"the model has read the result of {call_id!r} before event {self._parent.number}: "
                        f"fork at event {later}, or an earlier one"
                    )
            return place
        return None

    def _ended_now(self, call_id: str, value: Any) -> Iterator[LogEvent]:
        for path, run in _members(self.run):
            execution = next((each for each in run.state.executions.table if each.call_id == call_id), None)
            if execution is None:
                continue
            if run.state.phase == "answer":
                raise UsageError(self._is_growing(call_id, path))
            if (inner := run.inner.find(execution.key)) is not None:
                yield _wrap(path, inner.ending)
            yield _wrap(path, _end(execution.key, call_id, execution.name, value))
            return
        raise UsageError(f"the run has no call {call_id!r} at event {self._parent.number}")

    def _is_growing(self, call_id: str, path: Path) -> str:
        after = self._parent.number
        ends = (
            place
            for place, event in enumerate(self._parent.events[after:], after + 1)
            if isinstance(innermost(event), StepEnd) and _path(event) == path
        )
        advice = f": fork at event {place}, or a later one" if (place := next(ends, 0)) else ""
        return f"the response with the call {call_id!r} has not ended at event {after}, and is asked for again{advice}"

    def _interrupted(self) -> Iterator[LogEvent]:
        """The ends of calls that were running: as in the parent, or with a result that says that nobody knows."""
        for path, run in _members(self.run):
            for execution in run.state.executions.table:
                is_open = execution.state == "running" and execution.is_confirmed
                if not is_open or execution.call_id in self._request.results or run.inner.find(execution.key):
                    continue
                if (end := self._end_in_parent(execution, run)) is not None:
                    yield _wrap(path, end)

    def _end_in_parent(self, execution: Execution, run: Run) -> ToolEnd | ToolReturned | None:
        known = self._parent.calls.find(execution.call_id, execution.key)
        if known is None or (not known.has_effect and (known.end is None or run.state.phase == "answer")):
            return None  # it runs again
        if (event := known.end or known.returned) is not None:
            return event
        if self._request.repeats_effects:
            return None
        outcome = error_outcome(interrupted(may_have_effect=True))
        result = ToolResult(execution.call_id, execution.name, outcome.content, is_error=True)
        return ToolEnd(execution.key, result, "cancelled")

    def _check_decisions(self) -> None:
        waiting = {request.call_id for request in self.run.waiting if request.kind == "approval"}
        for call_id in self._request.decisions:
            if call_id not in waiting or self.is_over:
                which = f"; those that do: {', '.join(sorted(waiting))}" if waiting and not self.is_over else ""
                raise UsageError(
                    f"the call {call_id!r} does not wait for a decision at event {self._parent.number}{which}"
                )


def _number(request: ForkRequest, row: RunRow) -> int:
    """The number of the event at which a run is forked."""
    try:
        number = parse_position(request.at)
    except UsageError:
        raise UsageError(f"at must be the number of an event, or a position, not {request.at!r:.60}") from None
    if not 1 <= number <= row.seq:
        raise UsageError(f"the run {row.id} has no event {int(number)}: it has the events 1 to {row.seq}")
    return int(number)


def _members(run: Run, path: Path = ()) -> Iterator[tuple[Path, Run]]:
    """A run and its open inner runs, with the ids of the calls around each."""
    yield path, run
    for inner in run.inner:
        yield from _members(inner.run, (*path, inner.call_id))


def _end(key: str, call_id: str, name: str, value: Any) -> ToolEnd:
    """The end of a call with a result that the fork was given; an exception is a failure."""
    outcome = failure(value) if isinstance(value, Exception) else as_outcome(value)
    result = ToolResult(call_id, name, outcome.content, outcome.is_error, outcome.state)
    return ToolEnd(key, result, "failed" if outcome.is_error else "done", nearest_json(outcome.data))


def _path(event: LogEvent) -> Path:
    return event.path if isinstance(event, Nested) else ()


def _wrap(path: Path, event: Nested | InnerEvent) -> LogEvent:
    """An event of an inner run, for the log of the run around it."""
    if isinstance(event, Nested):
        return Nested((*path, *event.path), event.event)
    return Nested(path, event) if path else event

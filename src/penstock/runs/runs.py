"""Runs on a log: any process starts, follows and steers them; workers drive them."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, get_args

from penstock.agent.agent import Agent
from penstock.agent.calls.step_hooks import named_model
from penstock.agent.coroutines import run_coroutine
from penstock.agent.pricing import expect_prices
from penstock.errors import UsageError
from penstock.history.read import as_messages
from penstock.log.bodies import body_of
from penstock.log.branches.difference import RunDifference, difference
from penstock.log.branches.fork import ForkRequest, fork_run
from penstock.log.follow import afollow, follow
from penstock.log.follower import POLL, new_owner
from penstock.log.inputs import cancel_input, decision_input, message_input, put_input, result_input
from penstock.log.position import Position
from penstock.log.retention.survey import RunCounts, WorkerRow
from penstock.log.start import expect_store, new_start
from penstock.log.store import (
    Claim,
    RunPhase,
    RunRow,
    Store,
    check_version,
    unknown_run,
)
from penstock.log.store_retries import awith_retries, with_retries
from penstock.log.take_up import PAGE, read_run
from penstock.messages import Message
from penstock.run.events import LogEvent
from penstock.runs.bulk import CANCELLABLE, RETRIABLE, RunFilter, retry_run
from penstock.runs.client_tools import with_declarations
from penstock.runs.driving import Driving, WorkCounts
from penstock.runs.sign_of_life import beat_forever
from penstock.runs.sweeper import sweep_forever
from penstock.runs.worker import Unclaimed, Worker, claim_runs


class Runs:
    """The runs of some agents on one store.

        runs = Runs(penstock.log.open("runs.db"), {"support": agent})
        run_id = runs.start("support", "Where is my parcel?")
        for number, event in runs.follow(run_id): ...

    Runs are driven by a worker (`work`, or `penstock worker`), or by a job engine that calls `drive`. `deps` is called
    with the `meta` of a run and returns what its tools get as `Context.deps`. `on_waiting` is called with the id of a
    run that starts to wait for approvals or results. Both may be async functions. Methods that begin with `a` are for
    async code: the others use the store at once, which blocks an event loop. A worker counts the runs that nobody
    claims in `unclaimed`, and those that it has driven in `counts`.
    """

    def __init__(
        self,
        store: Store,
        agents: Mapping[str, Agent[Any, Any]],
        *,
        deps: Callable[[Any], Any] | None = None,
        on_waiting: Callable[[str], Any] | None = None,
    ) -> None:
        expect_store(store)
        named: Any = agents
        if not isinstance(named, Mapping) or not all(isinstance(agent, Agent) for agent in named.values()):
            raise UsageError(f"agents must be a dict of agents by their names, not {named!r:.80}")
        self._store = store
        self._agents = dict(agents)
        self._deps = deps
        self._owner = new_owner()
        self._driving = Driving(store, self._agents, deps, on_waiting)
        self._worker: Worker | None = None
        self.unclaimed = Unclaimed()

    # -- from any process ----------------------------------------------------------------------------------------------

    def start(
        self, agent: str, prompt: Any = None, messages: Any = None, *, run_id: str | None = None, thread: str = "",
        tenant: str = "", meta: Any = None, client_tools: Iterable[Mapping[str, Any]] = (),
    ) -> str:  # fmt: skip
        """Start a run; returns its id. The same id with the same start is the run that exists.

        `client_tools` are declarations of tools that the client of the run has: their calls wait for `provide`.
        """
        first = self._driving.agent(agent).first_messages(prompt, messages)
        row, start = new_start(agent, first, run_id, thread, tenant, with_declarations(meta, client_tools))
        with_retries(partial(self._store.create, row, body_of(start)))
        return row.id

    def follow(self, run_id: str, after: int | str = 0) -> Iterator[tuple[Position, LogEvent]]:
        """The events of a run after a position, with their positions, as they come; ends with `Done`.

        A position is the number of an event, or its `token`. If the log no longer has what was read until there, a
        `Reset` comes, and then all events.
        """
        return follow(self._store, run_id, after)

    def afollow(self, run_id: str, after: int | str = 0) -> AsyncIterator[tuple[Position, LogEvent]]:
        """The events of a run after a position, as they come: see `follow`."""
        return afollow(self._store, run_id, after)

    def decide(
        self, run_id: str, call_id: str, approved: bool, arguments: dict[str, Any] | None = None, reason: str = ""
    ) -> bool:
        """Approve or decline a call; the first decision counts. False if there was one, or the run is over."""
        return put_input(self._store, decision_input(run_id, call_id, approved, arguments, reason))

    def provide(self, run_id: str, call_id: str, value: Any, is_error: bool = False) -> bool:
        """Give the result of a deferred call; the first one counts. False if there was one, or the run is over."""
        return put_input(self._store, result_input(run_id, call_id, value, is_error))

    def say(self, run_id: str, message: Any, *, key: str | None = None) -> bool:
        """Add a user message; the model gets it with its next request.

        With a `key`, it counts once. A `UsageError` if the run has finished. A message that arrives while the run ends
        may not be read any more.
        """
        message = one_message(message)
        if with_retries(partial(self.find, run_id)).state == "over":
            raise UsageError("the run is over: start another one, with this message as its prompt")
        return put_input(self._store, message_input(run_id, message, key))

    def cancel(self, run_id: str, why: str = "the run was cancelled") -> bool:
        """End the run. False if it was cancelled before, or is over."""
        return put_input(self._store, cancel_input(run_id, why))

    def retry(self, run_id: str) -> bool:
        """Let a worker continue a parked run, which may have ended its workers; False if it is not parked.

        It continues alone, and is parked again if it ends that worker too.
        """
        return with_retries(partial(self._store.retry, run_id))

    def cancel_all(
        self, *, state: RunPhase | None = None, agent: str | None = None, tenant: str | None = None,
        older_than: float | None = None, why: str = "the run was cancelled", dry_run: bool = False,
    ) -> list[str]:  # fmt: skip
        """End the unfinished runs with these properties; returns their ids, with `dry_run` without ending them.

        `older_than` is in seconds since the last event of a run. Without any property these are all unfinished runs.
        """
        rows = self._chosen(CANCELLABLE, state=state, agent=agent, tenant=tenant, older_than=older_than)
        return [row.id for row in rows if dry_run or self.cancel(row.id, why)]

    def retry_all(
        self, *, state: RunPhase | None = None, agent: str | None = None, tenant: str | None = None,
        older_than: float | None = None, dry_run: bool = False,
    ) -> list[str]:  # fmt: skip
        """Let workers continue parked runs, and damaged runs that can be read again: see `cancel_all`."""
        rows = self._chosen(RETRIABLE, state=state, agent=agent, tenant=tenant, older_than=older_than)
        return [row.id for row in rows if dry_run or with_retries(partial(retry_run, self._store, row))]

    def workers(self) -> list[WorkerRow]:
        """The processes that drive runs: workers and servers, those that are alive first."""
        return with_retries(self._store.survey.workers)

    def stats(self) -> RunCounts:
        """How many unfinished runs the log has, and how long its queue is."""
        return with_retries(self._store.survey.counts)

    async def acancel_all(self, **options: Any) -> list[str]:
        """End runs: see `cancel_all`, which has the same options."""
        return await asyncio.to_thread(partial(self.cancel_all, **options))

    async def aretry_all(self, **options: Any) -> list[str]:
        """Let workers continue runs: see `retry_all`, which has the same options."""
        return await asyncio.to_thread(partial(self.retry_all, **options))

    async def adecide(
        self, run_id: str, call_id: str, approved: bool, arguments: dict[str, Any] | None = None, reason: str = ""
    ) -> bool:
        """Approve or decline a call; the first decision counts. False if there was one, or the run is over."""
        return await asyncio.to_thread(self.decide, run_id, call_id, approved, arguments, reason)

    async def aprovide(self, run_id: str, call_id: str, value: Any, is_error: bool = False) -> bool:
        """Give the result of a deferred call; the first one counts. False if there was one, or the run is over."""
        return await asyncio.to_thread(self.provide, run_id, call_id, value, is_error)

    async def asay(self, run_id: str, message: Any, *, key: str | None = None) -> bool:
        """Add a user message: see `say`."""
        return await asyncio.to_thread(self.say, run_id, message, key=key)

    async def acancel(self, run_id: str, why: str = "the run was cancelled") -> bool:
        """End the run. False if it was cancelled before, or is over."""
        return await asyncio.to_thread(self.cancel, run_id, why)

    async def aretry(self, run_id: str) -> bool:
        """Let a worker continue a parked run: see `retry`."""
        return await asyncio.to_thread(self.retry, run_id)

    def fork(
        self, run_id: str, at: int | str, *, model: str = "", results: Mapping[str, Any] | None = None, say: Any = None,
        decide: Mapping[str, bool] | None = None, repeat_effects: bool = False, fork_id: str | None = None,
        thread: str | None = None,
    ) -> str:  # fmt: skip
        """Start a run with the events of another one until the event `at`; returns its id. The other run is untouched.

        It continues with another `model`, other `results` of calls by their ids (an exception is a failure), another
        message (`say`), or decisions on calls that wait. Calls that the other run has made have their results from
        there, and their tools do not run again, unless it may `repeat_effects`.
        """
        request = ForkRequest(
            run_id=run_id, at=at, model=model, results=results or {}, say=None if say is None else one_message(say),
            decisions=decide or {}, repeats_effects=repeat_effects,
        )  # fmt: skip
        parent = with_retries(partial(self._store.find, run_id)) if model else None
        if parent is not None and (agent := self._agents.get(parent.agent)) is not None:
            named_model(model, agent.config)
        return with_retries(partial(fork_run, self._store, request, fork_id=fork_id, thread=thread)).id

    async def afork(self, run_id: str, at: int | str, **options: Any) -> str:
        """Start a run with the events of another one: see `fork`, which has the same options."""
        return await asyncio.to_thread(partial(self.fork, run_id, at, **options))

    def diff(self, first: str, second: str) -> RunDifference:
        """The first events where two runs part: see `RunDifference`."""
        return with_retries(partial(difference, self._store, first, second))

    def find(self, run_id: str) -> RunRow:
        """The row of a run in the store."""
        row = self._store.find(run_id)
        if row is None:
            raise unknown_run(run_id)
        return row

    def list(
        self, *, state: RunPhase | None = None, agent: str | None = None, thread: str | None = None,
        tenant: str | None = None, limit: int = 100,
    ) -> list[RunRow]:  # fmt: skip
        """The runs with these properties, the newest first."""
        if state is not None and state not in (states := get_args(RunPhase)):
            raise UsageError(f"unknown state {state!r} of a run; use one of: {', '.join(states)}")
        return self._store.list(state=state, agent=agent, thread=thread, tenant=tenant, limit=limit)

    def claimable(self, limit: int | None = None) -> builtins.list[str]:
        """The ids of runs that can continue and have no owner, for a job engine.

        All of them, or the first `limit` by the time of their last change.
        """
        rows: builtins.list[RunRow] = []
        while limit is None or len(rows) < limit:
            size = PAGE if limit is None else min(PAGE, limit - len(rows))
            page = self._store.claimable(agents=[*self._agents], after=rows[-1] if rows else None, limit=size)
            rows += page
            if len(page) < size:
                break
        return [row.id for row in rows]

    @property
    def lease(self) -> float:
        """How many seconds after its last sign of life a worker loses its runs."""
        return self._store.lease

    # -- of a worker ---------------------------------------------------------------------------------------------------

    async def adrive(self, run_id: str) -> RunRow:
        """Drive a run until it finishes, waits for a decision or a result, or is parked; returns its row in the store.

        While another process owns the run, this waits, and takes the run over when its owner dies. So a job engine
        may call it at any time, more than once, in several processes.
        """
        row = await awith_retries(lambda: self.find(run_id))
        self._check(self._driving.agent(row.agent))
        check_version(row)
        if row.state == "damaged":  # it may have been repaired
            await awith_retries(partial(read_run, self._store, row))
        while True:
            claims: Sequence[Claim] = ()
            if self._driving.quarantine.admits(row):
                claims = await claim_runs(self._store, partial(self._claim_one, run_id))
            for claim in claims:
                await self._go_on(claim)
            row = await awith_retries(lambda: self.find(run_id))
            if row.state in ("waiting", "over", "parked"):
                return row
            if not claims:
                await asyncio.sleep(POLL)

    def drive(self, run_id: str) -> RunRow:
        """Drive a run until it finishes or waits for a decision or a result: see `adrive`."""
        return run_coroutine(self.adrive(run_id), "runs.drive()", "await runs.adrive()")

    async def awork(self, *, parallel: int = 100, poll: float = 0.5, announced: bool = True) -> None:
        """Drive runs, this many at once, until the task is cancelled. Runs that are under way are left to others.

        It looks for runs every `poll` seconds, and when one is announced, unless that is switched off: who drives the
        runs that it starts itself, as a server does, would find its own.
        """
        self._check(*self._agents.values())
        agents = [*self._agents]
        take = partial(self._driving.quarantine.take, self._owner, agents)
        worker = self._worker = Worker(self._store, take, self._go_on, self._owner)
        worker.unclaimed = self.unclaimed
        alive = WorkerRow(owner=self._owner, kind="worker" if announced else "serve", agents=agents)
        beside = [
            asyncio.create_task(each)
            for each in (worker.watch_queue(agents), sweep_forever(self._store), beat_forever(self._store, alive))
        ]
        try:
            await worker.work(parallel, poll, announced=announced, driven=lambda: len(self.driven))
        finally:
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)

    def stop_claiming(self) -> None:
        """Let `awork` claim no more runs: those that are under way continue."""
        if self._worker is not None:
            self._worker.is_draining = True

    @property
    def driven(self) -> dict[str, str]:
        """The runs that this process drives, each with its tenant."""
        return self._driving.quarantine.tenants

    @property
    def owner(self) -> str:
        """The name under which this process owns runs."""
        return self._owner

    @property
    def counts(self) -> WorkCounts:
        """What this process has done with runs since it started."""
        return self._driving.counts

    def work(self, *, parallel: int = 100, poll: float = 0.5) -> None:
        """Drive runs, this many at once, until Ctrl-C: see `awork`."""
        run_coroutine(self.awork(parallel=parallel, poll=poll), "runs.work()", "await runs.awork()")

    # -- inside --------------------------------------------------------------------------------------------------------

    def _check(self, *agents: Agent[Any, Any]) -> None:
        """Raise a `UsageError` for an agent whose tools need `deps` that no function makes, or whose limit of cost
        needs a price that is not known."""
        for agent in agents:
            expect_prices(agent.config)
            if self._deps is None:
                agent.config.check_deps(None)

    def _chosen(self, states: Sequence[RunPhase], **properties: Any) -> builtins.list[RunRow]:
        return with_retries(partial(RunFilter(**properties).rows, self._store, states))

    async def _go_on(self, claim: Claim) -> None:
        await self._driving.go_on(claim, self._owner)

    def _claim_one(self, run_id: str) -> builtins.list[Claim]:
        claim = self._store.claim(self._owner, run_id=run_id)
        return [] if claim is None else [claim]


def one_message(message: Any) -> Message:
    """The message to add to a run."""
    messages = as_messages(message)
    if len(messages) != 1:
        raise UsageError(f"say takes one message, not {len(messages)}: call it for each of them")
    return messages[0]

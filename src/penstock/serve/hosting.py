"""Runs on a server: starts and drives runs in this process, and takes over runs of dead workers."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.agent.agent import Agent
from penstock.agent.pricing import expect_prices
from penstock.asgi.limits import ServerLimits
from penstock.asgi.request import RejectedRequest
from penstock.errors import UsageError
from penstock.log.bodies import body_of
from penstock.log.branches.fork import ForkRequest, fork_run
from penstock.log.start import new_start
from penstock.log.starts.requests import KeyTakenError, StartRequest, stored_start
from penstock.log.store import RunExistsError, RunRow, Store
from penstock.log.store_retries import awith_retries
from penstock.log.take_up import fold, read_log
from penstock.loggers import get_logger
from penstock.messages import Message
from penstock.run.events import LogEvent, RunStart
from penstock.run.machine import Run
from penstock.runs.client_tools import with_client_tools, with_declarations
from penstock.runs.runs import Runs
from penstock.serve.abandonment import Abandonment
from penstock.serve.runs.bodies import MAX_ID

TAKEOVER_POLL = 1.0
"""The seconds between two checks for runs of dead workers."""
LOOK = 0.05
"""The seconds between two looks at the runs that were taken over, while the server stops."""
THREAD_BUSY = "thread_busy"
"""The error code for a thread with an unfinished run."""


class Origin(Struct, frozen=True):
    """The origin of a run in a conversation: it answers the user message with the client's id `message`, after the run
    `after`. `tools` are declarations of the client's tools.
    """

    message: str = ""
    after: str = ""
    tools: Sequence[Mapping[str, Any]] = ()

    @property
    def meta(self) -> dict[str, str]:
        """The `meta` of the run for this origin."""
        return {name: value for name, value in (("message", self.message), ("after", self.after)) if value}


class Host:
    """The runs of a server. A run belongs to its log: it continues when the request that started it ends."""

    def __init__(
        self, store: Store, agents: Mapping[str, Agent[Any, Any]], limits: ServerLimits,
        deps: Callable[[Any], Any] | None = None,
    ) -> None:  # fmt: skip
        self.store = store
        self.agents = agents = {name: _limited(agent, limits.run_seconds) for name, agent in agents.items()}
        for agent in agents.values():
            expect_prices(agent.config)
            if deps is None:
                agent.config.check_deps(None)
        self.runs = Runs(store, agents, deps=deps)
        self.driven = DrivenRuns(self.runs, limits)
        self._limits = limits
        self.abandonment: Abandonment | None = None
        self._tasks: list[asyncio.Task[None]] = []

    # -- runs ----------------------------------------------------------------------------------------------------------

    async def start(
        self, agent: str, messages: Sequence[Message], *, tenant: str, run_id: str | None = None, thread: str = "",
        origin: Origin | None = None, request: StartRequest | None = None,
    ) -> str:  # fmt: skip
        """Start a run and drive it; returns its id. A `KeyTakenError` if another run has the key of the `request`."""
        self.driven.check_room(tenant)
        name, origin = self.agent_name(agent), origin or Origin()
        try:
            meta = with_declarations({"tenant": tenant, **origin.meta}, origin.tools)
            first = self.agents[name].first_messages(None, list(messages))
            row, start = new_start(name, first, run_id, thread, tenant, meta)
            await awith_retries(partial(self.store.create, row, body_of(start), request=request))
        except KeyTakenError:
            raise
        except RunExistsError as error:
            raise RejectedRequest(409, "run_exists", str(error)) from None
        except UsageError as error:
            raise RejectedRequest(400, "invalid_request", str(error)) from None
        self.driven.drive(row.id, tenant)
        return row.id

    async def start_in_thread(
        self, agent: str, new: Sequence[Message], *, tenant: str, thread: str, origin: Origin | None = None,
        history: Sequence[Message] | None = None, newest: str | None = None, request: StartRequest | None = None,
    ) -> str:  # fmt: skip
        """Continue a conversation with new messages; a thread has one run at a time.

        It continues from the end of its last run, or from a `history`. If the last run is not the one that the caller
        knows as the `newest`, another request has been answered meanwhile, and the thread counts as busy.
        """
        last = ""
        for row in await self.thread(thread, tenant, limit=1):
            if row.state != "over" or newest not in (None, row.id):
                raise busy(row.id)
            last = row.id
            if history is None:
                history, origin = (await self.rebuilt(row)).state.history, replace(origin or Origin(), after=last)
        id = _next_id(tenant, thread, last)
        try:
            return await self.start(
                agent, [*(history or ()), *new], tenant=tenant, run_id=id, thread=thread, origin=origin, request=request
            )
        except RejectedRequest as error:
            raise busy(id) if error.code == "run_exists" else error from None

    async def fork(self, row: RunRow, fork: ForkRequest, request: StartRequest | None = None) -> str:
        """Start a fork of a run of this tenant, and drive it; returns its id. Its model is one that the agent names."""
        self.driven.check_room(row.tenant)
        if fork.model and fork.model not in (models := self.agent(row.agent).config.models):
            names = f"; there are: {', '.join(models)}" if models else ", and names no others"
            raise RejectedRequest(400, "unknown_model", f"the agent has no model {fork.model!r}{names}")
        id = _next_id(row.tenant, "fork", request.key) if request is not None else None
        starts = [] if request is None else [stored_start(request)]
        try:
            forked = await awith_retries(partial(fork_run, self.store, fork, fork_id=id, starts=starts))
        except KeyTakenError:
            raise
        except RunExistsError as error:
            raise RejectedRequest(409, "run_exists", str(error)) from None
        except UsageError as error:
            raise RejectedRequest(400, "invalid_request", str(error)) from None
        if forked.state != "over":
            self.driven.drive(forked.id, row.tenant)
        return forked.id

    async def find(self, run_id: str, tenant: str) -> RunRow:
        """The row of a run of this tenant."""
        is_id = 0 < len(run_id) <= MAX_ID and run_id.isprintable()  # no database has others
        row = await awith_retries(partial(self.store.find, run_id)) if is_id else None
        if row is None or row.tenant != tenant:
            raise RejectedRequest(404, "unknown_run", "there is no such run")
        return row

    async def steer(self, row: RunRow, *puts: Callable[[], bool]) -> bool:
        """Put inputs into the log of a run, and continue a waiting run; False if the log had all of them."""
        self.driven.check_room_to_go_on(row)
        is_new = any(await self.put(row, *puts))
        if row.state in STEERED:
            self.driven.drive(row.id, row.tenant)
        return is_new

    async def put(self, row: RunRow, *puts: Callable[[], bool]) -> list[bool]:
        """Put inputs into the log of a run; returns for each whether it was new."""
        if row.state == "over":
            raise _run_over()
        try:
            return [await awith_retries(put) for put in puts]
        except UsageError:  # it ended meanwhile
            raise _run_over() from None

    async def rebuilt(self, row: RunRow) -> Run:
        """The run as its log has it."""
        return await awith_retries(partial(self.read, row))

    def read(self, row: RunRow, last: int | None = None) -> Run:
        """The same for a thread, with the events until the `last`: this blocks."""
        return self.rebuild(row, read_events(self.store, row.id)[:last])

    def rebuild(self, row: RunRow, events: Sequence[LogEvent]) -> Run:
        """The run whose log has these events."""
        config = with_client_tools(self.agent(row.agent).config, start_meta(events))
        return fold(row.id, events, config.policies, config.limits, config.run_repaired, config.output)

    async def thread(self, thread: str, tenant: str, limit: int = 100) -> list[RunRow]:
        """The runs of a conversation, the newest first."""
        return await awith_retries(partial(self.store.list, thread=thread, tenant=tenant, limit=limit))

    def agent(self, name: str) -> Agent[Any, Any]:
        """The agent with this name; the only one if the name is empty."""
        return self.agents[self.agent_name(name)]

    def has_output(self, name: str) -> bool:
        """Whether an agent has structured output."""
        return self.agent(name).config.output is not None

    def agent_name(self, name: str) -> str:
        """The name of a served agent; an empty name means the only one."""
        if not name and len(self.agents) == 1:
            return next(iter(self.agents))
        if name not in self.agents:
            problem = f"there is no agent {name!r} here" if name else "the request must name an agent"
            raise RejectedRequest(404, "unknown_agent", f"{problem}; there are: {', '.join(self.agents)}")
        return name

    # -- of the server -------------------------------------------------------------------------------------------------

    def open(self) -> None:
        """Start taking over runs of dead workers, and cancelling abandoned runs."""
        work = self.runs.awork(parallel=self._limits.runs, poll=TAKEOVER_POLL, announced=False)
        self._tasks.append(asyncio.create_task(work))
        if self.abandonment is not None:
            self._tasks.append(asyncio.create_task(self.abandonment.watch()))

    async def close(self, seconds: float) -> None:
        """Wait this many seconds for runs to finish; the others are released to another worker."""
        await self.driven.close(seconds)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _limited(agent: Agent[Any, Any], seconds: float) -> Agent[Any, Any]:
    """The agent with the server's time limit for runs, if it has none."""
    if agent.config.limits.seconds is not None:
        return agent
    limited = copy(agent)
    limited.config = replace(agent.config, limits=replace(agent.config.limits, seconds=seconds))
    return limited


def read_events(store: Store, run_id: str) -> list[LogEvent]:
    """The events of a run; the number of the first is 1. This blocks."""
    return [event for _, _, event in read_log(store, run_id)]


def start_meta(events: Sequence[LogEvent]) -> Any:
    """The `meta` of the run whose log has these events."""
    return events[0].meta if events and isinstance(events[0], RunStart) else None


def busy(run_id: str) -> RejectedRequest:
    """The rejection of a second run in a busy thread."""
    why = "the thread has a run under way: wait for its end, answer what it waits for, or cancel it"
    return RejectedRequest(409, THREAD_BUSY, why, {"x-run-id": run_id})


def _run_over() -> RejectedRequest:
    return RejectedRequest(409, "run_over", "the run is over")


def _next_id(tenant: str, thread: str, last: str) -> str:
    """The id of the next run of a thread: of two simultaneous starts, the log accepts one."""
    digest = hashlib.blake2b(digest_size=16)
    for part in (tenant, thread, last):
        digest.update(len(part.encode()).to_bytes(8, "big") + part.encode())
    return digest.hexdigest()


logger = get_logger("penstock.serve")

STEERED = ("waiting", "ready", "damaged", "parked")
"""The states in which a run must be driven after an input."""


class DrivenRuns:
    """The runs that this process drives, each with its tenant; those that were started or continued here have tasks."""

    def __init__(self, runs: Runs, limits: ServerLimits) -> None:
        self._runs = runs
        self._limits = limits
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._tenants: dict[str, str] = {}
        self._again: set[str] = set()  # runs that got an input while their tasks were about to end

    def __len__(self) -> int:
        return len(self._all)

    @property
    def _all(self) -> dict[str, str]:
        """Also those that were taken over."""
        return {**self._runs.driven, **self._tenants}

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._tasks)

    def drive(self, run_id: str, tenant: str) -> None:
        """Drive a run in the background, unless this process does so already."""
        if run_id in self._tasks:
            self._again.add(run_id)
            return
        task = asyncio.create_task(self._drive(run_id))
        self._tasks[run_id] = task
        self._tenants[run_id] = tenant
        task.add_done_callback(partial(self._ended, run_id))

    def check_room(self, tenant: str) -> None:
        """Raise a `RejectedRequest` if there is no room for another run of this tenant."""
        driven = self._all
        of_tenant = sum(other == tenant for other in driven.values())
        if len(driven) >= self._limits.runs or of_tenant >= self._limits.tenant_runs:
            raise RejectedRequest(429, "too_many_runs", "too many runs at once; try again later", {"retry-after": "5"})

    def check_room_to_go_on(self, row: RunRow) -> None:
        """Raise a `RejectedRequest` if there is no room to continue a waiting run."""
        if row.state in STEERED and row.id not in self._tasks:
            self.check_room(row.tenant)

    async def close(self, seconds: float) -> None:
        """Wait this many seconds for runs to finish; the others are released to another worker."""
        self._runs.stop_claiming()
        end = time.monotonic() + seconds
        while self._all and (left := end - time.monotonic()) > 0:
            if self._tasks:
                await asyncio.wait(self._tasks.values(), timeout=left)
            else:
                await asyncio.sleep(min(left, LOOK))  # they belong to the worker
        tasks = [*self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _drive(self, run_id: str) -> None:
        await self._runs.adrive(run_id)

    def _ended(self, run_id: str, task: asyncio.Task[None]) -> None:
        self._tasks.pop(run_id, None)
        tenant, is_again = self._tenants.pop(run_id, ""), run_id in self._again
        self._again.discard(run_id)
        if task.cancelled():
            return
        if (error := task.exception()) is not None:
            fields = {"fields": {"run": run_id, "tenant": tenant, "owner": self._runs.owner}}
            logger.error("the run %s could not be continued: %s", run_id, error, extra=fields)
        elif is_again:
            self.drive(run_id, tenant)

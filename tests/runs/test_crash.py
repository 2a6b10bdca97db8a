"""Crashes of a run with a log at named points, as users simulate them in their tests."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import pytest

from penstock import (
    Agent,
    AgentRun,
    AsyncAgentRun,
    Context,
    Done,
    LostRunError,
    Model,
    Runs,
    ToolEnd,
    ToolStart,
    UsageError,
    check,
    tool,
)
from penstock.agent.driver.driver import Driver
from penstock.log import SQLiteStore, Store, points
from penstock.log.points import Point
from penstock.log.store import Batch
from penstock.log.take_up import read_log, take_up
from penstock.run.commands import Command
from penstock.run.events import LogEvent
from penstock.run.machine import Run
from penstock.run.rebuild import rebuild
from penstock.testing import Crashed, FakeClock, Reply, Scripted, call, crash_at

POINTS: tuple[Point, ...] = get_args(Point)
every_point = pytest.mark.parametrize("point", POINTS)
SYNC_POINTS = [point for point in POINTS if point != "after_claim"]  # which only `Runs` has


class Desk:
    """An agent with a tool that counts what it did, on a log with a clock of its own."""

    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self.store = SQLiteStore(path / "runs.db", lease=30.0, clock=self.clock)
        self.ran = Counter[str]()
        self.runs = Runs(self.store, {"desk": self.agent()})

    def agent(self) -> Agent[Any]:
        @tool
        def pay(context: Context[Any]) -> str:
            """Pay."""
            self.ran[context.key] += 1
            return "paid"

        def answer(request: Any) -> Reply | str:
            return "Paid." if request.results else Reply("I pay.", call("pay"))

        return Agent(Model("openai:gpt-5", via=Scripted(answer)), tools=[pay])

    def log(self, run_id: str) -> list[LogEvent]:
        return [event for _, _, event in read_log(self.store, run_id)]

    def check(self, run_id: str) -> None:
        """The run has ended well, and paid at most once."""
        events = self.log(run_id)
        assert isinstance(events[-1], Done)
        assert all(count == 1 for count in self.ran.values())
        starts, ends = ([event.key for event in events if isinstance(event, kind)] for kind in (ToolStart, ToolEnd))
        assert sorted(starts) == sorted(ends)
        assert {f"{run_id}:{key}" for key in starts} >= set(self.ran)
        assert check(rebuild(events, {}).state.messages) == []


@every_point
def test_a_run_ends_well_after_a_crash_at_any_point(point: Point, tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    run_id = desk.runs.start("desk", "Pay.")
    with crash_at(point), pytest.raises(Crashed, match=f"crashed at {point}"):
        desk.runs.drive(run_id)
    is_over = point == "after_done"
    assert desk.runs.find(run_id).state == ("over" if is_over else "running")
    assert desk.store.claim("early") is None  # the lease of the process that crashed has not expired
    desk.clock.advance(31)
    assert desk.runs.drive(run_id).state == "over"
    desk.check(run_id)
    assert sum(event.type == "taken" for event in desk.log(run_id)) == (1 if is_over else 2)
    desk.store.close()


@pytest.mark.parametrize("point", SYNC_POINTS)
def test_a_run_in_sync_code_crashes_like_one_in_async_code(point: Point, tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    run_id = desk.runs.start("desk", "Pay.")
    agent = desk.agent()

    def go_on() -> None:
        claim = desk.store.claim("worker", run_id=run_id)
        assert claim is not None
        run, owned = take_up(desk.store, claim, agent.config.policies)
        with AgentRun(agent.config, run, None, owned) as running:
            list(running)

    with crash_at(point), pytest.raises(Crashed):
        go_on()
    desk.clock.advance(31)
    if point != "after_done":
        go_on()
    desk.check(run_id)
    desk.store.close()


@pytest.mark.parametrize(
    ("point", "event"),
    [(point, event) for point in ("before_append", "inside_append", "after_append")
     for event in ("step_start", "tool_start", "tool_end", "done")],
)  # fmt: skip
def test_a_crash_around_the_append_of_an_event(point: Point, event: str, tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    run_id = desk.runs.start("desk", "Pay.")
    with crash_at(point, event), pytest.raises(Crashed):
        desk.runs.drive(run_id)
    assert (event in [one.type for one in desk.log(run_id)]) == (point == "after_append")
    desk.clock.advance(31)
    assert desk.runs.drive(run_id).state == "over"
    desk.check(run_id)
    desk.store.close()


def test_a_point_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(UsageError, match="no point 'somewhere'; there are: after_claim"), crash_at("somewhere"):  # type: ignore[arg-type]
        pass
    assert points.hook is None


WORKER = """
import sys, penstock
from penstock.log.sqlite.store import SQLiteStore
from penstock.runs.runs import Runs
from penstock.testing import Reply, Scripted, call

@penstock.tool
def pay() -> str:
    return "paid"

agent = penstock.Agent(penstock.Model("openai:gpt-5", via=Scripted([Reply(call("pay")), "Paid."])), tools=[pay])
runs = Runs(SQLiteStore(sys.argv[1]), {"agent": agent})
runs.drive(runs.start("agent", "Pay.", run_id="one"))
"""


def test_an_environment_variable_kills_a_worker_at_a_point(tmp_path: Path) -> None:
    path = str(tmp_path / "runs.db")
    environment = {**os.environ, "PENSTOCK_CRASH_AT": "after_append:tool_end"}
    done = subprocess.run([sys.executable, "-c", WORKER, path], env=environment, check=False, timeout=60)
    assert done.returncode == -signal.SIGKILL
    store = SQLiteStore(path)
    types = [event.type for _, _, event in read_log(store, "one")]
    assert (types.count("tool_end"), types.count("done")) == (1, 0)
    store.close()


# -- a worker that was frozen or is busy -------------------------------------------------------------------------------


def test_a_tool_that_blocks_the_event_loop_for_longer_than_the_lease_is_not_taken_over(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db", lease=0.6)

    @tool
    async def block() -> str:
        """Block the event loop."""
        time.sleep(2.0)  # noqa: ASYNC251  # that is the point
        return "done"

    agent = Agent(Model("openai:gpt-5", via=Scripted([Reply(call("block")), "Done."])), tools=[block])
    runs = Runs(store, {"agent": agent})
    run_id = runs.start("agent", "Block.")
    stop = threading.Event()
    claims = []

    def compete() -> None:
        while not stop.wait(0.05):
            claims.append(store.claim("other", run_id=run_id))

    driver = threading.Thread(target=runs.drive, args=(run_id,))
    driver.start()
    while runs.find(run_id).epoch == 0:
        time.sleep(0.01)
    competitor = threading.Thread(target=compete)
    competitor.start()
    driver.join(60)
    stop.set()
    competitor.join(60)
    assert len(claims) > 10
    assert set(claims) == {None}
    events = [event for _, _, event in read_log(store, run_id)]
    assert sum(event.type == "taken" for event in events) == 1
    assert next(event for event in events if isinstance(event, ToolEnd)).ending == "done"
    store.close()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_tool_does_not_begin_if_the_lease_ended_after_its_task_was_started(mode: str, tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    run_id = desk.runs.start("desk", "Pay.")
    agent = desk.agent()
    claim = desk.store.claim("frozen", run_id=run_id)
    assert claim is not None
    run, owned = take_up(desk.store, claim, agent.config.policies)
    check_arguments = agent.config.tools["pay"].check

    def freeze(point: Point, details: Any, writer: Any) -> None:
        if point == "before_tool_start":
            # The lease is checked after this point, and ends while the arguments are validated.
            def slow(arguments: Any) -> Any:
                writer.deadline = 0.0
                return check_arguments(arguments)

            object.__setattr__(agent.config.tools["pay"], "check", slow)

    points.hook = freeze
    try:
        if mode == "sync":
            with (
                pytest.raises(LostRunError, match="may have taken over"),
                AgentRun(agent.config, run, None, owned) as plain,
            ):
                list(plain)
        else:

            async def scenario() -> None:
                async with AsyncAgentRun(agent.config, run, None, owned) as running:
                    async for _ in running:
                        pass

            with pytest.raises(LostRunError, match="may have taken over"):
                asyncio.run(scenario())
    finally:
        points.hook = None
    assert not desk.ran
    assert not any(isinstance(event, ToolEnd) for event in desk.log(run_id))
    desk.store.close()


def test_a_worker_that_was_replaced_while_a_tool_runs_stops_the_tool(tmp_path: Path) -> None:
    store: Store = SQLiteStore(tmp_path / "runs.db", lease=0.6)
    ended: list[str] = []

    @tool
    async def wait() -> str:
        """Wait."""
        try:
            row = runs.find(run_id)  # it is given to another worker, without a word to this one
            assert store.append([Batch(run_id, row.epoch, row.seq, [], "ready")], durable=True) == [True]
            assert store.claim("other", run_id=run_id) is not None
            await asyncio.sleep(60)
        finally:
            ended.append("stopped")
        return "late"

    agent = Agent(Model("openai:gpt-5", via=Scripted([Reply(call("wait"))])), tools=[wait])
    runs = Runs(store, {"agent": agent})
    run_id = runs.start("agent", "Wait.")

    async def scenario() -> None:
        claim = await asyncio.to_thread(store.claim, "frozen", run_id=run_id)
        assert claim is not None
        run, owned = take_up(store, claim, agent.config.policies)
        async with asyncio.timeout(30), AsyncAgentRun(agent.config, run, None, owned) as running:
            async for _ in running:
                pass

    with pytest.raises(LostRunError, match="another worker has taken over"):
        asyncio.run(scenario())
    assert ended == ["stopped"]
    store.close()


def test_an_input_that_comes_while_the_run_starts_to_wait_is_left_for_the_next_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore(tmp_path / "runs.db", lease=5.0)

    @tool(approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    def answer(request: Any) -> Reply | str:
        return "Paid." if request.results else Reply(call("pay", id="c"))

    agent = Agent(Model("openai:gpt-5", via=Scripted(answer)), tools=[pay])
    runs = Runs(store, {"agent": agent})
    run_id = runs.start("agent", "Pay.")
    pause = Run.pause
    drivers: list[Driver] = []

    def pause_and_decide(run: Run, seconds: float | None = None) -> list[Command]:
        runs.decide(run_id, "c", True)
        [wanted] = store.inputs([run_id])
        driver = drivers[-1]
        asyncio.get_running_loop().call_soon(driver.listener.take_input, wanted)
        return pause(run, seconds)

    begin = Driver.enter

    async def enter(driver: Driver) -> None:
        drivers.append(driver)
        await begin(driver)

    monkeypatch.setattr(Driver, "enter", enter)
    monkeypatch.setattr(Run, "pause", pause_and_decide)

    async def scenario() -> str:
        async with asyncio.timeout(30):
            return (await runs.adrive(run_id)).state

    assert asyncio.run(scenario()) == "over"
    types = [event.type for _, _, event in read_log(store, run_id)]
    assert types.count("decision") == types.count("tool_end") == 1
    store.close()

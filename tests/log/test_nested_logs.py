"""Agents in agents with a log: one log has all of them, and any worker continues all of them after a crash."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, get_args

import pytest

import penstock.log
from penstock import (
    Agent,
    AgentRun,
    ApprovalRequest,
    Context,
    Done,
    Limits,
    Model,
    Nested,
    Runs,
    ToolEnd,
    ToolResult,
    ToolStart,
    check,
    tool,
)
from penstock.log import SQLiteStore
from penstock.log.points import Point
from penstock.log.take_up import read_log, take_up
from penstock.messages import user
from penstock.run.events import LogEvent, RunStart, Waiting, innermost
from penstock.run.rebuild import rebuild
from penstock.serve.public_events import EventFrames, approval_hash, public_event
from penstock.testing import Crashed, FakeClock, Reply, Scripted, call, crash_at

POINTS: tuple[Point, ...] = get_args(Point)


def second(first: Reply, last: str) -> Any:
    return Scripted(lambda request: last if request.results else first)


class Desk:
    """An agent with two helpers at once, each of which pays and has a helper that pays; on a log with its own clock."""

    def __init__(self, path: Path, approval: bool = False) -> None:
        self.clock = FakeClock()
        self.store = SQLiteStore(path / "runs.db", lease=30.0, clock=self.clock)
        self.ran = Counter[str]()
        self.approval = approval
        self.runs = Runs(self.store, {"desk": self.agent()})

    def agent(self) -> Agent[Any]:
        @tool(approval=self.approval)
        def pay(context: Context[Any]) -> str:
            """Pay."""
            self.ran[context.key] += 1
            return "paid"

        deep = Agent(Model("openai:gpt-5", via=second(Reply(call("pay")), "deep")), [pay], name="deep")
        helper = Agent(
            Model("openai:gpt-5", via=second(Reply("I pay.", call("deep", {"prompt": "x"}), call("pay")), "helped")),
            [pay, deep.as_tool(description="Go deeper.")], name="helper",
        )  # fmt: skip
        calls = Reply(call("helper", {"prompt": "one"}), call("helper", {"prompt": "two"}))
        return Agent(Model("openai:gpt-5", via=second(calls, "Paid.")), [helper.as_tool(description="Help.")])

    def go_on(self, run_id: str) -> None:
        """Drive the run in sync code, if it is not over."""
        claim, agent = self.store.claim("worker", run_id=run_id), self.agent()
        if claim is not None:
            run, owned = take_up(self.store, claim, agent.config.policies)
            with AgentRun(agent.config, run, None, owned) as running:
                list(running)

    def log(self, run_id: str) -> list[LogEvent]:
        return [event for _, _, event in read_log(self.store, run_id)]

    def check(self, run_id: str) -> None:
        """The run has ended well, nothing was paid twice, and whatever started has ended."""
        events = self.log(run_id)
        assert isinstance(done := events[-1], Done)
        assert done.reason == "answered"
        assert all(count == 1 for count in self.ran.values())
        starts, ends = Counter[Any](), Counter[Any]()
        for event in events:
            path = event.path if isinstance(event, Nested) else ()
            match innermost(event):
                case ToolStart(key=key):
                    starts[path, key] += 1
                case ToolEnd(key=key):
                    ends[path, key] += 1
                case RunStart() if path:
                    starts[path, "run"] += 1
                case Done() if path:
                    ends[path, "run"] += 1
                case _:
                    pass
        assert starts == ends
        assert set(starts.values()) == {1}
        run = rebuild(events, self.agent().config.policies)
        assert check(run.state.messages) == []
        assert run.usage == done.usage


def drive_until_crash(desk: Desk, run_id: str) -> None:
    """Drive a run until it ends, or until its process would be gone.

    A crash in the thread of the log may end the driving quietly. The driver then waits for the lease of its own run.
    """

    async def drive() -> None:
        async with asyncio.timeout(5):
            await desk.runs.adrive(run_id)

    try:
        asyncio.run(drive())
    except (Crashed, TimeoutError):
        desk.clock.advance(31)


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize("point", POINTS)
def test_agents_in_agents_end_well_after_a_crash_at_any_point(point: Point, number: int, tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    run_id = desk.runs.start("desk", "Pay.")
    with crash_at(point, number=number):
        drive_until_crash(desk, run_id)
    desk.runs.drive(run_id)
    desk.check(run_id)
    desk.store.close()


@pytest.mark.parametrize("event", ["run_start", "step_start", "text", "step_end", "tool_start", "tool_end", "done"])
@pytest.mark.parametrize("point", ["before_append", "after_append"])
def test_agents_in_agents_end_well_after_a_crash_around_any_event(point: Point, event: str, tmp_path: Path) -> None:
    for number in (1, 3):
        desk = Desk(tmp_path)
        run_id = desk.runs.start("desk", "Pay.")
        with crash_at(point, event, number=number):
            drive_until_crash(desk, run_id)
        desk.runs.drive(run_id)
        desk.check(run_id)
        desk.store.close()


@pytest.mark.parametrize("point", ["before_request", "before_tool_start", "after_tool_end", "after_append"])
def test_agents_in_agents_in_sync_code_continue_after_a_crash(point: Point, tmp_path: Path) -> None:
    for number in (1, 3):
        desk = Desk(tmp_path)
        run_id = desk.runs.start("desk", "Pay.")
        with crash_at(point, number=number):
            try:
                desk.go_on(run_id)
            except Crashed:
                desk.clock.advance(31)
        desk.go_on(run_id)
        desk.check(run_id)
        desk.store.close()


def test_a_call_inside_waits_without_a_worker_and_is_decided_from_elsewhere(tmp_path: Path) -> None:
    desk = Desk(tmp_path, approval=True)
    run_id = desk.runs.start("desk", "Pay.")
    for _ in range(8):
        if desk.runs.drive(run_id).state == "over":
            break
        run = rebuild(desk.log(run_id), {})
        assert isinstance(desk.log(run_id)[-1], Waiting)
        assert run.waiting
        assert desk.runs.decide(run_id, run.waiting[0].call_id, True)
    assert sorted(desk.ran.values()) == [1, 1, 1, 1]
    desk.check(run_id)
    desk.store.close()


def test_a_run_is_cancelled_from_elsewhere_with_all_that_is_inside(tmp_path: Path) -> None:
    desk = Desk(tmp_path, approval=True)
    run_id = desk.runs.start("desk", "Pay.")
    assert desk.runs.drive(run_id).state == "waiting"
    desk.runs.cancel(run_id, "enough")
    assert desk.runs.drive(run_id).state == "over"
    events = desk.log(run_id)
    assert isinstance(done := events[-1], Done)
    assert (done.reason, done.why) == ("cancelled", "enough")
    reasons = [event.event.reason for event in events if isinstance(event, Nested) and isinstance(event.event, Done)]
    assert reasons == ["cancelled"] * 4
    assert check(rebuild(events, {}).state.messages) == []
    desk.store.close()


def test_a_reader_by_the_log_gets_nested_events_and_may_decide(tmp_path: Path) -> None:
    desk = Desk(tmp_path, approval=True)
    agent = Agent(desk.agent().config.model, list(desk.agent().config.tools.values()), name="desk", approvals="wait")
    with agent.stream("Pay.", log=desk.store, run_id="r1") as run:
        for event in run:
            if isinstance(event, Nested) and isinstance(event.event, ApprovalRequest):
                run.decide(event.event.call_id, True)
    assert run.finish_reason == "answered"
    follow = [event for _, event in desk.runs.follow("r1")]
    assert sum(isinstance(event, Nested) for event in follow) > 20
    desk.check("r1")
    desk.store.close()


def test_a_client_of_the_server_sees_inner_events_by_the_same_allow_list(tmp_path: Path) -> None:
    request = ApprovalRequest("c", "pay", {"amount": 3})
    shown: Any = public_event(Nested(("a", "b"), request))
    assert shown == {"type": "nested", "path": ("a", "b"), "event": public_event(request)}
    assert shown["event"]["shown"] == approval_hash(request)
    end: Any = Nested(("a",), ToolEnd("1.0", ToolResult("c", "pay", ()), data={"secret": 1}))
    assert b"secret" not in EventFrames(10_000).frame(1, 1.0, end)
    assert public_event(Nested(("a",), penstock.ToolResults(user("x")))) is None
    long = Nested(("a",), penstock.Text(0, "x" * 100_000))
    frame = EventFrames(1000).frame(7, 1.0, long)
    assert len(frame) < 1500
    assert b'"path":["a"]' in frame


WORKER = """
import asyncio, sys
import penstock
from penstock.runs.runs import Runs
from penstock.testing import Reply, Scripted, call

path, ledger = sys.argv[1:]


@penstock.tool
async def pay(context: penstock.Context) -> str:
    with open(ledger, "ab", buffering=0) as file:
        file.write(f"pay {context.key}\\n".encode())
    await asyncio.sleep(0.2)
    return "paid"


def scripted(first, last):
    return penstock.Model("openai:gpt-5", via=Scripted(lambda request: last if request.results else first))


helper = penstock.Agent(scripted(Reply(call("pay"), call("pay")), "helped"), tools=[pay], name="helper")
calls = Reply(call("helper", {"prompt": "one"}), call("helper", {"prompt": "two"}))
agent = penstock.Agent(scripted(calls, "Done."), tools=[helper.as_tool(description="Help.")])
store = penstock.log.open(path, lease=1.0)
asyncio.run(Runs(store, {"agent": agent}).awork(poll=0.05))
"""


def test_agents_in_agents_survive_workers_that_are_killed(tmp_path: Path) -> None:
    path, ledger = tmp_path / "runs.db", tmp_path / "ledger"
    store = penstock.log.open(str(path), lease=1.0)
    runs = Runs(store, {"agent": Agent(Model("openai:gpt-5", via=Scripted([])))})
    run_id = runs.start("agent", "Go.")

    def worker() -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", WORKER, str(path), str(ledger)])

    process, kills, seen = worker(), 0, 0
    end = time.monotonic() + 60
    while runs.find(run_id).state != "over" and time.monotonic() < end:
        notes = ledger.read_bytes().count(b"\n") if ledger.exists() else 0
        if notes > seen and kills < 2:  # right after a tool inside has started
            seen, kills = notes, kills + 1
            process.send_signal(signal.SIGKILL)
            process.wait()
            process = worker()
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert runs.find(run_id).state == "over"
    assert kills
    assert max(Counter(ledger.read_text().split("\n")[:-1]).values()) == 1
    events = [event for _, _, event in read_log(store, run_id)]
    assert check(rebuild(events, {}).state.messages) == []
    inner_ends = [event for event in events if isinstance(event, Nested) and isinstance(event.event, Done)]
    assert [end.event.reason for end in inner_ends if isinstance(end.event, Done)] == ["answered", "answered"]
    store.close()


def test_the_worker_may_stop_and_another_one_continues(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    run_id = desk.runs.start("desk", "Pay.")

    async def stop_early() -> None:
        task = asyncio.create_task(desk.runs.adrive(run_id))
        async for _, event in desk.runs.afollow(run_id):
            if isinstance(innermost(event), RunStart) and isinstance(event, Nested):
                task.cancel()
                break
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(stop_early())
    assert desk.runs.find(run_id).state == "ready"
    desk.runs.drive(run_id)
    desk.check(run_id)
    desk.store.close()


@pytest.mark.parametrize(("worked", "ending"), [(6.0, "limit"), (3.0, "answered")])
def test_the_time_limit_of_an_inner_run_counts_all_its_owners(worked: float, ending: str, tmp_path: Path) -> None:
    clock = FakeClock()
    store = SQLiteStore(tmp_path / "runs.db", lease=30.0, clock=clock)

    def after(seconds: float, first: Reply, last: str) -> Any:
        """A model whose first response takes a while."""

        def reply(request: Any) -> Any:
            if request.results:
                return last
            clock.advance(seconds)
            return first

        return Scripted(reply)

    @tool
    def pay() -> str:
        """Pay."""
        return "paid"

    model = Model("openai:gpt-5", via=after(worked, Reply(call("pay")), "helped"))
    helper = Agent(model, [pay], name="helper", limits=Limits(seconds=5))
    outer = Model("openai:gpt-5", via=after(100.0, Reply(call("helper", {"prompt": "one"})), "Done."))
    runs = Runs(store, {"desk": Agent(outer, [helper.as_tool(description="Help.")])})
    run_id = runs.start("desk", "Pay.")
    with crash_at("before_tool_start", "pay"), pytest.raises(Crashed):
        runs.drive(run_id)
    clock.advance(31)
    assert runs.drive(run_id).state == "over"
    events = [event for _, _, event in read_log(store, run_id)]
    inner = [event.event.reason for event in events if isinstance(event, Nested) and isinstance(event.event, Done)]
    assert inner == [ending]
    assert isinstance(done := events[-1], Done)
    assert done.reason == "answered"
    store.close()

"""Calls that share a world, on three wires, with a process that dies between any two events: as if in order.

Two cases in which an order matters: a read after a write, and a push after a commit that a person approves.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from penstock import Agent, ApprovalRequest, StreamEvent, check, tool
from penstock.log import SQLiteStore
from penstock.log.points import Point
from penstock.testing import Crashed, FakeClock, Reply, Scripted, call, crash_at
from tests.scripted_runs import drive, model_on, sync_and_async

WIRES = ["openai-chat", "anthropic", "gemini"]
POINTS: list[Point] = ["before_append", "after_append", "before_tool_start", "after_tool_start", "after_tool_end"]
MOST = 40
"""More visits of one point than a run makes."""


class Files:
    """A file, written and then read in one response."""

    def __init__(self) -> None:
        self.content, self.written = "old", 0
        self.calls = [call("write_file", {"content": "new"}), call("read_file", {})]

    @property
    def tools(self) -> list[Any]:
        @tool
        async def write_file(content: str) -> str:
            """Write the file."""
            self.content, self.written = content, self.written + 1
            return "written"

        @tool(read_only=True)
        async def read_file() -> str:
            """Read the file."""
            return self.content

        return [write_file, read_file]

    def judge(self, results: list[str], *, is_crashed: bool) -> None:
        """The read saw the file as the write before it left it; the write ran at most once."""
        assert self.written <= 1
        assert results[1] == self.content
        if not is_crashed:
            assert results == ["written", "new"]


class Repository:
    """A commit that a person is asked about, and a push after it, with one shell."""

    def __init__(self, is_approved: bool) -> None:
        self.is_approved = is_approved
        self.ran: list[str] = []
        self.calls = [call("bash", {"command": "git commit"}), call("bash", {"command": "git push"})]

    @property
    def tools(self) -> list[Any]:
        @tool(parallel=False, approval=lambda arguments: "commit" in arguments["command"])
        async def bash(command: str) -> str:
            """Run a command."""
            self.ran.append(command)
            return f"{command}: done"

        return [bash]

    def judge(self, results: list[str], *, is_crashed: bool) -> None:
        """Nothing was pushed that was not committed, and a commit that was not successful stops the push."""
        assert self.ran in ([], ["git commit"], ["git commit", "git push"]), self.ran
        if results[0] != "git commit: done":
            assert results[1].startswith("Not run: bash ("), results
            assert "git push" not in self.ran
        if not is_crashed:
            assert len(self.ran) == (2 if self.is_approved else 0)


WORLDS: dict[str, Callable[[], Files | Repository]] = {
    "a read after a write": Files,
    "a push after an approved commit": lambda: Repository(is_approved=True),
    "a push after a declined commit": lambda: Repository(is_approved=False),
}


def run_in(world: Files | Repository, wire: str, mode: str, store: SQLiteStore) -> Any:
    """Start or continue the run; a response that was interrupted is requested again."""

    def answer(request: Any) -> Reply | str:
        return "Done." if request.results else Reply(*world.calls)

    agent = Agent(model_on(wire, via=Scripted(answer, strict=True)), world.tools, name="shared")

    def decide(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ApprovalRequest) and event.call_id in {one.call_id for one in running.waiting}:
            assert isinstance(world, Repository)
            running.decide(event.call_id, world.is_approved)

    _, run = drive(lambda prefix: getattr(agent, f"{prefix}stream")("Go.", log=store, run_id="r"), mode, decide)
    return run


def crash_and_continue(
    world: Files | Repository, wire: str, mode: str, path: Path, point: Point, number: int
) -> tuple[Any, bool]:
    """A run that crashes at a visit of a point and continues in another process; whether it came that far."""
    clock = FakeClock()
    with closing(SQLiteStore(path, clock=clock)) as store, crash_at(point, number=number):
        try:
            return run_in(world, wire, mode, store), False
        except Crashed:
            clock.advance(3600)
    with closing(SQLiteStore(path, clock=clock)) as store:
        return run_in(world, wire, mode, store), True


@sync_and_async
@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize("name", WORLDS)
def test_calls_run_as_if_in_order_though_the_process_dies_between_two_events(
    name: str, wire: str, mode: str, tmp_path: Path, record_property: Any
) -> None:
    crashes = 0
    for point in POINTS:
        for number in range(1, MOST):
            world = WORLDS[name]()
            run, is_crashed = crash_and_continue(world, wire, mode, tmp_path / f"{point}{number}.db", point, number)
            assert run.finish_reason == "answered", (point, number, run.why)
            [results] = [[one.text for one in message.results] for message in run.messages if message.results]
            world.judge(results, is_crashed=is_crashed)
            assert check(run.messages) == []
            if not is_crashed:
                break
            crashes += 1
        else:
            raise AssertionError("the run never reached its end")
    assert crashes >= 10
    record_property("crashes", crashes)

"""A run in sync code, which the loop of another thread drives: what its reader, Ctrl-C and garbage collection see."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import Any

import pytest

import penstock.agent.driver.sync_driver as module
from penstock import ToolEnd, ToolStart, UsageError, tool
from penstock.testing import Reply, call, wait
from penstock.tools.source import Listing, ToolSource
from penstock.transport.threads.loop_thread import DriverLoop, LoopThread, driver_loop, shared_loop
from tests.agent.test_streams import until
from tests.asking import PATIENCE
from tests.leaks import nothing_is_left  # noqa: F401
from tests.scripted_runs import made


def is_running(name: str) -> bool:
    """Whether a thread of this name is alive."""
    return any(thread.name == name for thread in threading.enumerate())


@pytest.mark.parametrize("loop", [driver_loop, shared_loop], ids=["driver", "shared"])
def test_an_iterator_that_is_collected_on_a_loop_does_not_wait_there(
    loop: LoopThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector runs in any thread. The end of the run needs these loops."""
    waits: list[bool] = []
    is_collected = threading.Event()

    @tool(read_only=True)
    async def linger() -> str:
        """Linger."""
        await asyncio.sleep(PATIENCE)
        return "never"

    def note(*_: object) -> None:
        waits.append(loop.is_here)

    def collect() -> None:
        gc.collect()
        is_collected.set()

    run: Any = made([Reply(call("linger"))], linger).stream("Hi.")
    events = iter(run)
    while not isinstance(next(events), ToolStart):
        pass
    cycle: list[Any] = [run, events]
    cycle.append(cycle)
    monkeypatch.setattr(module, "_wait_for", note)
    gc.collect()
    gc.disable()
    try:
        del cycle, run, events
        loop.call_soon(collect)
        assert is_collected.wait(PATIENCE)
    finally:
        gc.enable()
    until(lambda: driver_loop._runs == 0)
    assert waits == []


def test_a_reader_gets_nothing_between_its_request_and_the_start_of_a_tool() -> None:
    """Else a tool with side effects would start while the reader looks at an event, and may want to cancel the run."""
    may_end, has_read = threading.Event(), threading.Event()
    was_early: list[bool] = []

    @tool(read_only=True, parallel=True)
    def look() -> str:
        """Look."""
        may_end.wait(PATIENCE)
        return "seen"

    @tool(parallel=True)
    def send() -> str:
        """Send."""
        return "sent"

    with made([Reply(call("look"), call("send")), "Done."], look, send).stream("Hi.") as run:
        outbox: Any = run._driver._driven.outbox  # type: ignore[union-attr]
        for event in run:
            if isinstance(event, ToolStart) and event.name == "send":
                until(lambda: outbox.items)
                driver_loop.call_soon(lambda: until(lambda: not outbox.items))  # until the reader asks
                may_end.set()
                until(lambda: not is_running("penstock-look"))  # its end is the next thing on the loop
                driver_loop.call_soon(lambda: was_early.append(has_read.wait(0.2)))
            elif isinstance(event, ToolEnd):
                has_read.set()
    assert was_early == [False]
    assert run.output == "Done."


class SlowSource(ToolSource):
    """Lists its tools when it may."""

    is_listed = False

    def __init__(self, *tools: Any) -> None:
        self.may_list = threading.Event()
        self.has_been_asked = threading.Event()
        self._tools = tools

    def listing(self) -> Listing:
        self.has_been_asked.set()
        assert self.may_list.wait(PATIENCE)
        self.is_listed = True
        return self._tools

    async def alisting(self) -> Listing:
        raise NotImplementedError


def test_a_run_whose_start_was_interrupted_does_not_begin_later(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []

    @tool(read_only=True)
    def look() -> str:
        """Look."""
        looks.append(1)
        return "seen"

    source = SlowSource(look)
    source.may_list.set()
    agent = made([Reply(call("look"), wait(0.01)), "Done."], source)
    with agent.stream("Hi.") as run:
        while not isinstance(next(run), ToolStart):
            pass
        stored = run.dump()
    until(lambda: driver_loop._runs == 0)
    source.is_listed = False
    source.may_list.clear()
    source.has_been_asked.clear()
    before = len(looks)

    def interrupt(*_: object) -> None:
        assert source.has_been_asked.wait(PATIENCE)
        raise KeyboardInterrupt

    again = agent.resume(stored)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_wait_for", interrupt)
        with pytest.raises(KeyboardInterrupt):
            again.__enter__()
    source.may_list.set()
    until(lambda: driver_loop._runs == 0)
    until(lambda: not is_running("penstock-tools"))
    assert not again._driver._has_begun  # type: ignore[union-attr]
    with pytest.raises(UsageError, match="start another one"):
        next(again)
    assert len(looks) == before


def test_closing_an_unused_loop_leaves_no_moment_for_a_run_to_begin() -> None:
    class Watched:
        """A number of runs that is looked at only while the loop is locked."""

        def __bool__(self) -> bool:
            assert loop._lock.locked()
            return False

    loop = DriverLoop("penstock-driver")
    loop._runs = Watched()  # type: ignore[assignment]
    loop.close_unused()

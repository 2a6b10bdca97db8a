"""A run in sync code, which the loop of another thread drives: what its reader, Ctrl-C and garbage collection see."""

from __future__ import annotations

import threading
from typing import Any

from penstock import ToolEnd, ToolStart, tool
from penstock.testing import Reply, call
from penstock.transport.threads.loop_thread import DriverLoop, driver_loop
from tests.agent.test_streams import until
from tests.asking import PATIENCE
from tests.leaks import nothing_is_left  # noqa: F401
from tests.scripted_runs import made


def is_running(name: str) -> bool:
    """Whether a thread of this name is alive."""
    return any(thread.name == name for thread in threading.enumerate())


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


def test_closing_an_unused_loop_leaves_no_moment_for_a_run_to_begin() -> None:
    class Watched:
        """A number of runs that is looked at only while the loop is locked."""

        def __bool__(self) -> bool:
            assert loop._lock.locked()
            return False

    loop = DriverLoop("penstock-driver")
    loop._runs = Watched()  # type: ignore[assignment]
    loop.close_unused()

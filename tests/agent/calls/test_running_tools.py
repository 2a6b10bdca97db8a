"""A running tool has one owner: few functions lie between the command to start a tool and the user's function."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock import Agent, Model, tool
from penstock.testing import Reply, Scripted, call
from penstock.transport.threads.loop_thread import driver_loop, shared_loop
from penstock.transport.threads.worker_threads import workers
from tests.scripted_runs import sync_and_async

SOURCE = str(Path(penstock.__file__).parent) + "/"
MAX_START = 10
"""The most functions of the package from the start of a tool, by its command, until the user's function is called."""
MAX_END = 12
"""The most functions from the return of the user's function until the machine is told."""

FIRST, LAST = "agent/calls/running_tools.py RunningTools.start", "run/machine.py Run.tool_done"
WHOLE = {"tools/tool.py Tool.bind", "results.py as_outcome"}
"""The validation of arguments and the conversion of a result count as one function each: what they call depends on the
values."""


class Trace:
    """The functions of the package that were entered, in all threads."""

    def __init__(self) -> None:
        self.functions: list[str] = []
        self._inside = threading.local()  # how many of WHOLE this thread is in

    def note(self, frame: Any, event: str, _: Any) -> None:
        code = frame.f_code
        if not code.co_filename.startswith(SOURCE):
            return
        function = f"{code.co_filename.removeprefix(SOURCE)} {code.co_qualname}"
        depth = getattr(self._inside, "depth", 0)
        if function in WHOLE:
            self._inside.depth = depth + (event == "call") - (event == "return")
        if event == "call" and not depth and not code.co_name.startswith("<") and not self._is_of_reader(frame):
            self.functions.append(function)

    def _is_of_reader(self, frame: Any) -> bool:
        """Whether the reader calls this, which waits for the next event, and not the tool that it has reached."""
        while frame is not None and frame.f_code.co_qualname != "RunningTools.start":
            if frame.f_code.co_qualname in ("Driver._events", "SyncDriver._read"):
                return True
            frame = frame.f_back
        return False


@contextmanager
def traced() -> Generator[Trace]:
    """Trace all threads: those that exist end first, because only new ones report their calls."""
    trace = Trace()
    workers.close()
    for loop in (driver_loop, shared_loop):
        if (thread := loop.close()) is not None:
            thread.join()
    threading.setprofile(trace.note)
    sys.setprofile(trace.note)
    try:
        yield trace
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
        workers.close()
        for loop in (driver_loop, shared_loop):
            loop.close()


@sync_and_async
@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "coroutine"])
def test_a_tool_starts_and_ends_through_few_functions(is_async: bool, mode: str) -> None:
    def pay(amount: int) -> str:
        """Pay."""
        trace.functions.append("user")
        return "paid"

    async def apay(amount: int) -> str:
        """Pay."""
        trace.functions.append("user")
        return "paid"

    function = tool(apay, name="pay") if is_async else tool(pay)
    model = Model("openai-compatible:m", via=Scripted([Reply(call("pay", {"amount": 5})), "Done."] * 2))
    agent = Agent(model, [function])
    with traced() as trace:
        for _ in range(2):  # the first run also starts threads and imports modules
            trace.functions.clear()
            result = agent.run("Go.") if mode == "sync" else asyncio.run(agent.arun("Go."))
            assert result.output == "Done."
    names = trace.functions
    user = names.index("user")
    start = names[names.index(FIRST) : user]
    end = names[user + 1 : names.index(LAST)]
    assert len(start) <= MAX_START, start
    assert len(end) <= MAX_END, end

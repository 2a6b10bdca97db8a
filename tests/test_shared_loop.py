"""The event loop that all plain runs of a process share: clients that tools keep, nested runs, and its end."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Coroutine
from contextvars import copy_context
from typing import Any

import pytest

import penstock
import penstock.log
from penstock import Agent, Limits, Step, tool
from penstock.testing import Loopback, Reply, Scripted, always, call
from penstock.transport.loop_thread import shared_loop
from tests.asking import LONG, PATIENCE, model_at, within
from tests.runs import made
from tests.test_streams import until


def agent_with(function: Any) -> Agent[Any]:
    """An agent that calls the tool once in each run."""
    return made([Reply(call(function.name)), Reply("Done.")] * 10, function)


def model_of() -> penstock.Model:
    return penstock.Model("openai:gpt-5", via=Scripted(["Hello."]))


def loop_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "penstock-loop"]


def test_an_async_client_that_a_tool_keeps_works_in_the_next_run() -> None:
    loops: set[Any] = set()
    queue: asyncio.Queue[int] | None = None
    echoed: list[int] = []
    tasks: list[asyncio.Task[None]] = []

    async def echo(queue: asyncio.Queue[int]) -> None:
        while True:
            echoed.append(await queue.get())

    @tool
    async def look() -> str:
        """Use a client with a task of its own, as clients of databases have."""
        nonlocal queue
        loops.add(asyncio.get_running_loop())
        if queue is None:
            queue = asyncio.Queue()
            tasks.append(asyncio.create_task(echo(queue)))
        queue.put_nowait(len(echoed))
        return "seen"

    agent = agent_with(look)
    for _ in range(3):
        assert agent.run("Hi.").output == "Done."
    until(lambda: len(echoed) == 3)
    assert len(loops) == 1
    assert not tasks[0].done()
    penstock.close()
    until(tasks[0].done)


def test_a_model_that_a_tool_asks_keeps_its_connection() -> None:
    with Loopback(always("Inner.")) as server:
        model = model_at(server)

        @tool
        async def ask() -> str:
            """Ask a model."""
            return (await model.acomplete("Hi.")).text

        agent = agent_with(ask)
        for _ in range(3):
            assert agent.run("Hi.").output == "Done."
    penstock.close()


@pytest.mark.filterwarnings("ignore:agent.run.. in async code")
def test_a_plain_run_within_an_async_tool_of_a_plain_run_ends() -> None:
    @tool
    async def inner() -> str:
        """Wait a moment."""
        await asyncio.sleep(0)
        return "inner"

    @tool
    async def outer() -> str:
        """Run another agent, which blocks the loop."""
        return agent_with(inner).run("Hi.").output

    with within(LONG):
        assert agent_with(outer).run("Hi.").output == "Done."
    until(lambda: len(loop_threads()) <= 1)


def test_a_tool_that_stops_the_loop_does_not_break_later_runs() -> None:
    @tool
    async def stop() -> str:
        """Stop the loop."""
        asyncio.get_running_loop().stop()
        await asyncio.sleep(0)
        return "stopped"

    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    with within(LONG):
        agent_with(stop).run("Hi.")
        assert agent_with(look).run("Hi.").output == "Done."


def test_cancelling_a_run_leaves_the_tools_of_other_runs_alone() -> None:
    has_begun, may_end, ends = threading.Event(), threading.Event(), list[str]()

    @tool
    async def wait() -> str:
        """Wait."""
        has_begun.set()
        await asyncio.to_thread(may_end.wait, PATIENCE)
        return "ended"

    @tool
    async def hang() -> str:
        """Hang."""
        await asyncio.sleep(PATIENCE)
        return "never"

    other = threading.Thread(target=lambda: ends.append(agent_with(wait).run("Hi.").output))
    other.start()
    assert has_begun.wait(PATIENCE)
    with agent_with(hang).stream("Hi.") as run:
        for event in run:
            if event.type == "tool_start":
                run.cancel()
    may_end.set()
    other.join(PATIENCE)
    assert ends == ["Done."]


def test_closing_ends_the_thread_of_the_loop() -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    for _ in range(2):
        assert agent_with(look).run("Hi.").output == "Done."
        assert loop_threads()
        penstock.close()
        until(lambda: not loop_threads())
    assert not shared_loop.is_here


@pytest.mark.filterwarnings("ignore:agent.run")
def test_a_callback_that_fails_on_the_shared_loop_leaves_no_other_loop_behind() -> None:
    store = penstock.log.memory()
    first = Agent(model_of(), name="desk")
    first.run("Hi.", log=store, run_id="r")

    async def fail(text: str) -> None:
        raise ValueError(text)

    again = Agent(model_of(), name="desk", on_text=fail)

    async def read() -> None:
        with pytest.raises(ValueError, match="Hello"):
            again.run("Hi.", log=store, run_id="r")

    shared_loop.begin(read(), copy_context()).result(PATIENCE)
    until(lambda: len(loop_threads()) == 1)
    store.close()


def test_coroutines_that_are_cancelled_before_they_begin_are_closed() -> None:
    """Else Python warns that the coroutine of a user's tool or hook was never awaited."""
    begun: list[Coroutine[Any, Any, bool]] = []

    async def work() -> bool:
        raise AssertionError("it began")

    def never() -> Coroutine[Any, Any, bool]:
        begun.append(work())
        return begun[-1]

    @tool(timeout=0.01)
    def look() -> Any:
        """Look."""
        return never()

    def hook(step: Step) -> Any:
        return never()

    @tool(approval=lambda arguments: never())
    def pay() -> str:
        """Pay."""
        return "paid"

    agents = [
        agent_with(look),
        made(["Hello."], before_step=hook, limits=Limits(hook_seconds=0.01)),
        made([Reply(call("pay")), Reply("Done.")], pay, limits=Limits(hook_seconds=0.01)),
    ]
    for agent in agents:
        release, is_blocked = threading.Event(), threading.Event()

        async def block(is_blocked: threading.Event = is_blocked, release: threading.Event = release) -> None:
            is_blocked.set()
            release.wait(LONG)

        blocking = shared_loop.begin(block(), copy_context())
        assert is_blocked.wait(LONG)
        with agent.stream("Hi.") as run:
            for event in run:
                if event.type == "approval_request":
                    run.decide(event.call_id, False)
                if event.type in ("tool_end", "done"):
                    release.set()
        blocking.result(LONG)
    until(lambda: all(inspect.getcoroutinestate(work) == inspect.CORO_CLOSED for work in begun))
    assert len(begun) == 3

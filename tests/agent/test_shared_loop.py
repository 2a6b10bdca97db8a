"""The event loop that all plain runs of a process share: clients that tools keep, nested runs, and its end."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import httpx2
import pydantic
import pytest

import penstock
import penstock.log
from penstock import Agent, Limits, Step, tool
from penstock.agent.driver import sync_driver
from penstock.testing import Loopback, ReceivedRequest, Reply, Scripted, always, call, say, wait
from penstock.transport.threads.loop_thread import shared_loop
from tests.agent.test_streams import until
from tests.asking import LONG, PATIENCE, model_at, within
from tests.scripted_runs import made


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


# The loop that drives the runs: no code of the user is awaited on it.

NEIGHBOURS = 31


def blocking_agents(block: Any, url: str = "") -> dict[str, Any]:
    """Agents whose async code blocks its event loop, each in another place."""

    async def blocked(*_: Any) -> Any:
        block()

    async def key() -> str:
        block()
        return "key"

    async def check(text: str) -> str:
        block()
        return text

    @tool
    async def look() -> str:
        """Look."""
        block()
        return "seen"

    @tool(approval=blocked)
    def pay() -> str:
        """Pay."""
        return "paid"

    @tool
    def later() -> Any:
        """Return something to be awaited."""
        return blocked()

    return {
        "tool": lambda: agent_with(look),
        "result": lambda: agent_with(later),
        "approval": lambda: agent_with(pay),
        "hook": lambda: made(["Done."], before_step=blocked),
        "guard": lambda: made(["Done."], guard=check),
        "callback": lambda: made(["Done."], on_text=blocked),
        "key": lambda: Agent(penstock.Model("openai-compatible:m", url, key)),
    }


@pytest.mark.parametrize("place", list(blocking_agents(None)))
def test_a_coroutine_that_blocks_delays_no_text_of_other_runs(place: str) -> None:
    """It blocks until all neighbours have streamed to their ends, which they could not do on its loop."""
    has_begun, may_end, is_late = threading.Event(), threading.Event(), list[bool]()

    def block() -> None:
        has_begun.set()
        is_late.append(not may_end.wait(PATIENCE))

    def read(pieces: int) -> str:
        reply = Reply(*(part for _ in range(pieces) for part in (say("piece "), wait(0.001))))
        agent = Agent(penstock.Model("openai:gpt-5", via=Scripted([reply])))
        with agent.stream("Hi.") as run:
            return "".join(event.text for event in run if event.type == "text")

    with Loopback(always("Done.")) as server, ThreadPoolExecutor(NEIGHBOURS + 1) as pool:
        agent = blocking_agents(block, server.base_url("openai-chat"))[place]()
        blocking = pool.submit(lambda: agent.run("Hi.").reason)
        assert has_begun.wait(PATIENCE)
        texts = list(pool.map(read, [20] * NEIGHBOURS, timeout=PATIENCE))
        may_end.set()
        assert blocking.result(PATIENCE) in ("answered", "paused")
    assert texts == ["piece " * 20] * NEIGHBOURS
    assert not any(is_late)


def test_the_driver_of_runs_ends_with_close_but_not_during_a_run() -> None:
    def drivers() -> list[threading.Thread]:
        return [thread for thread in threading.enumerate() if thread.name == "penstock-driver"]

    with made([Reply(say("One "), wait(0.01), say("two."))]).stream("Hi.") as run:
        events = iter(run)
        next(events)
        penstock.close()
        assert len(drivers()) == 1
        list(events)
    assert run.output == "One two."
    penstock.close()
    until(lambda: not drivers())


def test_a_validator_of_the_output_may_run_an_agent() -> None:
    """It is called on the loop of its run, which cannot wait for another run on itself."""

    class Judged(pydantic.BaseModel):
        text: str

        @pydantic.field_validator("text")
        @classmethod
        def judge(cls, text: str) -> str:
            return made(["Good."]).run(text).output

    with within(LONG):
        agent = made([Reply('{"text": "Hm."}')])
        assert agent.run("Hi.", output=Judged).output == Judged(text="Good.")


def test_agents_in_a_thread_pool_share_a_sync_client_of_the_caller() -> None:
    """The client blocks: it is used in threads, also while tools of the same runs are."""

    @tool
    def look(city: str) -> str:
        """Look."""
        return f"Sunny in {city}."

    def answer(request: ReceivedRequest) -> Reply:
        return Reply("Done.") if request.results else Reply(call("look", {"city": "Rome"}))

    threads: set[str] = set()

    def note(request: Any) -> None:
        threads.add(threading.current_thread().name)

    with Loopback(answer) as server, httpx2.Client(event_hooks={"request": [note]}) as client:
        model = penstock.Model("openai-compatible:m", server.base_url("openai-chat"), "-", client=client)
        agent = Agent(model, [look])
        with ThreadPoolExecutor(32) as pool:
            outputs = list(pool.map(lambda _: agent.run("Hi.").output, range(32), timeout=PATIENCE))
    assert outputs == ["Done."] * 32
    assert threads == {"penstock-model"}


def test_cancelling_a_run_breaks_a_read_of_a_sync_client_of_the_caller() -> None:
    with Loopback(Reply(say("One "), wait(60))) as server, httpx2.Client() as client:
        model = penstock.Model("openai-compatible:m", server.base_url("openai-chat"), "-", client=client)
        with within(LONG), Agent(model).stream("Hi.") as run:
            for event in run:
                if event.type == "text":
                    run.cancel()
    assert run.finish_reason == "cancelled"


def test_an_async_client_is_refused_in_sync_code() -> None:
    model = penstock.Model("openai-compatible:m", "http://127.0.0.1:9/v1", "-", client=httpx2.AsyncClient())
    with pytest.raises(penstock.UsageError, match="needs a sync client"):
        Agent(model).run("Hi.")


@pytest.mark.filterwarnings("ignore:agent.run.. in async code")
def test_a_plain_run_works_where_an_event_loop_is_running() -> None:
    """As in a cell of a notebook."""

    @tool
    async def look() -> str:
        """Look."""
        await asyncio.sleep(0)
        return "seen"

    async def cell() -> str:
        return agent_with(look).run("Hi.").output

    with within(LONG):
        assert asyncio.run(cell()) == "Done."


def test_a_look_at_a_run_happens_once_also_if_its_loop_is_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller looks itself then, and the loop does not do it again when it has time."""
    monkeypatch.setattr(sync_driver, "_LOOK_SECONDS", 0.05)
    looks: list[int] = []
    is_busy, may_go_on = threading.Event(), threading.Event()

    def block() -> None:
        is_busy.set()
        may_go_on.wait(LONG)

    with made(["Hi."]).stream("Go.") as run:
        next(iter(run))
        driver: Any = run._driver
        driver._dispatcher.loop.call_soon(block)
        assert is_busy.wait(LONG)
        driver.call(lambda: looks.append(1))
        may_go_on.set()
        driver.call(lambda: None)  # the loop has come to everything before it
        assert looks == [1]

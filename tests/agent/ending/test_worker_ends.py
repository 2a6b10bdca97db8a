"""Whatever ends a worker of a run reaches whoever waits for it, and a run that is dropped stops."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from penstock import Agent, Done, Model, PenstockError, StreamEvent, ToolStart, tool
from penstock.testing import Loopback, Reply, Scripted, call, say, wait
from tests.leaks import nothing_is_left  # noqa: F401
from tests.scripted_runs import NAMES, SOON, end_of, events_of, made, sync_and_async

# -- ends of workers ---------------------------------------------------------------------------------------------------


class Odd(BaseException):
    """An exception that `except Exception` does not catch."""


def failing(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise error

    return fail


ERRORS = [Odd("stop"), asyncio.CancelledError("stop"), GeneratorExit("stop"), SystemExit("stop"), ValueError("stop")]
any_error = pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)


def in_time(work: Callable[[], Any]) -> Any:
    """The result of this, or its exception; it must not hang."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result(SOON)


def end_in_time(agent: Agent, mode: str) -> Done:
    return end_of(in_time(lambda: events_of(agent, mode)))


@sync_and_async
@any_error
def test_what_a_scripted_function_raises_ends_the_run(error: BaseException, mode: str) -> None:
    done = end_in_time(made(failing(error)), mode)
    assert done.reason in ("error", "cancelled")
    assert "stop" in done.why or mode == "async"


@sync_and_async
def test_a_failed_test_inside_a_script_is_an_error_of_the_run(mode: str) -> None:
    def script(request: Any) -> Any:
        pytest.fail("not this request")

    agent = made(script)
    with pytest.raises(RuntimeError, match="not this request") as raised:
        in_time(lambda: agent.run("Go.") if mode == "sync" else asyncio.run(agent.arun("Go.")))
    assert isinstance(raised.value.__cause__, pytest.fail.Exception)


@sync_and_async
@any_error
@pytest.mark.parametrize("read_only", [False, True])
def test_what_an_approval_predicate_raises_does_not_hang(read_only: bool, error: BaseException, mode: str) -> None:
    ran: list[str] = []

    @tool(approval=failing(error), read_only=read_only)
    def pay() -> str:
        """Pay."""
        ran.append("pay")
        return "paid"

    done = end_in_time(made([Reply(call("pay")), "Done."], pay), mode)
    assert done.reason in ("error", "paused", "cancelled")
    assert not ran


@any_error
def test_what_an_http_hook_raises_ends_the_run(error: BaseException) -> None:
    with Loopback(["Hi."]) as server, httpx2.Client(event_hooks={"response": [failing(error)]}) as client:
        agent = Agent(Model("openai-compatible:m", server.base_url("openai-chat"), "-", client=client))
        assert end_in_time(agent, "sync").reason == "error"


@any_error
def test_what_an_async_http_hook_raises_ends_the_run(error: BaseException) -> None:
    async def hook(_: Any) -> None:
        raise error

    async def read(server: Loopback) -> list[StreamEvent]:
        async with httpx2.AsyncClient(event_hooks={"response": [hook]}) as client:
            agent = Agent(Model("openai-compatible:m", server.base_url("openai-chat"), "-", client=client))
            async with asyncio.timeout(SOON), agent.astream("Go.") as running:
                return [event async for event in running]

    with Loopback(["Hi."]) as server:
        assert end_of(asyncio.run(read(server))).reason in ("error", "cancelled")


@sync_and_async
@any_error
def test_what_a_callback_raises_reaches_the_reader(error: BaseException, mode: str) -> None:
    agent = made(["Hi."], on_text=failing(error))
    with pytest.raises(type(error)):
        in_time(lambda: events_of(agent, mode))


# -- runs that are dropped ---------------------------------------------------------------------------------------------


def payments() -> tuple[list[int], Any]:
    paid: list[int] = []

    @tool
    def pay(n: int) -> str:
        """Pay."""
        paid.append(n)
        return "paid"

    return paid, pay


def paying(count: int = 5) -> Iterator[Reply]:
    for n in range(count):
        yield Reply(say("Pay."), call("pay", {"n": n}))
    yield Reply("Done.")


def dropped(mode: str, start: Callable[[str], Any], events: int) -> None:
    """Read some events of a run and drop it; it must be freed."""
    if mode == "sync":
        running = start("")
        running.__enter__() if events == 0 else None
        for _ in range(events):
            next(running)
        freed = weakref.ref(running)
        del running
        assert freed() is None
        return

    async def read() -> None:
        running = start("a")
        if events == 0:
            await running.__aenter__()
        for _ in range(events):
            await anext(running)
        freed = weakref.ref(running)
        del running
        await asyncio.sleep(0.1)
        assert freed() is None

    asyncio.run(read())


def wait_until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@sync_and_async
@pytest.mark.parametrize("events", [0, 1, 2, 4, 8])
def test_a_run_that_is_dropped_is_freed_and_has_no_effect(events: int, mode: str) -> None:
    paid, pay = payments()
    script = Scripted(list(paying()), pace=0.002)
    agent = Agent(Model(NAMES["openai-chat"], via=script), [pay])
    dropped(mode, lambda prefix: getattr(agent, f"{prefix}stream")("Go."), events)
    already = list(paid)
    requests = len(script.requests)
    time.sleep(0.1)
    assert (paid, len(script.requests)) == (already, requests)
    assert len(paid) <= 1


@sync_and_async
def test_the_connection_of_a_dropped_run_is_closed(mode: str) -> None:
    with Loopback([Reply(say("Hm."), wait(60))]) as server:
        agent = Agent(Model("openai-compatible:m", server.base_url("openai-chat"), "-"))
        dropped(mode, lambda prefix: getattr(agent, f"{prefix}stream")("Go."), 2)
        wait_until(lambda: not [t for t in threading.enumerate() if t.name == "penstock-model"])


def test_a_run_in_a_reference_cycle_is_dropped_too() -> None:
    class Holder:
        pass

    agent = made([Reply(say("Hm."), wait(60))])
    holder = Holder()
    holder.run, holder.me = agent.stream("Go."), holder  # type: ignore[attr-defined]
    next(holder.run), next(holder.run)  # type: ignore[attr-defined]
    del holder
    gc.collect()
    wait_until(lambda: not [t for t in threading.enumerate() if t.name == "penstock-model"])


@sync_and_async
def test_an_iterator_keeps_its_run_alive(mode: str) -> None:
    agent = made([Reply(say("One two three.")), "Done."])

    async def read() -> list[StreamEvent]:
        return [event async for event in agent.astream("Go.")]

    events = list(agent.stream("Go.")) if mode == "sync" else asyncio.run(read())
    assert end_of(events).reason == "answered"


def test_an_async_run_whose_loop_is_closed_does_nothing_more() -> None:
    paid, pay = payments()
    script = Scripted(list(paying()))
    agent = Agent(Model(NAMES["openai-chat"], via=script), [pay])
    held: list[Any] = []

    async def read() -> None:
        held.append(agent.astream("Go."))
        while not isinstance(await anext(held[0]), ToolStart):
            pass

    asyncio.run(read())
    assert (paid, len(script.requests)) == ([], 1)
    held[0].cancel("too late")
    assert held[0].finish_reason == "cancelled"
    assert held[0].messages[-1].results


def test_a_run_that_was_never_begun_leaves_nothing() -> None:
    agent = made(["Hi."])
    before = threading.active_count()
    for _ in range(10):
        agent.stream("Go.")
        agent.astream("Go.")
    assert threading.active_count() == before
    with pytest.raises(PenstockError):
        agent.stream("")

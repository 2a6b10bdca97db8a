"""When tools ran: `ToolEnd.started` and `ToolEnd.seconds`, which the driver measures."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import penstock.log
from penstock import Agent, StreamEvent, ToolCall, ToolEnd, ToolStart, tool
from penstock.log.take_up import read_log
from penstock.run.events import decode_logged, encode, innermost
from penstock.run.rebuild import rebuild
from penstock.testing import Reply, call, say
from tests.scripted_runs import SOON, Bench, drive, events_of, made, script, streaming, sync_and_async

NAP = 0.05


def plain() -> str:
    """Take a nap in a thread."""
    time.sleep(NAP)
    return "slept"


async def on_the_loop() -> str:
    """Take a nap in a task."""
    await asyncio.sleep(NAP)
    return "slept"


def generator() -> Iterator[str]:
    """Take a nap between two reports."""
    yield "first"
    time.sleep(NAP)
    yield "slept"


async def async_generator() -> AsyncIterator[str]:
    """Take a nap between two reports, in a task."""
    yield "first"
    await asyncio.sleep(NAP)
    yield "slept"


def coroutine() -> Any:
    """Return something to await."""
    return on_the_loop()


def raising() -> str:
    """Take a nap, and fail."""
    time.sleep(NAP)
    raise ValueError("no luck")


def ends(events: list[StreamEvent]) -> list[ToolEnd]:
    return [event for event in map(innermost, events) if isinstance(event, ToolEnd)]


@sync_and_async
@pytest.mark.parametrize("function", [plain, on_the_loop, generator, async_generator, coroutine, raising])
def test_the_end_of_a_tool_says_when_its_function_ran(function: Any, mode: str) -> None:
    before = time.time()
    [end] = ends(events_of(made([Reply(call(function.__name__, {})), Reply("Done.")], tool(function)), mode))
    assert end.started is not None
    assert end.seconds is not None
    assert before <= end.started <= end.started + end.seconds <= time.time() + 0.01
    assert end.seconds >= NAP * 0.9


@sync_and_async
def test_a_tool_that_returns_at_once_is_not_timed_until_its_call_is_confirmed(mode: str) -> None:
    """The reader holds the response back after the tool has returned: `seconds` is the time of the function alone."""
    ended = threading.Event()

    @tool(read_only=True)
    def look() -> str:
        """Look."""
        ended.set()
        return "seen"

    def hold(_running: Any, event: StreamEvent) -> Any:
        if not isinstance(event, ToolStart):
            return None
        if mode == "async":
            return asyncio.sleep(0.2)
        ended.wait(SOON)
        time.sleep(0.2)
        return None

    agent = made([Reply(call("look", {}), say("Text. ")), Reply("Done.")], look)
    begin = time.monotonic()
    [end] = ends(drive(streaming(agent), mode, hold)[0])
    assert time.monotonic() - begin >= 0.2
    assert end.seconds is not None
    assert end.seconds < 0.15


@sync_and_async
def test_a_call_that_did_not_run_has_no_time(mode: str) -> None:
    found = {end.name: end.seconds for end in ends(events_of(made(script(), *Bench().tools), mode))}
    assert found.pop("nothing") is None
    assert all(seconds is not None for seconds in found.values())


@sync_and_async
def test_a_tool_that_is_late_ran_until_its_timeout(mode: str) -> None:
    @tool(timeout=NAP)
    async def slow() -> str:
        """Take too long."""
        await asyncio.sleep(SOON)
        return ""

    [end] = ends(events_of(made([Reply(call("slow", {})), Reply("Done.")], slow), mode))
    assert end.seconds is not None
    assert 0 < end.seconds < SOON  # it may begin after its timer has


@sync_and_async
@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize("has_log", [False, True])
def test_a_cancelled_tool_ran_until_then(mode: str, is_nested: bool, has_log: bool) -> None:
    began = threading.Event()

    @tool(read_only=True)
    async def slow() -> str:
        """Run until it is cancelled."""
        began.set()
        await asyncio.sleep(SOON)
        return ""

    def cancel(running: Any, event: StreamEvent) -> Any:
        if isinstance(innermost(event), ToolStart) and innermost(event).name == "slow":  # type: ignore[union-attr]
            return _cancel_later(running) if mode == "async" else _cancel(running)
        return None

    async def _cancel_later(running: Any) -> None:
        await asyncio.sleep(2 * NAP)
        running.cancel()

    def _cancel(running: Any) -> None:
        began.wait(SOON)
        time.sleep(NAP)
        running.cancel()

    agent = made([Reply(call("slow", {}))], slow, name="agent")
    if is_nested:
        outer = [Reply(call("agent", {"prompt": "Go."}))]
        agent = made(outer, agent.as_tool(description="Sleep."), name="outer")
    log: Any = {"log": penstock.log.memory(), "run_id": "r"} if has_log else {}
    events, _ = drive(lambda prefix: getattr(agent, f"{prefix}stream")("Go.", **log), mode, cancel)
    found = {end.name: end for end in ends(events)}
    assert found.keys() == ({"slow", "agent"} if is_nested else {"slow"})
    for end in found.values():
        assert end.ending in ("cancelled", "discarded")
        assert end.started is not None
        assert end.seconds is not None
        assert 0 < end.seconds < SOON  # it may begin after its timer has
        assert end.started + end.seconds <= time.time() + 0.01


@sync_and_async
def test_the_time_of_an_agent_is_that_of_its_run(mode: str) -> None:
    inner = made([Reply(call("plain", {})), Reply("Slept.")], tool(plain), name="inner")
    agent = made([Reply(call("inner", {"prompt": "Sleep."})), Reply("Done.")], inner.as_tool(description="Sleep."))
    nap, whole = ends(events_of(agent, mode))
    assert (nap.name, whole.name) == ("plain", "inner")
    assert nap.started is not None
    assert whole.started is not None
    assert whole.started <= nap.started
    assert (whole.seconds or 0) >= (nap.seconds or 0) >= NAP * 0.9


def test_the_log_has_the_times_and_a_rebuilt_run_too() -> None:
    store = penstock.log.memory()
    agent = made([Reply(call("plain", {})), Reply("Done.")], tool(plain), name="agent")
    with agent.stream("Sleep.", log=store, run_id="r") as run:
        [end] = ends(list(run))
    logged = [event for _, _, event in read_log(store, "r")]
    [place] = [place for place, event in enumerate(logged) if isinstance(event, ToolEnd)]
    in_log = logged[place]
    assert isinstance(in_log, ToolEnd)
    assert (in_log.started, in_log.seconds) == (end.started, end.seconds)
    [execution] = rebuild(logged[: place + 1], agent.config.policies).state.executions.table
    assert (execution.end.started, execution.end.seconds) == (end.started, end.seconds)


def test_an_event_of_an_older_version_has_no_times() -> None:
    old = b'{"type":"tool_end","key":"1.0","result":{"type":"tool_result","call_id":"c","name":"look","content":[]}}'
    end = decode_logged(old)
    assert isinstance(end, ToolEnd)
    assert (end.started, end.seconds) == (None, None)
    assert b"seconds" not in encode(end)
    start = decode_logged(b'{"type":"tool_start","key":"1.0","call_id":"c","name":"look","arguments":{}}')
    assert isinstance(start, ToolStart)
    assert start.order == "effect"


def test_a_start_says_how_its_call_is_ordered() -> None:
    @tool(read_only=True)
    def look() -> str:
        """Look."""
        return "seen"

    def write() -> str:
        """Write."""
        return "written"

    tools = [look, tool(write), tool(write, name="alone", parallel=False), tool(write, name="free", parallel=True)]
    calls = [call(name, {}) for name in ("look", "write", "alone", "free")]
    events = events_of(made([Reply(*calls), Reply("Done.")], *tools), "sync")
    found = {event.name: event.order for event in events if isinstance(event, ToolStart)}
    assert found == {"look": "read", "write": "effect", "alone": "alone", "free": "free"}


def test_the_model_reads_nothing_of_the_times() -> None:
    agent: Agent = made([Reply(call("plain", {})), Reply("Done.")], tool(plain))
    result = agent.run("Sleep.")
    assert [part for message in result.messages for part in message.parts if isinstance(part, ToolCall)]
    assert "started" not in str(result.messages)

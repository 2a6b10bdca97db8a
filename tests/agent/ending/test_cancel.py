"""Runs that are cancelled or closed: they end soon, with a valid history, and leave no thread, task or socket."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from penstock import Agent, Context, Done, Limits, Message, Model, StreamEvent, Text, ToolProgress, as_tool, tool
from penstock.agent.driver.driver import MAX_WAIT
from penstock.testing import Hang, Loopback, Reply, always, call, say, wait
from tests.agent.ending.test_cancel_stream import Staller
from tests.asking import AT_ONCE, serving
from tests.budget import places
from tests.leaks import SHARED, nothing_is_left  # noqa: F401
from tests.scripted_runs import (
    MODES,
    SOON,
    Bench,
    check_history,
    check_pairs,
    drive,
    end_of,
    events_of,
    every_wire,
    made,
    on,
    script,
    streaming,
    sync_and_async,
)

# -- cancelled anywhere ------------------------------------------------------------------------------------------------


def cancelled_at(stop: int, wire: str, mode: str) -> list[StreamEvent]:
    """The events of a run that is cancelled at the event of that number; its callbacks are checked too."""
    count, called, bench = iter(range(1000)), Counter[str](), Bench()

    def cancel(running: Any, event: StreamEvent) -> None:
        if next(count) == stop:
            running.cancel()

    agent = on(
        wire, script(), *bench.tools, on_tool_start=lambda id, *_: called.update([f"start {id}"]),
        on_tool_end=lambda id, _: called.update([f"end {id}"]),
    )  # fmt: skip
    events, running = drive(streaming(agent), mode, cancel)
    end_of(events)
    check_pairs(events)
    check_history(running.messages)
    starts = [name for name in called if name.startswith("start ")]
    assert all(called[name.replace("start", "end")] == called[name] for name in starts)
    assert all(times == 1 for times in bench.ran.values())
    return events


@sync_and_async
@every_wire
def test_every_start_has_an_end_when_a_run_is_cancelled_at_any_event(wire: str, mode: str) -> None:
    events = cancelled_at(200, wire, mode)  # it is over before
    assert end_of(events).reason == "answered"
    for stop in places(len(events), few=15):
        cancelled_at(stop, wire, mode)


@sync_and_async
@pytest.mark.parametrize("is_async", [False, True])
def test_a_tool_may_cancel_its_run(mode: str, is_async: bool) -> None:
    held: list[Any] = []

    @tool
    def stop() -> str:
        """Stop."""
        held[0].cancel("enough")
        return "stopped"

    @tool(name="stop")
    async def astop() -> str:
        """Stop."""
        held[0].cancel("enough")
        return "stopped"

    agent = made(always(Reply(call("stop"))), astop if is_async else stop)
    if mode == "sync":
        held.append(agent.stream("Go."))
        with held[0] as running:
            events = list(running)
    else:

        async def read() -> list[StreamEvent]:
            held.append(agent.astream("Go."))
            async with asyncio.timeout(SOON), held[0] as running:
                return [event async for event in running]

        events = asyncio.run(read())
    done = end_of(events)
    assert (done.reason, done.why) == ("cancelled", "enough")


# -- during a request --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reply", [Hang(), Reply(say("Hm."), wait(60)), Reply(wait(60), "Hm.")])
@sync_and_async
def test_a_model_that_hangs_can_be_cancelled_without_leaks(reply: Any, mode: str) -> None:
    with Loopback([reply]) as server:
        agent = Agent(Model("openai-compatible:m", server.base_url("openai-chat"), "-"))
        began = time.monotonic()
        if mode == "sync":
            with agent.stream("Go.") as running:
                threading.Timer(0.2, running.cancel).start()
                events = list(running)
        else:

            async def read() -> list[StreamEvent]:
                async with agent.astream("Go.") as running:
                    asyncio.get_running_loop().call_later(0.2, running.cancel)
                    events = [event async for event in running]
                assert asyncio.all_tasks() == {asyncio.current_task()}
                return events

            events = asyncio.run(read())
        assert end_of(events).reason == "cancelled"
        assert time.monotonic() - began < 2.5


@pytest.mark.parametrize("answers", [0, 1], ids=["new", "reused"])
def test_a_sync_run_that_is_cancelled_before_the_headers_leaves_no_thread_and_no_socket(answers: int) -> None:
    staller = Staller(answers)
    with serving(staller) as url:
        agent = Agent(Model("openai-compatible:m", url, "-"))
        for _ in range(answers):
            assert agent.run("Go.").output == "Hi."
        with agent.stream("Go.") as running, ThreadPoolExecutor() as pool:

            def cancel() -> None:
                assert staller.reached.wait(SOON)
                servers = {one for one in threading.enumerate() if not one.name.startswith("penstock")}
                running.cancel()
                end = time.monotonic() + AT_ONCE
                while {one for one in threading.enumerate() if one.name not in SHARED} - servers:
                    assert time.monotonic() < end
                    time.sleep(0.01)
                staller.may_go_on.set()
                assert staller.gone.wait(AT_ONCE)

            cancelling = pool.submit(cancel)
            assert end_of(list(running)).reason == "cancelled"
            cancelling.result()
    assert staller.connections == 1


# -- while tools run ---------------------------------------------------------------------------------------------------


@sync_and_async
def test_leaving_the_loop_during_a_tool_ends_the_run(mode: str) -> None:
    began, released = threading.Event(), threading.Event()

    @tool
    def hang(context: Context[Any]) -> str:
        """Hang."""
        context.report("started")
        began.set()
        released.wait(20)
        return "late"

    agent = made([Reply(call("hang")), Reply("Never.")], hang)
    if mode == "sync":
        with agent.stream("Go.") as running:
            for event in running:
                if isinstance(event, ToolProgress):
                    break
        messages = running.messages
    else:

        async def read() -> list[Message]:
            async with agent.astream("Go.") as running:
                async for event in running:
                    if isinstance(event, ToolProgress):
                        break
            assert asyncio.all_tasks() == {asyncio.current_task()}
            return running.messages

        messages = asyncio.run(read())
    released.set()
    assert "may have had an effect" in messages[-1].results[0].text
    check_history(messages)


def test_a_cancelled_async_tool_stops_in_a_sync_run_too() -> None:
    started, stopped = threading.Event(), threading.Event()

    @tool
    async def hang(context: Context[Any]) -> str:
        """Hang."""
        context.report("started")
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()
        return "late"

    with made([Reply(call("hang"))], hang).stream("Go.") as running:
        for event in running:
            if isinstance(event, ToolProgress):
                assert started.wait(SOON)
                running.cancel()
    assert stopped.wait(SOON)
    assert running.finish_reason == "cancelled"


def test_closing_a_sync_run_waits_for_its_cancelled_async_tools() -> None:
    ended = threading.Event()
    began = threading.Event()

    @tool
    async def slow_to_end(context: Context[Any]) -> str:
        """Take a while to end."""
        context.report("started")
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(MAX_WAIT / 3)
            ended.set()
        return "late"

    with made([Reply(call("slow_to_end"))], slow_to_end).stream("Go.") as running:
        for event in running:
            if isinstance(event, ToolProgress):
                assert began.wait(SOON)
                break
    assert ended.is_set()
    assert not any("slow_to_end" in thread.name for thread in threading.enumerate())


def test_a_generator_tool_is_stopped_when_its_run_is_cancelled() -> None:
    counted: list[int] = []

    @tool
    def count() -> Iterator[int]:
        """Count for ever."""
        for number in range(10**9):
            counted.append(number)
            yield number
            time.sleep(0.001)

    for mode in MODES:
        agent = made([Reply(call("count")), Reply("Done.")], count, limits=Limits(seconds=0.1))
        assert end_of(events_of(agent, mode)).reason == "limit"  # and the fixture waits for the thread


# -- tools that do not listen ------------------------------------------------------------------------------------------


class Deaf:
    """A tool that ignores cancellation until it is released."""

    def __init__(self) -> None:
        self.has_begun, self.released, self.has_ended = threading.Event(), threading.Event(), threading.Event()
        self._net = threading.Timer(SOON, self.released.set)

    async def __call__(self, context: Context[Any]) -> str:
        """Go on."""
        context.report("started")
        self.has_begun.set()
        while not self.released.is_set():
            try:
                await asyncio.sleep(0.01)
            except asyncio.CancelledError:
                pass
        self.has_ended.set()
        return "late"

    def __enter__(self) -> Deaf:
        self._net.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._net.cancel()
        self.released.set()
        assert self.has_ended.wait(SOON)


async def beats(gaps: list[float]) -> None:
    """How long a loop kept others waiting."""
    while True:
        began = time.monotonic()
        await asyncio.sleep(0.01)
        gaps.append(time.monotonic() - began)


@sync_and_async
@pytest.mark.parametrize("way", ["timeout", "cancel", "leave"])
def test_a_tool_that_ignores_cancellation_does_not_block_the_run(way: str, mode: str) -> None:
    gaps: list[float] = []

    def read_sync(agent: Agent, deaf: Deaf) -> Any:
        with agent.stream("Go.") as running:
            for event in running:
                if isinstance(event, ToolProgress) and way != "timeout":
                    assert deaf.has_begun.wait(SOON)
                    if way == "leave":
                        break
                    running.cancel()
        return running

    async def read_async(agent: Agent, deaf: Deaf) -> Any:
        heart = asyncio.create_task(beats(gaps))
        async with agent.astream("Go.") as running:
            async for event in running:
                if isinstance(event, ToolProgress) and way != "timeout":
                    assert await asyncio.to_thread(deaf.has_begun.wait, SOON)
                    if way == "leave":
                        break
                    running.cancel()
        heart.cancel()
        assert not deaf.has_ended.is_set()
        deaf.released.set()  # before the loop is closed, which waits for it
        return running

    with Deaf() as deaf:
        late = as_tool(deaf, timeout=0.1 if way == "timeout" else None, name="deaf")
        agent = made([Reply(call("deaf")), Reply("Done.")], late)
        began = time.monotonic()
        running = read_sync(agent, deaf) if mode == "sync" else asyncio.run(read_async(agent, deaf))
        assert time.monotonic() - began < MAX_WAIT + SOON / 2
    assert running.finish_reason == ("answered" if way == "timeout" else "cancelled")
    [result] = running.messages[2].results
    assert "may have had an effect" in result.text
    assert max(gaps, default=0) < MAX_WAIT
    check_history(running.messages)


def test_closing_waits_once_for_all_tools_that_ignore_cancellation() -> None:
    with Deaf() as deaf:
        with made([Reply(call("deaf")), Reply("Done.")], as_tool(deaf, name="deaf")).stream("Go.") as running:
            for event in running:
                if isinstance(event, ToolProgress):
                    assert deaf.has_begun.wait(SOON)
                    running.cancel()
            began = time.monotonic()  # the loop has ended, and waited
        assert time.monotonic() - began < MAX_WAIT / 2


# -- interrupts --------------------------------------------------------------------------------------------------------


def test_an_interrupt_in_the_loop_of_a_sync_run_ends_it() -> None:
    running = made([Reply(say("Hm."), wait(60))]).stream("Go.")

    def read() -> None:
        with running:
            for event in running:
                if isinstance(event, Text):
                    raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        read()
    assert running.finish_reason == "cancelled"


def test_a_run_whose_reading_task_is_cancelled_ends() -> None:
    async def run() -> Done:
        ours = asyncio.current_task()
        async with asyncio.timeout(SOON), made([Reply(say("One."), wait(SOON), say("Two."))]).astream("Go.") as running:
            async for _ in running:
                for task in asyncio.all_tasks():
                    if task is not ours:
                        task.cancel()
        assert running.done is not None
        return running.done

    assert asyncio.run(run()).reason == "cancelled"


INTERRUPTED = """
import asyncio, os, signal, time
from penstock import Agent, Model
from penstock.testing import Reply, Scripted, call

async def busy() -> str:
    "Be busy."
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.2)
    return "done"

agent = Agent(Model("openai-compatible:m", via=Scripted([Reply(call("busy")), Reply("Done.")])), [busy])
try:
    asyncio.new_event_loop().run_until_complete(agent.arun("Go."))
except KeyboardInterrupt:
    print("interrupted")
else:
    print("went on")
"""


def test_ctrl_c_is_not_the_result_of_a_tool() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False, timeout=30)
    assert done.stdout == "interrupted\n", done.stderr

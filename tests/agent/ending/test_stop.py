"""Stop means stop: the reader of a run is a gate, and after `cancel()` nothing starts any more."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from penstock import (
    Agent,
    Context,
    Done,
    Finish,
    Limits,
    Message,
    Model,
    StepEnd,
    StepStart,
    StreamEvent,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    ToolEnd,
    ToolProgress,
    ToolStart,
    UsageError,
    check,
    collect,
    tool,
)
from penstock.agent.calls.call_reviews import MAX_CHECKS
from penstock.testing import Loopback, Reply, Scripted, call, say
from penstock.tools.policy import ToolPolicy
from tests.budget import places
from tests.leaks import nothing_is_left  # noqa: F401
from tests.scripted_runs import NAMES, SOON, Machine, check_history, end_of, made, model_on, sync_and_async

WIRES = ["openai-chat", "anthropic", "gemini"]
three_wires = pytest.mark.parametrize("wire", WIRES)
ways = pytest.mark.parametrize("way", ["scripted", "loopback"])


def replies() -> list[Reply]:
    """Three steps, with a tool that may start early, tools with side effects, and a call that cannot run."""
    return [
        Reply(say("Let me look at it."), call("look", {"city": "Rome"}), call("pay", {"euros": 1})),
        Reply(say("And more."), call("pay", {"euros": 2}), call("nothing", {}), call("slow", {})),
        Reply("All is done."),
    ]


class Effects:
    """Tools that note what they did, and what they would have done after a cancel."""

    def __init__(self) -> None:
        self.began: list[str] = []

        @tool(read_only=True)
        def look(city: str) -> str:
            """Look at a city."""
            self.began.append(f"look {city}")
            return "sunny"

        @tool
        def pay(euros: int) -> str:
            """Pay."""
            self.began.append(f"pay {euros}")
            return "paid"

        @tool
        async def slow(context: Context[Any]) -> str:
            """Take a while."""
            self.began.append("slow")
            context.report("half")
            return "slow"

        self.tools = [look, pay, slow]

    @property
    def effects(self) -> list[str]:
        return [name for name in self.began if not name.startswith("look")]


@contextmanager
def playing(way: str, wire: str, steps: Any, pace: float = 0.002) -> Iterator[tuple[Model, Callable[[], int]]]:
    """A model that plays these steps, and how many requests it has got."""
    if way == "scripted":
        script = Scripted(steps)
        yield model_on(wire, via=script), lambda: len(script.requests)
    else:
        with Loopback(steps, pace=pace) as server:
            yield model_on(wire, server.base_url(wire), "-"), lambda: len(server.requests)


def read(agent: Agent, mode: str, on_event: Callable[[Any, StreamEvent], Any]) -> tuple[list[StreamEvent], Any]:
    """Read a run, and call a function for each of its events."""
    events: list[StreamEvent] = []
    if mode == "sync":
        with agent.stream("Go.") as running:
            for event in running:
                events.append(event)
                on_event(running, event)
        return events, running

    async def aread() -> Any:
        async with asyncio.timeout(SOON * 4), agent.astream("Go.") as running:
            async for event in running:
                events.append(event)
                on_event(running, event)
        return running

    return events, asyncio.run(aread())


class Stop:
    """Cancels a run at the event of a number, and keeps what was known then."""

    def __init__(self, at: int, effects: Effects, requests: Callable[[], int]) -> None:
        self.at = at
        self.is_cancelled = False
        self.seen: list[StreamEvent] = []
        self.before: tuple[list[str], int] = [], 0
        self._effects = effects
        self._requests = requests

    def __call__(self, running: Any, event: StreamEvent) -> None:
        if self.is_cancelled:
            return
        self.seen.append(event)
        if len(self.seen) == self.at + 1:
            running.cancel("guard")
            self.is_cancelled = True
            self.before = list(self._effects.effects), self._requests()

    def check(self, events: list[StreamEvent], messages: list[Message]) -> None:
        """What the law says of a run that was cancelled at this event."""
        after = events[len(self.seen) :]
        assert all(isinstance(event, ToolEnd | StepEnd | Done) for event in after), after
        effects, requests = self.before
        began = self._effects.effects[len(effects) :]  # just before the cancel, in another thread
        cancelled = {r.name for one in messages for r in one.results if "may have had an effect" in r.text}
        assert {name.partition(" ")[0] for name in began} <= cancelled, self.seen[-1]
        assert self._requests() == requests, self.seen[-1]
        done = end_of(events)
        assert (done.reason, done.why) == ("cancelled", "guard"), self.seen[-1]
        assert [e.step for e in events if isinstance(e, StepEnd)] == [
            e.step for e in events if isinstance(e, StepStart)
        ]
        ends = {event.result.call_id: event for event in events if isinstance(event, ToolEnd)}
        started = {event.call_id for event in events if isinstance(event, ToolStart)}
        ahead = {end.call_id for end in ends.values() if end.name == "look"}  # which may start before it is read
        assert {end.call_id for end in after if isinstance(end, ToolEnd)} <= started | ahead
        check_history(messages)
        assert {problem.kind for problem in check(messages)} <= {"invalid_call"}  # one that was cut
        written = "".join(part.text for one in messages for part in one.parts if isinstance(part, Text))
        assert written == "Go." + "".join(event.text for event in self.seen if isinstance(event, Text))
        texts = [result.text for one in messages for result in one.results if result.name == "pay"]
        assert sum("Not run" not in text for text in texts) >= sum(e.startswith("pay") for e in self._effects.effects)


def stopped_at(at: int, way: str, wire: str, mode: str) -> int:
    """Cancel a run at this event, if it has so many, check it, and return how many were read until then."""
    effects = Effects()
    with playing(way, wire, replies()) as (model, requests):
        stop = Stop(at, effects, requests)
        events, running = read(Agent(model, effects.tools), mode, stop)
        if isinstance(stop.seen[-1], Done):
            assert running.finish_reason == "answered" or len(stop.seen) == at + 1
            assert sorted(effects.effects) == ["pay 1", "pay 2", "slow"]
            assert requests() == 3
        else:
            stop.check(events, running.messages)
    return len(stop.seen)


@sync_and_async
@three_wires
@ways
def test_a_cancel_at_any_event_stops_the_run_there(way: str, wire: str, mode: str) -> None:
    length = stopped_at(200, way, wire, mode)  # which it does not reach
    assert 20 < length < 200
    for at in places(length, few=18):
        stopped_at(at, way, wire, mode)


@sync_and_async
@three_wires
def test_a_reader_that_takes_its_time_can_stop_an_effect(wire: str, mode: str) -> None:
    effects = Effects()
    steps = [Reply(say("one two BAD four five"), call("pay", {"euros": 1})), Reply("second")]

    def guard(running: Any, event: StreamEvent) -> None:
        if isinstance(event, Text):
            time.sleep(0.05)
            if "BAD" in event.text:
                running.cancel("guard")

    with playing("loopback", wire, steps, pace=0.005) as (model, requests):
        events, running = read(Agent(model, effects.tools), mode, guard)
        assert (effects.began, requests(), running.finish_reason) == ([], 1, "cancelled")
    texts = [event.text for event in events if isinstance(event, Text)]
    assert "BAD" in texts[-1]
    assert running.text == "".join(texts)


def test_a_cancel_at_each_of_six_earlier_events_is_heard_every_time() -> None:
    for at in range(6):
        for _ in range(30):
            effects = Effects()
            script = Scripted([Reply(say("Pay."), call("pay", {"euros": 1})), Reply("second")])
            stop = Stop(at, effects, lambda script=script: len(script.requests))  # type: ignore[misc]
            events, _ = read(Agent(Model(NAMES["openai-chat"], via=script), effects.tools), "sync", stop)
            assert (effects.began, end_of(events).reason) == ([], "cancelled"), events
            assert len(script.requests) <= 1


@sync_and_async
def test_nothing_happens_before_the_reader_asks(mode: str) -> None:
    effects, script = Effects(), Scripted([Reply(call("pay", {"euros": 1})), "Done."])
    agent = Agent(Model(NAMES["openai-chat"], via=script), effects.tools)

    async def aread() -> tuple[int, list[str]]:
        async with agent.astream("Go.") as running:
            assert isinstance(await anext(running), StepStart)
            await asyncio.sleep(0.05)
            requests = len(script.requests)
            while not isinstance(await anext(running), ToolStart):
                pass
            await asyncio.sleep(0.05)
            return requests, list(effects.began)

    if mode == "async":
        assert asyncio.run(aread()) == (0, [])
        return
    with agent.stream("Go.") as running:
        assert isinstance(next(running), StepStart)
        time.sleep(0.05)
        assert not script.requests
        while not isinstance(next(running), ToolStart):
            pass
        time.sleep(0.05)
        assert not effects.began


@sync_and_async
def test_a_read_only_tool_may_start_before_the_reader_gets_there(mode: str) -> None:
    effects, has_begun = Effects(), threading.Event()

    @tool(read_only=True)
    def peek() -> str:
        """Look."""
        has_begun.set()
        return "seen"

    agent = made([Reply(say("Hm."), call("peek")), "Done."], peek, *effects.tools)
    seen: list[bool] = []

    def on_event(running: Any, event: StreamEvent) -> None:
        if isinstance(event, Text) and not seen and mode == "sync":
            seen.append(has_begun.wait(SOON))

    events, _ = read(agent, mode, on_event)
    assert end_of(events).reason == "answered"
    assert seen == ([True] if mode == "sync" else [])


# -- who cancels -------------------------------------------------------------------------------------------------------


@sync_and_async
@pytest.mark.parametrize("is_async", [False, True])
def test_a_callback_may_cancel(mode: str, is_async: bool) -> None:
    held: list[Any] = []
    effects, script = Effects(), Scripted([Reply(say("one BAD two"), call("pay", {"euros": 1})), "second"])

    def on_text(text: str) -> None:
        if "BAD" in text:
            held[0].cancel("guard")

    async def aon_text(text: str) -> None:
        on_text(text)

    model = Model(NAMES["openai-chat"], via=script)
    agent = Agent(model, effects.tools, on_text=aon_text if is_async else on_text)
    events: list[StreamEvent] = []
    if mode == "sync":
        held.append(agent.stream("Go."))
        with held[0] as running:
            events += running
    else:

        async def aread() -> None:
            held.append(agent.astream("Go."))
            async with asyncio.timeout(SOON), held[0] as running:
                events.extend([event async for event in running])

        asyncio.run(aread())
    assert (end_of(events).reason, effects.began, len(script.requests)) == ("cancelled", [], 1)
    assert not any("BAD" in event.text for event in events if isinstance(event, Text))
    assert "BAD" in held[0].text  # the callback has seen it
    assert all(isinstance(event, StepEnd | Done) for event in events[-2:])


@sync_and_async
def test_another_thread_may_cancel(mode: str) -> None:
    """The reader is busy meanwhile: it gets nothing more, and nothing starts."""
    effects, script = Effects(), Scripted([Reply(say("one two three"), call("pay", {"euros": 1})), "second"])
    agent = Agent(Model(NAMES["openai-chat"], via=script), effects.tools)
    returned: list[bool] = []

    def cancel_elsewhere(running: Any, event: StreamEvent) -> None:
        if isinstance(event, Text) and not returned:
            thread = threading.Thread(target=running.cancel)
            thread.start()
            thread.join(SOON)  # which blocks the loop of an async run
            returned.append(not thread.is_alive())

    events, running = read(agent, mode, cancel_elsewhere)
    assert returned == [True]
    assert (end_of(events).reason, effects.began, len(script.requests)) == ("cancelled", [], 1)
    assert sum(isinstance(event, Text) for event in events) == 1 if mode == "sync" else True
    check_history(running.messages)


@sync_and_async
def test_a_cancel_from_another_thread_closes_the_connection_before_it_returns(mode: str) -> None:
    with Loopback([Reply(say(" ".join(["word"] * 1_000)))], pace=0.02) as server:
        agent = Agent(Model("openai-compatible:m", server.base_url("openai-chat"), "-"))
        has_begun = threading.Event()
        events: list[StreamEvent] = []

        def note(running: Any, event: StreamEvent) -> None:
            events.append(event)
            if isinstance(event, Text) and not has_begun.is_set():
                has_begun.set()
                threading.Thread(target=running.cancel).start()

        began = time.monotonic()
        read(agent, mode, note)
        assert time.monotonic() - began < SOON / 2
    assert end_of(events).reason == "cancelled"


@sync_and_async
def test_a_reader_that_leaves_the_loop_stops_the_run(mode: str) -> None:
    effects, script = Effects(), Scripted([Reply(say("Hm."), call("pay", {"euros": 1})), "second"])
    agent = Agent(Model(NAMES["openai-chat"], via=script), effects.tools)
    if mode == "sync":
        with agent.stream("Go.") as running:
            for event in running:
                if isinstance(event, ToolStart):
                    break
            assert running.finish_reason == "cancelled"
    else:

        async def aread() -> Any:
            async with agent.astream("Go.") as running:
                async for event in running:
                    if isinstance(event, ToolStart):
                        break
            return running

        running = asyncio.run(aread())
    assert (running.finish_reason, effects.began, len(script.requests)) == ("cancelled", [], 1)
    assert "Not run" in running.messages[-1].results[0].text


@sync_and_async
def test_the_time_limit_holds_for_a_reader_that_does_not_read(mode: str) -> None:
    effects, script = Effects(), Scripted([Reply(say("Hm."), call("pay", {"euros": 1})), "second"])
    agent = Agent(Model(NAMES["openai-chat"], via=script), effects.tools, limits=Limits(seconds=0.2))

    async def aread() -> list[StreamEvent]:
        async with agent.astream("Go.") as running:
            events = [await anext(running), await anext(running)]
            await asyncio.sleep(0.4)
            assert running.finish_reason == "limit"
            return events + [event async for event in running._events or ()]  # type: ignore[union-attr]

    if mode == "sync":
        with agent.stream("Go.") as running:
            events = [next(running), next(running)]
            time.sleep(0.4)
            assert running.finish_reason == "limit"
            while not isinstance(events[-1], Done):
                events.append(next(running))
    else:
        events = asyncio.run(aread())
    done = end_of(events)
    assert (done.reason, effects.began) == ("limit", [])
    assert "".join(event.text for event in events if isinstance(event, Text)) == done.output == "Hm."


# -- blocks that are dead ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", ["closed", "call", "turn"])
def test_a_block_is_dead_after_an_invalid_call(start: Any) -> None:
    machine = Machine(look=ToolPolicy(start=start, is_read_only=True))
    machine.feed(
        ToolCallStart(0, "c", "look"),
        ToolCallInvalid(0, "c", "look", "x", "malformed", "no"),
        ToolCallStart(0, "d", "look"),
        ToolCallDelta(0, "{}"),
        ToolCallClosed(0, "d", "look", {}),
        ToolCall("d", "look", {}, "{}", sealed_by="call_end"),
        ToolCallInvalid(0, "e", "look", "y", "cut", "no"),
        Finish("tool_calls"),
    )
    machine.ended()
    assert not machine.starts
    assert [event.result.call_id for event in machine.events if isinstance(event, ToolEnd)] == ["c"]
    assert [part for one in machine.run.state.messages for part in one.parts if isinstance(part, ToolCall)] == []
    assert [[result.call_id for result in one.results] for one in machine.run.state.messages][-1] == ["c"]
    check_history(machine.run.state.messages)


def test_a_block_is_settled_after_its_call() -> None:
    whole = ToolCall("c", "pay", {"n": 1}, '{"n":1}', sealed_by="call_end")
    other = ToolCall("c", "pay", {"n": 2}, '{"n":2}', sealed_by="call_end")
    machine = Machine(pay=ToolPolicy(start="call"))
    machine.feed(whole, other, ToolCallInvalid(0, "c", "pay", "y", "cut", "no"), Finish("tool_calls"))
    machine.ended()
    assert [start.arguments for start in machine.starts] == [{"n": 1}]
    assert collect([whole, other]).tool_calls == [whole]


# -- approval predicates, and many calls -------------------------------------------------------------------------------


class Blocking:
    """An approval predicate that blocks until it is released."""

    def __init__(self) -> None:
        self.is_called, self.released = threading.Event(), threading.Event()

    def __call__(self, arguments: dict[str, Any]) -> bool:
        self.is_called.set()
        self.released.wait(SOON)
        return False


@sync_and_async
@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("by", ["cancel", "limit"])
def test_a_predicate_that_blocks_does_not_delay_a_cancel(by: str, read_only: bool, mode: str) -> None:
    blocking, ran = Blocking(), list[str]()

    @tool(approval=blocking, read_only=read_only)
    def pay() -> str:
        """Pay."""
        ran.append("pay")
        return "paid"

    agent = made([Reply(call("pay")), "Done."], pay, limits=Limits(seconds=0.3 if by == "limit" else None))
    events: list[StreamEvent] = []

    def cancel(running: Any) -> None:
        assert blocking.is_called.wait(SOON)
        if by == "cancel":
            began = time.monotonic()
            running.cancel()
            assert time.monotonic() - began < SOON / 5

    def cancel_elsewhere(running: Any, event: StreamEvent) -> None:
        if isinstance(event, StepStart) and not events:
            events.append(event)
            threading.Thread(target=cancel, args=(running,)).start()

    try:
        began = time.monotonic()
        seen, running = read(agent, mode, cancel_elsewhere)
        assert time.monotonic() - began < SOON / 2
    finally:
        blocking.released.set()
    assert end_of(seen).reason == ("cancelled" if by == "cancel" else "limit")
    assert not ran
    check_history(running.messages)


@sync_and_async
@pytest.mark.parametrize("answer", [True, False])
@pytest.mark.parametrize("start", ["closed", "call", "turn"])
def test_a_predicate_may_be_async(start: Any, answer: bool, mode: str) -> None:
    asked: list[Any] = []

    async def needs(arguments: dict[str, Any]) -> bool:
        await asyncio.sleep(0.01)
        asked.append(arguments)
        return answer

    @tool(approval=needs, read_only=start == "closed", start=start)
    def pay(euros: int) -> str:
        """Pay."""
        return "paid"

    for wire in WIRES:
        script = Scripted([Reply(call("pay", {"euros": 1})), "Done."])
        events, _ = read(Agent(model_on(wire, via=script), [pay]), mode, lambda *_: None)
        assert end_of(events).reason == ("paused" if answer else "answered")
        assert any(isinstance(event, ToolStart) for event in events) is not answer
    assert asked == [{"euros": 1}] * len(WIRES)


@sync_and_async
@pytest.mark.parametrize("is_async", [False, True])
def test_predicates_that_are_called_at_once_are_bounded(is_async: bool, mode: str) -> None:
    lock, now, peak = threading.Lock(), 0, 0

    def count(change: int) -> None:
        nonlocal now, peak
        with lock:
            now += change
            peak = max(peak, now)

    def plain(arguments: dict[str, Any]) -> bool:
        count(1)
        time.sleep(0.002)
        count(-1)
        return False

    async def later(arguments: dict[str, Any]) -> bool:
        count(1)
        await asyncio.sleep(0.002)
        count(-1)
        return False

    @tool(approval=later if is_async else plain)
    async def work(n: int) -> str:
        """Work."""
        return "ok"

    replies = [Reply(*[call("work", {"n": n}) for n in range(40)]), "Done."]
    events, _ = read(made(replies, work), mode, lambda *_: None)
    assert sum(isinstance(event, ToolEnd) and event.ending == "done" for event in events) == 40
    assert 1 <= peak <= MAX_CHECKS


@sync_and_async
def test_an_async_predicate_that_raises_asks_a_person(mode: str) -> None:
    async def needs(arguments: dict[str, Any]) -> bool:
        raise ValueError("unknown")

    @tool(approval=needs)
    def pay() -> str:
        """Pay."""
        return "paid"

    events, _ = read(made([Reply(call("pay")), "Done."], pay), mode, lambda *_: None)
    assert end_of(events).reason == "paused"


@sync_and_async
@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("limit", [1, 5, None])
def test_tools_that_run_at_once_are_bounded(limit: int | None, read_only: bool, mode: str) -> None:
    lock, now, peak, threads = threading.Lock(), 0, 0, 0

    @tool(read_only=read_only)
    def work(n: int) -> str:
        """Work."""
        nonlocal now, peak, threads
        with lock:
            now += 1
            peak, threads = max(peak, now), max(threads, threading.active_count())
        time.sleep(0.002)
        with lock:
            now -= 1
        return "ok"

    before = threading.active_count()
    limits = Limits() if limit is None else Limits(parallel=limit)
    replies = [Reply(*[call("work", {"n": n}) for n in range(60)]), "Done."]
    events, _ = read(made(replies, work, limits=limits), mode, lambda *_: None)
    assert sum(isinstance(event, ToolEnd) and event.ending == "done" for event in events) == 60
    assert 1 <= peak <= (limit or 32)
    assert threads <= before + (limit or 32) + 8


@sync_and_async
@three_wires
@pytest.mark.parametrize("read_only", [False, True])
def test_the_surplus_of_a_response_with_many_calls_does_not_run(read_only: bool, wire: str, mode: str) -> None:
    ran: list[int] = []

    @tool(read_only=read_only)
    async def work(n: int) -> str:
        """Work."""
        ran.append(n)
        return "ok"

    script = Scripted([Reply(*[call("work", {"n": n}) for n in range(140)]), "Done."])
    events, running = read(Agent(model_on(wire, via=script), [work]), mode, lambda *_: None)
    assert end_of(events).reason == "answered"
    assert sorted(ran) == list(range(128))
    texts = [result.text for result in running.messages[2].results]
    assert len(texts) == 140
    assert all(text == "ok" for text in texts[:128])
    assert all(text.startswith("Not run: a response may have 128 calls") for text in texts[128:])


@sync_and_async
def test_a_plain_tool_can_ask_whether_it_was_cancelled(mode: str) -> None:
    ended = threading.Event()

    @tool
    def work(context: Context[Any]) -> str:
        """Work until it is cancelled."""
        assert not context.is_cancelled
        context.report("started")
        while not context.is_cancelled:
            time.sleep(0.002)
        ended.set()
        return "late"

    def cancel(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ToolProgress):
            running.cancel()

    events, _ = read(made([Reply(call("work")), "Done."], work), mode, cancel)
    assert end_of(events).reason == "cancelled"
    assert ended.wait(SOON)


@pytest.mark.parametrize("value", [0, -1, 1.5, True, "2"])
def test_the_number_of_tools_at_once_is_at_least_one(value: Any) -> None:
    with pytest.raises(UsageError, match="parallel"):
        Limits(parallel=value)

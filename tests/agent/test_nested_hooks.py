"""Agents in agents that have hooks and guards: they hold inside as they do outside, also after a crash."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from penstock import (
    Agent,
    Done,
    Guard,
    HistoryReplaced,
    Limits,
    LostRunError,
    Model,
    Nested,
    Step,
    StepStart,
    StopRun,
    StreamEvent,
    check,
    tool,
)
from penstock.log.in_memory import MemoryStore
from penstock.log.points import Point
from penstock.log.take_up import read_log
from penstock.messages import user
from penstock.run.events import encode, innermost
from penstock.testing import Crashed, FakeClock, Reply, Scripted, call, crash_at, say
from tests.leaks import nothing_is_left  # noqa: F401
from tests.scripted_runs import MODES, drive, end_of, events_of, made, sync_and_async, texts_of

SECRET = "swordfish"


@tool
def look() -> str:
    """Look."""
    return "seen"


def second(first: Reply, last: Reply | str) -> Any:
    """A model that answers first with calls, and then with a text; for any number of runs."""
    return lambda request: last if any(item["role"] == "tool" for item in request.body["messages"]) else first


def outside(helper: Agent[Any, Any], calls: int = 1, **options: Any) -> Agent[Any, Any]:
    """An agent that calls this one, and then answers."""
    reply = Reply(*(call("helper", {"prompt": f"number {number}"}) for number in range(calls)))
    return made(second(reply, "Done."), helper.as_tool("helper", "Help."), name="desk", **options)


def inside(events: list[StreamEvent]) -> list[Any]:
    return [event.event for event in events if isinstance(event, Nested)]


def logged(agent: Agent[Any, Any], store: MemoryStore) -> Callable[[str], Any]:
    return lambda prefix: getattr(agent, f"{prefix}stream")("Go.", log=store, run_id="r")


@pytest.mark.parametrize("is_async", [False, True])
@sync_and_async
def test_a_hook_decides_on_the_steps_of_an_agent_inside(mode: str, is_async: bool) -> None:
    steps: list[tuple[int, str, Any]] = []
    script = Scripted(second(Reply(call("look", {})), "helped"))

    def hook(step: Step) -> Step:
        steps.append((step.number, step.run_id, step.deps))
        return step.replace(instructions=f"Step {step.number}.")

    async def ahook(step: Step) -> Step:
        await asyncio.sleep(0)
        return hook(step)

    helper = Agent(Model("openai-compatible:m", via=script), [look], before_step=ahook if is_async else hook)
    store = MemoryStore()

    def start(prefix: str) -> Any:
        return getattr(outside(helper), f"{prefix}stream")("Go.", deps="ours", log=store, run_id="r")

    events, running = drive(start, mode)
    assert end_of(events).reason == "answered"
    assert texts_of(running.messages) == ["helped"]
    assert steps == [(1, "r", "ours"), (2, "r", "ours")]
    assert [request.body["messages"][0]["content"] for request in script.requests] == ["Step 1.", "Step 2."]
    changes = [event.changes.instructions for event in inside(events) if isinstance(event, StepStart)]
    assert changes == ["Step 1.", "Step 2."]


@pytest.mark.parametrize(
    ("hook", "result"),
    [
        (lambda step: step.stop("enough"), "The agent gave no answer (stopped): enough."),
        (lambda step: 1 / 0, "The agent gave no answer (error): "),
        (lambda step: 5, "The agent gave no answer (error): "),
    ],
)
@sync_and_async
def test_a_hook_that_stops_or_fails_ends_the_agent_inside_and_not_the_run(mode: str, hook: Any, result: str) -> None:
    events = events_of(outside(made(["Never."], before_step=hook)), mode)
    done = end_of(events)
    assert done.reason == "answered"
    [text] = texts_of(done.messages)
    assert text.startswith(result)
    assert not [event for event in inside(events) if isinstance(event, StepStart)]


@sync_and_async
def test_a_run_is_cancelled_while_the_hook_of_an_agent_inside_runs(mode: str) -> None:
    began = threading.Event()

    async def hook(step: Step) -> None:
        began.set()
        await asyncio.Event().wait()

    agent = outside(made(["Never."], before_step=hook))

    def stop(running: Any, event: StreamEvent) -> None:
        if event.type == "nested":
            threading.Thread(target=cancel_later, args=(running,)).start()

    def cancel_later(running: Any) -> None:
        assert began.wait(10)
        running.cancel()

    events, _ = drive(lambda prefix: getattr(agent, f"{prefix}stream")("Go."), mode, stop)
    assert end_of(events).reason == "cancelled"
    assert [event.reason for event in inside(events) if isinstance(event, Done)] == ["cancelled"]


@sync_and_async
def test_a_hook_of_an_agent_inside_has_its_own_time_limit(mode: str) -> None:
    async def hook(step: Step) -> None:
        await asyncio.Event().wait()

    helper = made(["Never."], before_step=hook, limits=Limits(hook_seconds=0.01))
    done = end_of(events_of(outside(helper), mode))
    assert done.reason == "answered"
    [text] = texts_of(done.messages)
    assert "took longer than 0.01 seconds" in text


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("point", ["before_request", "before_append", "after_append", "after_tool_end"])
def test_agents_with_hooks_continue_after_a_crash_at_any_point(point: Point, mode: str) -> None:
    """Their hooks add to the history after calls of tools, and are not asked twice for a step that has begun."""
    is_over = False
    number = 0
    while not is_over:
        number += 1
        clock = FakeClock()
        store = MemoryStore(lease=30.0, clock=clock)

        def hook(step: Step) -> Step | None:
            return step.replace_history([*step.messages, user("Hurry.")]) if step.number == 2 else None

        helper = made(second(Reply(call("look", {})), "helped"), look, before_step=hook, name="helper")
        agent = outside(helper, 2, before_step=hook)
        is_over = True
        with crash_at(point, number=number):
            try:
                drive(logged(agent, store), mode)
            except (Crashed, LostRunError):  # or the reader came to a request before it knew of the crash
                is_over = False
                clock.advance(60)
        events, running = drive(logged(agent, store), mode)
        assert end_of(events).reason == "answered"
        assert texts_of(running.messages) == ["helped", "helped"]
        assert check(running.messages) == []
        log = [event for _, _, event in read_log(store, "r")]
        assert sum(isinstance(innermost(event), HistoryReplaced) for event in log) == 3
        assert number < 100
    assert number > 2


def mask(text: str, context: Any) -> str:
    return text.replace(SECRET, "*****")


@pytest.mark.parametrize("by", ["sentence", "answer"])
@sync_and_async
def test_what_the_guard_of_an_agent_inside_holds_back_is_nowhere(mode: str, by: Any) -> None:
    first = Reply(say(f"It is {SECRET}. I look."), call("look", {}))
    helper = made(second(first, f"The word is {SECRET}. Bye."), look, guard=Guard(mask, by=by), name="helper")
    agent, store = outside(helper), MemoryStore()
    events, running = drive(logged(agent, store), mode)
    assert end_of(events).reason == "answered"
    assert texts_of(running.messages) == ["The word is *****. Bye."]
    log = [event for _, _, event in read_log(store, "r")]
    for event in [*events, *log]:
        assert SECRET.encode() not in encode(event)
    assert b"It is *****." in b"".join(encode(event) for event in log)


@sync_and_async
def test_a_guard_that_stops_ends_the_agent_inside_before_its_tool_starts(mode: str) -> None:
    ran: list[str] = []

    @tool(read_only=True)
    def peek() -> str:
        """Peek."""
        ran.append("peek")
        return "seen"

    def refuse(text: str, context: Any) -> StopRun:
        return StopRun("not allowed")

    helper = made([Reply(say(f"{SECRET}. "), call("peek", {}))], peek, guard=refuse)
    done = end_of(events_of(outside(helper), mode))
    assert done.reason == "answered"
    [text] = texts_of(done.messages)
    assert "not allowed" in text
    assert SECRET not in text
    assert ran == []


@pytest.mark.parametrize("depth", [1, 2])
@sync_and_async
def test_the_guard_of_a_run_checks_agents_inside_that_have_none(mode: str, depth: int) -> None:
    """A reader sees the text of agents inside, so that a guard outside would have a hole without this."""
    agent = made([f"It is {SECRET}."])
    for number in range(depth):
        agent = outside(agent, guard=mask if number == depth - 1 else None)
    store = MemoryStore()
    events, running = drive(logged(agent, store), mode)
    assert end_of(events).reason == "answered"
    for event in [*events, *(event for _, _, event in read_log(store, "r"))]:
        assert SECRET.encode() not in encode(event)
    assert texts_of(running.messages) == ["It is *****." if depth == 1 else "Done."]


@sync_and_async
def test_an_agent_inside_with_a_guard_of_its_own_keeps_it(mode: str) -> None:
    def shout(text: str) -> str:
        return text.upper()

    agent = outside(made(["It is here."], guard=shout), guard=mask)
    assert texts_of(end_of(events_of(agent, mode)).messages) == ["IT IS HERE."]

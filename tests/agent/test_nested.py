"""Agents as tools of agents: their events, approvals, questions, cancellation, usage and limits go through."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import penstock.log
from penstock import (
    Agent,
    ApprovalRequest,
    Context,
    Done,
    Limits,
    Nested,
    Said,
    StepEnd,
    StepStart,
    StreamEvent,
    ToolEnd,
    ToolProgress,
    ToolStart,
    UsageError,
    check,
    tool,
)
from penstock.agent.agent_tool import AgentTool
from penstock.messages import user
from penstock.run.events import RunStart, decode, encode, innermost
from penstock.testing import Hang, Reply, Status, call, say
from tests.leaks import nothing_is_left  # noqa: F401
from tests.scripted_runs import (
    MODES,
    SOON,
    drive,
    end_of,
    events_of,
    made,
    resuming,
    run_of,
    streaming,
    sync_and_async,
    texts_of,
)


class Office:
    """An agent with helpers, each with a helper of its own; their tools count how often they ran."""

    def __init__(self, approval: bool = False, **options: Any) -> None:
        self.ran = Counter[str]()

        @tool(approval=approval)
        def pay(context: Context[Any]) -> str:
            """Pay."""
            self.ran[context.key] += 1
            return "paid"

        @tool(read_only=True)
        async def look(context: Context[Any]) -> str:
            """Look."""
            await asyncio.sleep(0)
            return "seen"

        deep = made(_second(Reply(call("pay", {})), "deep"), pay, name="deep")
        helper = made(
            _second(Reply(say("Hm."), call("look", {}), call("deep", {"prompt": "deeper"}), call("pay", {})), "helped"),
            pay, look, deep.as_tool(description="Go deeper."), name="helper",
        )  # fmt: skip
        self.agent = made(
            _second(Reply(call("helper", {"prompt": "one"}), call("helper", {"prompt": "two"})), "All done."),
            helper.as_tool(description="Help."), **options,
        )  # fmt: skip


def _second(first: Reply, last: str) -> Any:
    """A model that answers first with calls, and then with a text; for any number of runs."""
    return lambda request: last if any(item["role"] == "tool" for item in request.body["messages"]) else first


def inside(events: list[StreamEvent], *path: str) -> list[Any]:
    return [event.event for event in events if isinstance(event, Nested) and (event.path == path or not path)]


@sync_and_async
def test_agents_in_agents_run_side_by_side_and_their_answers_are_results(mode: str) -> None:
    office = Office()
    events = events_of(office.agent, mode)
    done = end_of(events)
    assert (done.reason, done.output) == ("answered", "All done.")
    assert texts_of(done.messages) == ["helped", "helped"]
    assert sorted(office.ran.values()) == [1, 1, 1, 1]
    assert sorted(key.count("/") for key in office.ran) == [1, 1, 2, 2]
    assert check(done.messages) == []
    paths = {event.path for event in events if isinstance(event, Nested)}
    assert sorted(map(len, paths)) == [1, 1, 2, 2]
    for path in paths:
        its = inside(events, *path)
        assert isinstance(its[0], RunStart)
        assert [event.step for event in its if isinstance(event, StepStart)] == [1, 2]
        assert isinstance(its[-1], Done)
    assert all(decode(encode(event)) == event for event in events if not isinstance(event, Done | ToolEnd))
    ids = [inner.call_id for event in events if isinstance(inner := innermost(event), ToolStart)]
    assert len(ids) == len(set(ids))


def test_sync_equals_async() -> None:
    def shape(mode: str) -> Counter[Any]:
        events = events_of(Office().agent, mode)
        return Counter((len(event.path) if isinstance(event, Nested) else 0, innermost(event).type) for event in events
                       if not isinstance(innermost(event), ToolProgress))  # fmt: skip

    assert shape("sync") == shape("async")


@sync_and_async
def test_usage_is_added_and_counts_for_the_limit_of_tokens(mode: str) -> None:
    result = run_of(Office().agent, mode, "Go.")
    assert result.reason == "answered"
    events = events_of(Office().agent, mode)
    steps = [inner.usage for event in events if isinstance(inner := innermost(event), StepEnd)]
    assert result.usage.input_tokens == sum(usage.input_tokens for usage in steps if usage)
    limited = run_of(Office(limits=Limits(tokens=400)).agent, mode, "Go.")
    assert limited.reason == "limit"
    assert "tokens, and may use 400" in limited.why
    assert check(limited.messages) == []


@pytest.mark.parametrize("is_logged", [False, True])
@sync_and_async
def test_a_run_can_be_cancelled_at_every_event(mode: str, is_logged: bool) -> None:
    stop = 0
    for stop in range(0, 500, 7 if is_logged else 1):
        office = Office(name="office")
        log: dict[str, Any] = {"log": penstock.log.memory()} if is_logged else {}
        events, running = cancelled_at(stop, office.agent, mode, log)
        assert check(running.messages) == []
        assert all(times == 1 for times in office.ran.values())
        check_starts(events)
        if running.finish_reason == "answered":
            break
        assert {innermost(event).type for event in events[stop + 1 :]} <= {"tool_end", "step_end", "done"}
        assert running.done.usage == running.usage
    assert stop > 60


def cancelled_at(stop: int, agent: Agent, mode: str, log: dict[str, Any]) -> tuple[list[StreamEvent], Any]:
    count = iter(range(1000))

    def cancel(running: Any, event: StreamEvent) -> None:
        if next(count) == stop:
            running.cancel("enough")

    return drive(lambda prefix: getattr(agent, f"{prefix}stream")("Go.", **log), mode, cancel)


def check_starts(events: list[StreamEvent]) -> None:
    """Every tool and every agent that has started has ended once, also inside of others."""
    starts, ends = Counter[Any](), Counter[Any]()
    for event in events:
        path = event.path if isinstance(event, Nested) else ()
        match innermost(event):
            case ToolStart(key=key):
                starts[path, key] += 1
            case ToolEnd(key=key):
                ends[path, key] += 1
            case RunStart():
                starts[path, "run"] += 1
            case Done():
                ends[path, "run"] += 1
            case _:
                pass
    assert {key: ends[key] for key in starts} == dict.fromkeys(starts, 1)


@sync_and_async
def test_an_approval_inside_goes_through_to_the_reader(mode: str) -> None:
    office = Office(approval=True, approvals="wait")

    def approve(running: Any, event: StreamEvent) -> None:
        if isinstance(event, Nested) and isinstance(event.event, ApprovalRequest):
            assert event.event in running.waiting
            running.decide(event.event.call_id, True)

    events, _ = drive(streaming(office.agent), mode, approve)
    assert end_of(events).reason == "answered"
    assert sorted(office.ran.values()) == [1, 1, 1, 1]
    assert sum(isinstance(event, ApprovalRequest) for event in inside(events)) == 4


def approve_all(running: Any, event: StreamEvent) -> None:
    if isinstance(request := innermost(event), ApprovalRequest):
        running.decide(request.call_id, True)


def approve_first() -> Callable[[Any, StreamEvent], None]:
    """Approve one call, and no other."""
    decided: list[str] = []

    def on_event(running: Any, event: StreamEvent) -> None:
        request = innermost(event)
        if isinstance(request, ApprovalRequest) and not decided:
            decided.append(request.call_id)
            running.decide(request.call_id, True)

    return on_event


@sync_and_async
def test_a_run_whose_agents_wait_is_paused_stored_and_resumed(mode: str) -> None:
    office = Office(approval=True)
    _, running = drive(streaming(office.agent), mode)
    assert len(running.waiting) == 4
    for left in (3, 2):
        assert running.finish_reason == "paused"
        assert check(running.messages) == []
        assert check(running.done.messages) == []
        _, running = drive(resuming(office.agent, running.dump()), mode, approve_first())
        assert len(running.waiting) == left
    events, running = drive(resuming(office.agent, running.dump()), mode, approve_all)
    assert end_of(events).reason == "answered"
    assert sorted(office.ran.values()) == [1, 1, 1, 1]
    assert texts_of(running.messages) == ["helped", "helped"]


@sync_and_async
def test_a_decision_before_the_first_event_of_a_resumed_run_reaches_the_agent_inside(mode: str) -> None:
    @tool(approval=True)
    def pay() -> str:
        """Pay."""
        return "paid"

    helper = made(_second(Reply(call("pay", {})), "helped"), pay)
    agent = made(_second(Reply(call("helper", {"prompt": "x"})), "done"), helper.as_tool("helper", "Help."))
    stored = run_of(agent, mode, "Go.").state

    def decide(running: Any) -> None:
        running.decide(running.waiting[0].call_id, True)

    async def read() -> tuple[list[StreamEvent], Any]:
        async with agent.aresume(stored) as running:
            decide(running)
            return [event async for event in running], running

    if mode == "async":
        events, running = asyncio.run(read())
    else:
        with agent.resume(stored) as running:
            decide(running)
            events = list(running)
    assert end_of(events).reason == "answered"
    assert texts_of(running.messages) == ["helped"]


@sync_and_async
def test_a_deferred_call_inside_gets_its_result_from_the_reader(mode: str) -> None:
    @tool(deferred=True)
    def lookup(name: str) -> str:
        """Look something up elsewhere."""
        return ""

    helper = made(_second(Reply(call("lookup", {"name": "x"})), "found"), lookup)
    agent = made(
        _second(Reply(call("helper", {"prompt": "x"})), "done"), helper.as_tool("helper", "Help."), approvals="wait"
    )

    def provide(running: Any, event: StreamEvent) -> None:
        if isinstance(request := innermost(event), ApprovalRequest):
            assert request.kind == "deferred"
            running.provide(request.call_id, "it is here")

    events, _ = drive(streaming(agent), mode, provide)
    assert end_of(events).reason == "answered"
    assert "it is here" in [end.result.text for end in inside(events) if isinstance(end, ToolEnd)]


@sync_and_async
def test_a_question_inside_is_answered_by_the_reader(mode: str) -> None:
    @tool
    async def book(context: Context[Any]) -> str:
        """Book a seat."""
        answer = await asyncio.wrap_future(context.ask({"message": "Which seat?"}, SOON))
        return f"booked {answer.text}"

    helper = made(_second(Reply(call("book", {})), "booked"), book)
    agent = made(_second(Reply(call("helper", {"prompt": "x"})), "done"), helper.as_tool("helper", "Help."))

    def provide(running: Any, event: StreamEvent) -> None:
        if isinstance(request := innermost(event), ApprovalRequest):
            assert request.kind == "input"
            running.provide(request.call_id, "4")

    events, _ = drive(streaming(agent), mode, provide)
    assert [end.result.text for end in inside(events) if isinstance(end, ToolEnd)] == ["booked 4"]


@sync_and_async
def test_an_error_inside_is_a_result_that_the_model_reads(mode: str) -> None:
    failing = made([Status(401)])
    slow = made([Hang()], limits=Limits(seconds=0.05))
    agent = made(
        _second(Reply(call("failing", {"prompt": "x"}), call("slow", {"prompt": "x"})), "done"),
        failing.as_tool("failing", "Fails."), slow.as_tool("slow", "Is slow."),
    )  # fmt: skip
    events = events_of(agent, mode)
    done = end_of(events)
    assert done.reason == "answered"
    failed, late = texts_of(done.messages)
    assert failed.startswith("The agent gave no answer (error): ")
    assert late == "The agent gave no answer (limit): the run took longer than 0.05 seconds."
    ends = [end.reason for end in inside(events) if isinstance(end, Done)]
    assert sorted(ends) == ["error", "limit"]


@sync_and_async
def test_the_timeout_of_the_tool_ends_the_agent(mode: str) -> None:
    slow = made([Hang()])
    agent = made(_second(Reply(call("slow", {"prompt": "x"})), "done"), slow.as_tool("slow", "Is slow.", timeout=0.05))
    events = events_of(agent, mode)
    assert texts_of(end_of(events).messages) == ["The tool timed out after 0.05 seconds, so it may have had an effect."]
    assert [end.reason for end in inside(events) if isinstance(end, Done)] == ["cancelled"]


@dataclass
class City:
    name: str
    people: int


@sync_and_async
def test_structured_output_is_json_for_the_model_and_a_value_for_the_program(mode: str) -> None:
    scout = made(['{"name": "Rome", "people": 3}'], output=City)
    agent = made(_second(Reply(call("scout", {"prompt": "x"})), "done"), scout.as_tool("scout", "Scout."))
    events = events_of(agent, mode)
    [end] = [event for event in events if isinstance(event, ToolEnd)]
    assert end.data == City("Rome", 3)
    assert end.result.text == '{"name": "Rome", "people": 3}'


@pytest.mark.parametrize("is_async", [False, True])
@sync_and_async
def test_a_function_makes_the_prompt_from_typed_arguments(mode: str, is_async: bool) -> None:
    def plain(context: Context[str], topic: str, depth: int = 2) -> Any:
        """Research a topic."""
        return [user(f"{topic} {depth} for {context.deps}")]

    async def research(context: Context[str], topic: str, depth: int = 2) -> Any:
        """Research a topic."""
        return plain(context, topic, depth)

    scout = made(["found"], name="scout")
    found = scout.as_tool(prompt=research if is_async else plain)
    assert (found.name, found.description) == ("scout", "Research a topic.")
    assert set(found.parameters["properties"]) == {"topic", "depth"}
    agent = made(_second(Reply(call("scout", {"topic": "cats"})), "done"), found)
    events = events_of(agent, mode, deps="Ada")
    [start] = [event for event in inside(events) if isinstance(event, RunStart)]
    assert (start.agent, start.messages[0].text) == ("scout", "cats 2 for Ada")


@sync_and_async
def test_a_prompt_that_cannot_be_made_is_a_result(mode: str) -> None:
    def broken(topic: str) -> str:
        """Research a topic."""
        if topic == "nothing":
            return ""
        raise ValueError("no luck")

    scout = made(["found"]).as_tool("scout", prompt=broken)
    first = Reply(call("scout", {"topic": "x"}), call("scout", {"topic": "nothing"}), call("scout", {"topic": 3}))
    events = events_of(made(_second(first, "done"), scout), mode)
    failed, empty, wrong = texts_of(end_of(events).messages)
    assert failed == "ValueError: no luck"
    assert "nothing to answer" in empty
    assert "topic" in wrong
    assert not inside(events)


@sync_and_async
def test_tools_of_an_agent_inside_report_progress_and_see_their_own_step(mode: str) -> None:
    @tool
    async def count(context: Context[Any]) -> Any:
        """Count."""
        for number in range(3):
            yield f"{number} in step {context.step}"

    helper = made(_second(Reply(call("count", {})), "counted"), count)
    agent = made(_second(Reply(call("helper", {"prompt": "x"})), "done"), helper.as_tool("helper", "Help."))
    reports = [event.data for event in inside(events_of(agent, mode)) if isinstance(event, ToolProgress)]
    assert reports == ["0 in step 1", "1 in step 1", "2 in step 1"]


@sync_and_async
def test_an_agent_that_only_reads_starts_while_the_model_streams(mode: str) -> None:
    scout = made(["seen"]).as_tool("scout", "Scout.", read_only=True)
    agent = made(_second(Reply(call("scout", {"prompt": "x"}), say("And more.")), "done"), scout)
    events = events_of(agent, mode)
    [start] = [event for event in events if isinstance(event, ToolStart)]
    assert start.is_early
    assert texts_of(end_of(events).messages) == ["seen"]


@sync_and_async
def test_messages_are_said_to_the_outer_run_while_an_agent_runs_inside(mode: str) -> None:
    office = Office()
    receipts: list[Any] = []

    def steer(running: Any, event: StreamEvent) -> None:
        if isinstance(event, Nested) and not receipts:
            receipts.append(running.say("Be brief."))

    events, running = drive(streaming(office.agent), mode, steer)
    assert [event.message.text for event in events if isinstance(event, Said)] == ["Be brief."]
    assert [message.role for message in running.messages] == ["user", "assistant", "tool", "user", "assistant"]
    assert check(running.messages) == []


def test_outside_of_a_run_the_tool_runs_the_agent() -> None:
    agent = made(_second(Reply(call("pay", {})), "helped"), tool(lambda: "paid", name="pay", description="Pay."))
    helper = agent.as_tool("helper", "Help.")
    assert isinstance(helper, AgentTool)
    assert asyncio.run(helper(prompt="x")) == "helped"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "needs a name"), ({"name": "helper"}, "no description"),
        ({"name": "no way", "description": "x"}, "valid name"),
        ({"name": "h", "description": "x", "deferred": True}, "leave out deferred="),
        ({"name": "h", "description": "x", "idempotent": True}, "leave out idempotent="),
        ({"name": "h", "description": "x", "tiemout": 3}, "timeout"),
    ],
)  # fmt: skip
def test_mistakes_are_reported(arguments: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        made(["x"]).as_tool(**arguments)


@pytest.mark.parametrize("mode", MODES)
def test_cancelling_from_another_thread_stops_the_agents_inside(mode: str) -> None:
    helper = made([Hang()])
    agent = made(_second(Reply(call("helper", {"prompt": "x"})), "done"), helper.as_tool("helper", "Help."))
    threads: list[threading.Thread] = []

    def cancel(running: Any, event: StreamEvent) -> None:
        if isinstance(event, Nested) and isinstance(event.event, StepStart):
            threads.append(threading.Thread(target=running.cancel))
            threads[-1].start()

    events, running = drive(streaming(agent), mode, cancel)
    threads[0].join()
    assert end_of(events).reason == "cancelled"
    assert [end.reason for end in inside(events) if isinstance(end, Done)] == ["cancelled"]
    assert check(running.messages) == []

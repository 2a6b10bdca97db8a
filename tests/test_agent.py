"""Laws 6 to 8 over runs: sync equals async, a call runs at most once and only if it is whole, and every end is good."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from penstock.agent import Agent, AgentStreamer
from penstock.errors import AuthenticationError
from penstock.events import Text, ToolCall, ToolCallInvalid
from penstock.happenings import ApprovalRequest, Done, StreamEvent, ToolEnd, ToolStart, decode, encode
from penstock.messages import Message
from penstock.model import Model
from penstock.run import Limits
from penstock.testing import Reply, Scripted, Status, call, drop, fail, say, think, wait
from penstock.tools import tool

NAMES = {
    "openai-chat": "openai-compatible:m", "openai-responses": "openai:m", "anthropic": "anthropic:m",
    "gemini": "google:m", "ollama": "ollama:m", "cohere": "cohere:m", "bedrock": "bedrock:m",
}  # fmt: skip


class Bench:
    """Tools that count how often they ran, and with what."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()

        @tool(read_only=True)
        async def look(city: str) -> str:
            """Look at a city."""
            self.ran[f"look {city}"] += 1
            return f"{city} is sunny"

        @tool
        def write(text: str) -> str:
            """Write something down."""
            self.ran[f"write {text}"] += 1
            return "written"

        @tool
        def broken() -> str:
            """Never works."""
            self.ran["broken"] += 1
            raise ValueError("no luck")

        self.tools = [look, write, broken]


def script() -> list[Reply]:
    return [
        Reply(think("Hm."), say("Let me look."), call("look", {"city": "Rome"}), call("write", {"text": "a"})),
        Reply(say("And again."), call("broken", {}), call("write", {"text": "b"}), call("nothing", {})),
        Reply("All done."),
    ]


def agent(replies: Iterable[Any], bench: Bench, wire: str = "openai-chat", **options: Any) -> Agent:
    return Agent(Model(NAMES[wire], via=Scripted(list(replies))), bench.tools, **options)


def run(made: Agent, stop: Callable[[StreamEvent, int], bool] | None = None) -> tuple[list[StreamEvent], list[Message]]:
    events: list[StreamEvent] = []
    with made.stream("Go.") as running:
        for at, event in enumerate(running):
            events.append(event)
            if stop and stop(event, at):
                running.cancel()
    return events, running.messages


async def arun(made: Agent) -> tuple[list[StreamEvent], list[Message]]:
    async with made.astream("Go.") as running:
        events = [event async for event in running]
    return events, running.messages


def check_history(messages: list[Message]) -> None:
    """Every call has its result, in one message, right after it, in the order of the calls."""
    for at, message in enumerate(messages):
        calls = [part.id for part in message.parts if isinstance(part, ToolCall | ToolCallInvalid)]
        if calls:
            assert messages[at + 1].role == "tool"
            assert [result.call_id for result in messages[at + 1].results] == calls
        if message.role == "tool":
            assert messages[at - 1].role == "assistant"


def settled(events: list[StreamEvent]) -> list[Any]:
    """The events without their order across calls: tools that run side by side end in any order."""
    return sorted(repr(event) for event in events if not isinstance(event, Done))


@pytest.mark.parametrize("wire", NAMES)
def test_sync_equals_async_on_every_wire(wire: str) -> None:
    one, other = Bench(), Bench()
    events, messages = run(agent(script(), one, wire))
    async_events, async_messages = asyncio.run(arun(agent(script(), other, wire)))
    assert settled(events) == settled(async_events)
    assert messages == async_messages
    assert isinstance(events[-1], Done)
    assert (events[-1].reason, events[-1].output) == ("answered", "All done.")
    assert one.ran == other.ran == Counter({"look Rome": 1, "write a": 1, "broken": 1, "write b": 1})
    check_history(messages)
    for event in events:
        assert decode(encode(event)) == event


@pytest.mark.parametrize("wire", NAMES)
def test_a_cancel_at_every_event_leaves_a_good_history(wire: str) -> None:
    whole, _ = run(agent(script(), Bench(), wire))
    for stop in range(len(whole) - 1):
        bench = Bench()
        events, messages = run(agent(script(), bench, wire), lambda _, at, stop=stop: at == stop)  # type: ignore[misc]
        assert isinstance(events[-1], Done)
        assert sum(isinstance(event, Done) for event in events) == 1
        assert all(count == 1 for count in bench.ran.values())
        check_history(messages)


@pytest.mark.parametrize("parts", range(1, 4))
@pytest.mark.parametrize("wire", NAMES)
def test_an_answer_that_breaks_off_runs_nothing_that_was_not_confirmed(wire: str, parts: int) -> None:
    first: list[Any] = [say("Let me write."), call("write", {"text": "a"}), call("write", {"text": "b"})][:parts]
    bench = Bench()
    events, messages = run(agent([Reply(*first, drop())], bench, wire))
    assert isinstance(events[-1], Done)
    assert events[-1].reason in ("cut", "error")
    assert not bench.ran
    check_history(messages)


def test_after_a_filter_no_tool_starts() -> None:
    bench = Bench()
    events, messages = run(agent([Reply(call("write", {"text": "a"}), finish="content_filter")], bench))
    assert not bench.ran
    assert not any(isinstance(event, ToolStart) for event in events)
    assert isinstance(events[-1], Done)
    assert events[-1].reason == "refused"
    check_history(messages)


def test_by_default_only_what_is_read_only_starts_early() -> None:
    starts = [event for event in run(agent(script(), Bench()))[0] if isinstance(event, ToolStart)]
    assert {(event.name, event.is_early) for event in starts} == {("look", True), ("write", False), ("broken", False)}


def test_tools_run_side_by_side_and_the_history_is_in_order() -> None:
    @tool
    def slow(seconds: float) -> str:
        """Take a while."""
        time.sleep(seconds)
        return f"{seconds}"

    replies = [Reply(call("slow", {"seconds": 1.0}), call("slow", {"seconds": 0.6})), Reply("Done.")]
    began = time.monotonic()
    events, messages = run(Agent(Model("openai-compatible:m", via=Scripted(replies)), [slow]))
    assert time.monotonic() - began < 1.5
    assert [event.result.text for event in events if isinstance(event, ToolEnd)] == ["0.6", "1.0"]
    assert [result.text for result in messages[2].results] == ["1.0", "0.6"]


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_a_tool_that_hangs_is_given_up(colour: str) -> None:
    released = threading.Event()

    @tool(timeout=0.1)
    def hang() -> str:
        """Never return."""
        released.wait(20)
        return "late"

    made = Agent(Model("openai-compatible:m", via=Scripted([Reply(call("hang", {})), Reply("Done.")])), [hang])
    events, messages = run(made) if colour == "sync" else asyncio.run(arun(made))
    released.set()
    assert "longer than 0.1 seconds" in messages[2].results[0].text
    assert isinstance(events[-1], Done)
    assert events[-1].reason == "answered"


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_whatever_a_tool_does_is_its_result(colour: str) -> None:
    @tool
    def leave() -> str:
        """Leave the process."""
        raise SystemExit(3)

    @tool
    def odd() -> Any:
        """Return what is no JSON."""
        return {"nan": float("nan"), "half": "\ud800"}

    replies = [Reply(call("leave", {}), call("odd", {}), call("odd", {"what": 1})), Reply("Done.")]
    made = Agent(Model("openai-compatible:m", via=Scripted(replies)), [leave, odd])
    events, messages = run(made) if colour == "sync" else asyncio.run(arun(made))
    results = messages[2].results
    assert [result.is_error for result in results] == [True, False, True]
    assert "what" in results[2].text
    assert isinstance(events[-1], Done)
    assert events[-1].reason == "answered"


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        (Limits(steps=3), "limit of 3 steps"),
        (Limits(calls=2), "there may be 2"),
        (Limits(tokens=1), "may use 1"),
        (Limits(repeats=2), "may come 2 times"),
    ],
)
def test_a_limit_ends_the_run_with_its_reason(limits: Limits, why: str) -> None:
    made = agent([Reply(call("write", {"text": "a"}))] * 9, Bench(), limits=limits)
    events, messages = run(made)
    assert isinstance(events[-1], Done)
    assert events[-1].reason == "limit"
    assert why in events[-1].why
    check_history(messages)


def test_the_time_of_a_run_is_limited() -> None:
    events, messages = run(agent([Reply(say("Hm."), wait(20))], Bench(), limits=Limits(seconds=0.2)))
    assert isinstance(events[-1], Done)
    assert (events[-1].reason, events[-1].output) == ("limit", "Hm.")
    check_history(messages)


class TestApproval:
    def made(self, bench: Bench) -> Agent:
        @tool(approval=True)
        def pay(amount: int) -> str:
            """Pay."""
            bench.ran[f"pay {amount}"] += 1
            return "paid"

        replies = [Reply(call("pay", {"amount": 5}), call("write", {"text": "a"})), Reply("Done.")]
        return Agent(Model("openai-compatible:m", via=Scripted(replies)), [pay, *bench.tools])

    @pytest.mark.parametrize("decision", [(True, None), (True, {"amount": 3}), (False, None)])
    def test_a_person_decides_and_siblings_go_on(self, decision: tuple[bool, Any]) -> None:
        bench = Bench()
        approved, arguments = decision
        with self.made(bench).stream("Go.") as running:
            for event in running:
                if isinstance(event, ApprovalRequest):
                    assert "pay 5" not in bench.ran
                    running.decide(event.call_id, approved, arguments, "too much")
        paid = {"pay 5": 1} if arguments is None else {"pay 3": 1}
        assert bench.ran == Counter({"write a": 1, **(paid if approved else {})})
        assert running.finish_reason == "answered"
        check_history(running.messages)

    def test_a_run_that_waits_can_be_stored_and_resumed(self) -> None:
        bench = Bench()
        made = self.made(bench)
        with made.stream("Go.") as running:
            list(running)
        assert running.finish_reason == "paused"
        stored = running.dump()
        with made.resume(stored) as resumed:
            for event in resumed:
                if isinstance(event, ApprovalRequest):
                    resumed.decide(event.call_id, True)
        assert bench.ran == Counter({"write a": 1, "pay 5": 1})
        assert resumed.finish_reason == "answered"
        check_history(resumed.messages)


def test_an_in_text_agent_writes_and_reads_xml() -> None:
    bench = Bench()
    text = 'Look. <function_calls><invoke name="write"><parameter name="text">hi</parameter></invoke></function_calls>'
    line = Scripted([Reply(text), Reply("Done.")])
    shown: list[str] = []
    streamer = AgentStreamer(Model("openai-compatible:m", via=line), bench.tools, on_text=shown.append)
    result = streamer.run("Go.")
    assert (result.output, "".join(shown)) == ("Done.", "Look. Done.")
    assert bench.ran == Counter({"write hi": 1})
    assert "<function_results>" in str(line.requests[1].body["messages"][-1])


def test_callbacks_and_a_separating_line() -> None:
    told: list[Any] = []
    made = agent(
        script()[::2], Bench(), separate_text=True, on_text=told.append, on_reasoning=told.append,
        on_tool_start=lambda id, name, arguments: told.append((name, arguments)),
        on_tool_end=lambda id, result: told.append(result.text),
    )  # fmt: skip
    made.run("Go.")
    assert "\nAll" in told or "\nAll done." in told
    assert ("look", {"city": "Rome"}) in told
    assert "written" in told


def test_a_wrong_key_is_raised_by_run_and_told_by_stream() -> None:
    with pytest.raises(AuthenticationError):
        agent([Status(401)], Bench()).run("Go.")
    events, messages = run(agent([Status(401)], Bench()))
    assert isinstance(events[-1], Done)
    assert events[-1].reason == "error"
    assert [message.role for message in messages] == ["user"]


def test_an_error_in_the_stream_ends_the_run() -> None:
    events, messages = run(agent([Reply(say("Hm."), fail("overloaded", "Too much."))], Bench()))
    assert isinstance(events[-1], Done)
    assert (events[-1].reason, events[-1].why) == ("error", "Too much.")
    assert [part for part in messages[-1].parts if isinstance(part, Text)]


def test_a_history_goes_on() -> None:
    _, messages = run(agent(script(), Bench()))
    result = agent([Reply("Good bye.")], Bench()).run("And now?", messages)
    assert (len(result.messages), result.output) == (len(messages) + 2, "Good bye.")

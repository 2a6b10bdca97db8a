"""Laws 6 to 8 over runs: sync equals async, a call runs at most once and only if it is whole, and every end is good."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from typing import Any

import pytest

from penstock.agent import Agent, AgentStreamer
from penstock.commands import Tell
from penstock.errors import AuthenticationError, UsageError
from penstock.events import Text, ToolCall, ToolCallClosed, ToolCallInvalid, ToolCallStart
from penstock.execution import ToolPolicy
from penstock.happenings import ApprovalRequest, Done, StreamEvent, ToolEnd, ToolProgress, ToolStart, decode, encode
from penstock.limits import Limits
from penstock.messages import Message, user
from penstock.model import Model
from penstock.run import Run
from penstock.run_view import MAX_AHEAD, MAX_WAIT
from penstock.testing import Reply, Scripted, Status, call, drop, fail, say, think, wait
from penstock.tools import Context, as_tool, tool

NAMES = {
    "openai-chat": "openai-compatible:m", "openai-responses": "openai:m", "anthropic": "anthropic:m",
    "gemini": "google:m", "ollama": "ollama:m", "cohere": "cohere:m", "bedrock": "bedrock:m",
}  # fmt: skip

COLOURS = ["sync", "async"]
SOON = 5.0  # seconds within which everything here must have ended


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


# -- tools that do not listen ------------------------------------------------------------------------------------------


def made(replies: Iterable[Any], *tools: Any, **options: Any) -> Agent:
    return Agent(Model("openai-compatible:m", via=Scripted(list(replies))), tools, **options)


def drive(
    start: Callable[[str], Any], colour: str, on_event: Callable[[Any, StreamEvent], Any] = lambda running, event: None
) -> tuple[list[StreamEvent], Any]:
    """All events of a run, of which `on_event` may answer any, and the run itself; `start` says how it is begun."""
    if colour == "sync":
        events: list[StreamEvent] = []
        with start("") as running:
            for event in running:
                events.append(event)
                on_event(running, event)
        return events, running

    async def read() -> tuple[list[StreamEvent], Any]:
        events: list[StreamEvent] = []
        async with start("a") as running:
            async for event in running:
                events.append(event)
                if isinstance(answered := on_event(running, event), Awaitable):
                    await answered
        return events, running

    return asyncio.run(read())


def streaming(agent: Agent) -> Callable[[str], Any]:
    return lambda prefix: getattr(agent, f"{prefix}stream")("Go.")


def resuming(agent: Agent, stored: bytes) -> Callable[[str], Any]:
    return lambda prefix: getattr(agent, f"{prefix}resume")(stored)


class Deaf:
    """A tool that goes on when it is told to end, until it is released."""

    def __init__(self) -> None:
        self.released, self.has_ended = threading.Event(), threading.Event()
        self._net = threading.Timer(SOON, self.released.set)

    async def __call__(self) -> str:
        """Go on."""
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


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("way", ["timeout", "cancel", "leave"])
def test_a_tool_that_does_not_listen_holds_nothing_up(way: str, colour: str) -> None:
    gaps: list[float] = []

    def read_sync(agent: Agent) -> Any:
        with agent.stream("Go.") as running:
            for event in running:
                if isinstance(event, ToolStart) and way != "timeout":
                    time.sleep(0.1)
                    if way == "leave":
                        break
                    running.cancel()
        return running

    async def read_async(agent: Agent, deaf: Deaf) -> Any:
        heart = asyncio.create_task(beats(gaps))
        async with agent.astream("Go.") as running:
            async for event in running:
                if isinstance(event, ToolStart) and way != "timeout":
                    await asyncio.sleep(0.1)
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
        running = read_sync(agent) if colour == "sync" else asyncio.run(read_async(agent, deaf))
        assert time.monotonic() - began < MAX_WAIT + SOON / 2
    assert running.finish_reason == ("answered" if way == "timeout" else "cancelled")
    [result] = running.messages[2].results
    assert "may have had an effect" in result.text
    assert max(gaps, default=0) < MAX_WAIT
    check_history(running.messages)


# -- readers that are slow ---------------------------------------------------------------------------------------------


class Counting:
    """Tools that report every number up to some, and count how far they are."""

    def __init__(self, most: int) -> None:
        self.count = 0

        def numbers() -> Iterator[int]:
            for number in range(most):
                self.count += 1
                yield number

        @tool
        def generator() -> Iterator[int]:
            """Count."""
            yield from numbers()
            yield -1

        @tool
        async def async_generator() -> AsyncIterator[int]:
            """Count."""
            for number in numbers():
                yield number
            yield -1

        @tool
        def plain(context: Context[None]) -> int:
            """Count."""
            for number in numbers():
                context.report(number)
            return -1

        @tool
        async def later(context: Context[None]) -> int:
            """Count."""
            for number in numbers():
                context.report(number)
            await asyncio.sleep(0)
            return -1

        self.tools = {one.name: one for one in (generator, async_generator, plain, later)}

    def looks(self) -> Iterator[float]:
        """How long to wait before it is looked at again, until it counts no more, or too far."""
        before = -1
        while self.count < MAX_AHEAD - 100 or before < self.count < MAX_AHEAD * 3:
            before = self.count
            yield 0.2


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("kind", ["generator", "async_generator", "plain"])
def test_a_tool_waits_for_a_reader_who_does_not_read(kind: str, colour: str) -> None:
    counting = Counting(10**6)
    agent = made([Reply(call(kind)), Reply("Done.")], counting.tools[kind])
    if colour == "sync":
        with agent.stream("Go.") as running:
            for seconds in counting.looks():
                time.sleep(seconds)
            early = counting.count
    else:

        async def wait_and_leave() -> tuple[int, Any]:
            async with agent.astream("Go.") as running:
                for seconds in counting.looks():
                    await asyncio.sleep(seconds)
                early = counting.count
            return early, running

        early, running = asyncio.run(wait_and_leave())
    assert early < MAX_AHEAD + 100
    assert running.finish_reason == "cancelled"
    if kind != "plain":  # which nobody can stop
        time.sleep(0.05)
        assert counting.count < early + 100
    check_history(running.messages)


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("kind", ["generator", "async_generator", "plain"])
def test_no_progress_is_lost_by_waiting(kind: str, colour: str) -> None:
    most = MAX_AHEAD * 2
    events, _ = drive(streaming(made([Reply(call(kind)), Reply("Done.")], Counting(most).tools[kind])), colour)
    last = [-1] if "generator" in kind else []  # what they yield last is their result, and told as well
    assert [event.data for event in events if isinstance(event, ToolProgress)] == [*range(most), *last]


@pytest.mark.parametrize("colour", COLOURS)
def test_where_a_tool_cannot_wait_its_newest_report_takes_the_place_of_the_last(colour: str) -> None:
    most = MAX_AHEAD * 3
    events, _ = drive(streaming(made([Reply(call("later")), Reply("Done.")], Counting(most).tools["later"])), colour)
    told = [event.data for event in events if isinstance(event, ToolProgress)]
    assert told == sorted(set(told))
    assert (told[:100], told[-1]) == (list(range(100)), most - 1)
    assert len(told) == most if colour == "sync" else len(told) < MAX_AHEAD + 100
    assert [event.result.text for event in events if isinstance(event, ToolEnd)] == ["-1"]
    assert isinstance(events[-1], Done)


# -- runs that were interrupted ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", COLOURS)
def test_what_ran_when_a_run_was_stored_is_told_to_have_ended(colour: str) -> None:
    released, stored = threading.Event(), b""

    @tool
    def hang() -> str:
        """Hang."""
        released.wait(SOON)
        return "late"

    with made([Reply(call("hang"), call("write", {"text": "a"}))], hang, *Bench().tools).stream("Go.") as running:
        for event in running:
            if isinstance(event, ToolEnd):
                stored = running.dump()
                break
    released.set()
    events, resumed = drive(resuming(made([Reply("Done.")], hang, *Bench().tools), stored), colour)
    [end] = [event for event in events if isinstance(event, ToolEnd)]
    assert (end.key, end.ending) == ("1.0", "cancelled")
    assert "may have had an effect" in end.result.text
    assert resumed.messages[2].results[0] == end.result
    assert resumed.messages[2].results[1].text == "written"
    assert resumed.finish_reason == "answered"


def test_what_ran_for_an_answer_that_is_asked_for_again_is_told_to_count_for_nothing() -> None:
    policies = {"look": ToolPolicy(start="closed")}
    machine = Run([user("Go.")], policies)
    machine.begin()
    for chunk in (ToolCallStart(0, "c", "look"), ToolCallClosed(0, "c", "look", {})):
        machine.chunk(chunk)
    begun = Run.load(machine.dump(), policies).begin()
    ends = [command.event for command in begun if isinstance(command, Tell) and isinstance(command.event, ToolEnd)]
    assert [(end.key, end.ending) for end in ends] == [("1.0", "discarded")]


# -- answers from another thread ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", COLOURS)
def test_a_decision_may_come_from_any_thread(colour: str) -> None:
    seen: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="here")
    told: list[str] = []

    def decide(running: Any, call_id: str) -> None:
        seen.set("there")
        for wrong, answer in (("nobody", running.decide), (call_id, running.provide)):
            with pytest.raises(UsageError) as raised:
                answer(wrong, True)
            told.append(str(raised.value))
        running.decide(call_id, True)

    def on_event(running: Any, event: StreamEvent) -> Any:
        if isinstance(event, ApprovalRequest):
            thread = threading.Thread(target=decide, args=(running, event.call_id))
            thread.start()
            thread.join()  # the loop is not needed for it

    @tool(approval=True)
    def pay() -> str:
        """Pay."""
        return f"paid {seen.get()}"

    agent = made([Reply(call("pay")), Reply("Done.")], pay, approvals="wait", limits=Limits(seconds=SOON))
    events, running = drive(streaming(agent), colour, on_event)
    assert running.finish_reason == "answered"
    assert running.messages[2].results[0].text == "paid here"
    assert "no call with the id 'nobody' waits for a decision" in told[0]
    assert "waits for a result from elsewhere" in told[1]
    assert isinstance(events[-1], Done)


def test_of_two_decisions_from_other_threads_the_first_counts() -> None:
    bench = Bench()

    @tool(approval=True)
    def pay() -> str:
        """Pay."""
        bench.ran["pay"] += 1
        return "paid"

    def on_event(running: Any, event: StreamEvent) -> Any:
        if isinstance(event, ApprovalRequest):
            for approved in (False, True):
                thread = threading.Thread(target=running.decide, args=(event.call_id, approved))
                thread.start()
                thread.join()

    agent = made([Reply(call("pay")), Reply("Done.")], pay, approvals="wait", limits=Limits(seconds=SOON))
    _, running = drive(streaming(agent), "async", on_event)
    assert "declined" in running.messages[2].results[0].text
    assert not bench.ran
    thread = threading.Thread(target=running.cancel)  # the loop is closed by now
    thread.start()
    thread.join()


# -- the history at any moment -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("wire", NAMES)
def test_at_every_event_the_history_is_good_and_looking_changes_nothing(wire: str, colour: str) -> None:
    bench, is_seen = Bench(), threading.Event()
    texts: set[str] = set()

    def on_event(running: Any, event: StreamEvent) -> None:
        before = running.dump()
        messages = running.messages
        check_history(messages)
        texts.update(result.text for message in messages for result in message.results)
        if isinstance(event, ToolStart) and event.name == "slow":
            is_seen.set()
        assert colour == "sync" or running.dump() == before

    @tool
    def slow() -> str:
        """Go on until it was seen to run."""
        is_seen.wait(SOON)
        return "slow"

    replies = [Reply(say("Hm."), call("slow"), call("write", {"text": "a"})), *script()[1:]]
    agent = Agent(Model(NAMES[wire], via=Scripted(replies)), [slow, *bench.tools])
    _, running = drive(streaming(agent), colour, on_event)
    assert running.output == "All done."
    assert any("still running" in text for text in texts)
    assert not any("still running" in result.text for message in running.messages for result in message.results)


@pytest.mark.parametrize("colour", COLOURS)
def test_a_paused_run_has_a_good_history_and_is_still_open_when_stored(colour: str) -> None:
    bench = Bench()
    agent = TestApproval().made(bench)
    events, running = drive(streaming(agent), colour)
    assert isinstance(events[-1], Done)
    assert events[-1].messages == tuple(running.messages)
    check_history(running.messages)
    waiting, written = running.messages[-1].results
    assert (waiting.text, waiting.is_error) == ("Not run yet: it waits for approval.", True)
    assert written.text == "written"
    with pytest.raises(UsageError, match="paused"):
        running.decide(waiting.call_id, True)
    _, resumed = drive(resuming(agent, running.dump()), colour, _approve)
    assert resumed.messages[2].results[0].text == "paid"
    assert bench.ran == Counter({"pay 5": 1, "write a": 1})
    result = made([Reply("Fine.")]).run("And now?", running.messages)
    assert result.output == "Fine."


def _approve(running: Any, event: StreamEvent) -> None:
    if isinstance(event, ApprovalRequest):
        running.decide(event.call_id, True)


# -- tools that run elsewhere ------------------------------------------------------------------------------------------


@tool(deferred=True)
def build(target: str) -> str:
    """Build something, elsewhere."""
    raise AssertionError("it does not run here")


RAW = {
    "type": "function",
    "function": {
        "name": "build", "description": "Build something.",
        "parameters": {"type": "object", "properties": {"target": {"type": "string"}}, "required": ["target"]},
    },
}  # fmt: skip


class TestDeferred:
    replies = (Reply(call("build", {"target": "x"}), call("write", {"text": "a"})), Reply("Done."))

    @pytest.mark.parametrize("colour", COLOURS)
    @pytest.mark.parametrize("declared", [build, RAW, RAW["function"]])
    def test_the_result_comes_from_elsewhere_and_siblings_go_on(self, declared: Any, colour: str) -> None:
        bench = Bench()
        requests: list[ApprovalRequest] = []

        def on_event(running: Any, event: StreamEvent) -> None:
            if isinstance(event, ApprovalRequest):
                requests.append(event)
            if isinstance(event, ToolEnd) and event.result.name == "write":
                running.provide(requests[0].call_id, {"ok": True})

        agent = made(self.replies, declared, *bench.tools)
        events, running = drive(streaming(agent), colour, on_event)
        assert [(one.kind, one.name, one.arguments) for one in requests] == [("deferred", "build", {"target": "x"})]
        assert [result.text for result in running.messages[2].results] == ['{"ok":true}', "written"]
        assert running.finish_reason == "answered"
        check_history(running.messages)
        for event in events:
            assert decode(encode(event)) == event

    @pytest.mark.parametrize("colour", COLOURS)
    def test_a_run_that_waits_for_it_is_stored_and_goes_on_elsewhere(self, colour: str) -> None:
        bench = Bench()
        _, running = drive(streaming(made(self.replies[:1], build, *bench.tools)), colour)
        assert (running.finish_reason, running.done.why) == ("paused", "a call waits for its result from elsewhere")
        assert "has not come yet" in running.messages[-1].results[0].text
        check_history(running.messages)

        def on_event(resumed: Any, event: StreamEvent) -> None:
            if isinstance(event, ApprovalRequest):
                with pytest.raises(UsageError, match="deferred"):
                    resumed.decide(event.call_id, True)
                resumed.provide(event.call_id, "no such target", is_error=True)

        agent = made(self.replies[1:], build, *bench.tools)
        events, resumed = drive(resuming(agent, running.dump()), colour, on_event)
        [end] = [event for event in events if isinstance(event, ToolEnd)]
        assert (end.ending, end.result.text, end.result.is_error) == ("failed", "no such target", True)
        assert (resumed.output, bench.ran) == ("Done.", Counter({"write a": 1}))
        check_history(resumed.messages)

    @pytest.mark.parametrize("colour", COLOURS)
    def test_a_result_may_come_before_the_resumed_run_is_read(self, colour: str) -> None:
        _, running = drive(streaming(made(self.replies[:1], build, *Bench().tools)), colour)
        call_id = running.messages[1].tool_calls[0].id
        line = Scripted(self.replies[1:])
        agent = Agent(Model("openai-compatible:m", via=line), [build, *Bench().tools])

        async def read() -> Any:
            resumed = agent.aresume(running.dump())
            resumed.provide(call_id, "built")
            async for _ in resumed:
                pass
            return resumed

        resumed: Any = agent.resume(running.dump())
        if colour == "sync":
            resumed.provide(call_id, "built")
            list(resumed)
        else:
            resumed = asyncio.run(read())
        assert (resumed.output, len(line.requests)) == ("Done.", 1)
        assert resumed.messages[2].results[0].text == "built"

    def test_a_call_that_does_not_fit_is_not_handed_on(self) -> None:
        for declared in (build, RAW):
            events, running = drive(
                streaming(made([Reply(call("build", {"goal": 1})), Reply("Done.")], declared)), "sync"
            )
            assert not any(isinstance(event, ApprovalRequest) for event in events)
            assert "target" in running.messages[2].results[0].text
            assert running.finish_reason == "answered"

    def test_it_may_need_approval_first(self) -> None:
        kinds: list[str] = []

        def on_event(running: Any, event: StreamEvent) -> None:
            if isinstance(event, ApprovalRequest):
                kinds.append(event.kind)
                if event.kind == "approval":
                    running.decide(event.call_id, True, {"target": "y"})
                else:
                    running.provide(event.call_id, event.arguments["target"])

        agent = made(self.replies, as_tool(RAW, approval=True), *Bench().tools)
        _, running = drive(streaming(agent), "sync", on_event)
        assert kinds == ["approval", "deferred"]
        assert running.messages[2].results[0].text == 'The user changed the arguments to {"target": "y"}.\ny'

    @pytest.mark.parametrize("colour", COLOURS)
    @pytest.mark.parametrize("way", ["cancel", "drop"])
    def test_whoever_runs_it_is_told_when_nobody_waits_any_more(self, way: str, colour: str) -> None:
        def on_event(running: Any, event: StreamEvent) -> None:
            if isinstance(event, ApprovalRequest) and way == "cancel":
                running.cancel()

        rest = [drop()] if way == "drop" else []
        line = Scripted([Reply(call("build", {"target": "x"}), say("And so on."), *rest)])
        agent = Agent(Model("anthropic:m", via=line), [as_tool(RAW, start="call", read_only=True)])
        events, running = drive(streaming(agent), colour, on_event)
        [request] = [event for event in events if isinstance(event, ApprovalRequest)]
        [end] = [event for event in events if isinstance(event, ToolEnd)]
        assert (end.result.call_id, end.ending) == (request.call_id, "cancelled")
        assert "may have an effect" in end.result.text
        assert running.messages[-1].results == [end.result]
        assert running.finish_reason == {"cancel": "cancelled", "drop": "cut"}[way]
        check_history(running.messages)

    def test_its_calls_are_counted(self) -> None:
        def on_event(running: Any, event: StreamEvent) -> None:
            if isinstance(event, ApprovalRequest):
                running.provide(event.call_id, "built")

        agent = made([Reply(call("build", {"target": str(at)})) for at in range(4)], build, limits=Limits(calls=2))
        events, running = drive(streaming(agent), "sync", on_event)
        assert sum(isinstance(event, ApprovalRequest) for event in events) == 2
        assert "there may be 2" in running.done.why

    @pytest.mark.parametrize(("options", "fault"), [({"timeout": 1}, "timeout"), ({"start": "closed"}, "'turn'")])
    def test_what_cannot_be_said_of_it_is_refused(self, options: Any, fault: str) -> None:
        with pytest.raises(UsageError, match=fault):
            as_tool(RAW, read_only=True, **options)


# -- a lot of output ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", COLOURS)
def test_a_tool_that_prints_100_megabytes_is_just_a_tool(colour: str, capsys: pytest.CaptureFixture[str]) -> None:
    @tool
    def loud() -> str:
        """Print a lot."""
        return str(sum(sys.stdout.write("x" * 1_000_000) for _ in range(100)))

    _, running = drive(streaming(made([Reply(call("loud")), Reply("Done.")], loud)), colour)
    assert len(capsys.readouterr().out) == 100_000_000
    assert running.messages[2].results[0].text == "100000000"
    assert running.finish_reason == "answered"

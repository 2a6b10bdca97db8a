"""Runs under hard conditions: calls that change, runs stored anywhere, tools that misbehave, readers that leave."""

from __future__ import annotations

import asyncio
import contextvars
import gc
import json
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from penstock.agent import Agent
from penstock.commands import Ask, Cancel, Command, Start, Tell
from penstock.errors import ToolError, UsageError
from penstock.events import (
    Finish,
    Retry,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    Usage,
)
from penstock.execution import ToolPolicy
from penstock.happenings import Done, StreamEvent, ToolEnd, ToolProgress, ToolStart
from penstock.limits import Limits
from penstock.messages import Message, user
from penstock.model import Model
from penstock.run import Run
from penstock.testing import Hang, Loopback, Raw, Reply, Scripted, always, call, refuse, say, wait
from penstock.testing.faults import Reset
from penstock.testing.reply import Drop
from penstock.testing.response import Response
from penstock.tool_outcome import Outcome
from penstock.tools import Context, Tool, tool
from penstock.transport.exchange import Open
from penstock.transport.policy import Retries
from tests.asking import serving
from tests.test_agent import NAMES, Bench, check_history, run, script
from tests.test_transport import AT_ONCE, Staller

COLOURS = ["sync", "async"]
SOON = 5.0  # seconds within which everything here must have ended


def made(replies: Any, *tools: Any, **options: Any) -> Agent:
    return Agent(Model("openai-compatible:m", via=Scripted(replies)), tools, **options)


def events_of(agent: Agent, colour: str, deps: Any = None) -> list[StreamEvent]:
    """All events of a run in either colour; it must end soon."""
    if colour == "sync":
        with agent.stream("Go.", deps=deps) as running:
            return list(running)

    async def read() -> list[StreamEvent]:
        async with asyncio.timeout(SOON):
            async with agent.astream("Go.", deps=deps) as running:
                return [event async for event in running]

    return asyncio.run(read())


def end_of(events: list[StreamEvent]) -> Done:
    assert isinstance(events[-1], Done)
    assert sum(isinstance(event, Done) for event in events) == 1
    check_history(list(events[-1].messages))
    check_ends(events)
    return events[-1]


def check_ends(events: list[StreamEvent]) -> None:
    """What was told to start was told to end, once."""
    started = [event.key for event in events if isinstance(event, ToolStart)]
    ended = Counter(event.key for event in events if isinstance(event, ToolEnd))
    assert len(set(started)) == len(started)
    assert all(ended[key] == 1 for key in started)


def results(done: Done) -> list[str]:
    return [result.text for message in done.messages for result in message.results]


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No thread is left behind, except those of tools that cannot be stopped, which the tests stop themselves."""
    before = set(threading.enumerate())
    yield
    end = time.monotonic() + SOON
    while left := {one for one in threading.enumerate() if one.is_alive() and "watchdog" not in one.name} - before:
        assert time.monotonic() < end, left
        time.sleep(0.01)
    gc.collect()  # a socket or a loop that was left open warns here, and warnings are errors


# -- calls that change -------------------------------------------------------------------------------------------------


class Machine:
    """A machine that is fed by hand; what it said to do."""

    def __init__(self, **policies: ToolPolicy) -> None:
        self.run = Run([user("Go.")], policies)
        self.commands: list[Command] = self.run.begin()

    def feed(self, *chunks: StreamChunk) -> None:
        for chunk in chunks:
            self.commands += self.run.chunk(chunk)

    def done(self, key: str, text: str) -> None:
        self.commands += self.run.tool_done(key, Outcome((Text(0, text),)))

    @property
    def starts(self) -> list[Start]:
        return [command for command in self.commands if isinstance(command, Start)]

    @property
    def cancelled(self) -> list[str]:
        return [command.key for command in self.commands if isinstance(command, Cancel)]

    @property
    def told(self) -> list[StreamEvent]:
        return [command.event for command in self.commands if isinstance(command, Tell)]

    @property
    def asked(self) -> list[tuple[Message, ...]]:
        return [command.messages for command in self.commands if isinstance(command, Ask)]


LOOK = ToolPolicy(start="closed")


@pytest.mark.parametrize("is_done_early", [False, True])
def test_a_call_that_changes_after_it_closed_has_one_execution_with_the_final_arguments(is_done_early: bool) -> None:
    machine = Machine(look=LOOK)
    machine.feed(ToolCallStart(0, "c", "look"), ToolCallDelta(0, "{}"), ToolCallClosed(0, "c", "look", {}))
    early = machine.starts[0].key
    if is_done_early:
        machine.done(early, "early")
    machine.feed(ToolCall("c", "look", {"city": "Rome"}, sealed_by="call_end"), Finish("tool_calls"))
    machine.done(early, "too late")
    assert [start.arguments for start in machine.starts] == [{}, {"city": "Rome"}]
    assert machine.cancelled == ([] if is_done_early else [early])
    machine.commands += machine.run.ended()
    machine.done(machine.starts[1].key, "final")
    assert [result.text for result in machine.asked[1][-1].results] == ["final"]
    assert [event.ending for event in machine.told if isinstance(event, ToolEnd)] == ["discarded", "done"]
    check_ends(machine.told)


def test_a_call_that_closes_twice_with_the_same_arguments_runs_once() -> None:
    machine = Machine(look=LOOK)
    closed = ToolCallClosed(0, "c", "look", {"city": "Rome"})
    machine.feed(ToolCallStart(0, "c", "look"), closed, closed)
    machine.feed(ToolCall("c", "look", {"city": "Rome"}), Finish("tool_calls"))
    assert len(machine.starts) == 1
    assert not machine.cancelled


def test_a_withdrawn_answer_discards_what_it_started() -> None:
    machine = Machine(look=LOOK)
    machine.feed(ToolCallStart(0, "c", "look"), ToolCallClosed(0, "c", "look", {"city": "Rome"}), Retry("broken"))
    assert machine.cancelled == [machine.starts[0].key]
    machine.feed(Text(0, "Never mind."), Finish("stop"))
    machine.commands += machine.run.ended()
    assert [message.role for message in machine.run.messages] == ["user", "assistant"]
    check_ends(machine.told)


@pytest.mark.parametrize("is_done_early", [False, True])
def test_a_cancel_discards_what_ran_for_a_call_that_was_never_confirmed(is_done_early: bool) -> None:
    machine = Machine(look=LOOK)
    machine.feed(ToolCallStart(0, "c", "look"), ToolCallDelta(0, "{}"), ToolCallClosed(0, "c", "look", {}))
    if is_done_early:
        machine.done(machine.starts[0].key, "early")
    machine.commands += machine.run.cancel()
    told = (
        "It ran, but the call was never confirmed" if is_done_early else "Cancelled after it had been started: the run"
    )
    [result] = machine.run.messages[-1].results
    assert result.text.startswith(told)
    check_ends(machine.told)
    check_history(machine.run.messages)


def frame(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return (
        b"data: " + json.dumps({"id": "x", "object": "chat.completion.chunk", "choices": [choice]}).encode() + b"\n\n"
    )


def chat(*pieces: str) -> Raw:
    """One call on the wire of Chat Completions, its arguments in these pieces."""
    first = {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": ""}}
    rest = [{"tool_calls": [{"index": 0, "function": {"arguments": piece}}]} for piece in pieces]
    frames = [frame({"tool_calls": [first]}), *map(frame, rest), frame({}, "tool_calls"), b"data: [DONE]\n\n"]
    return Raw(b"".join(frames))


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize(
    ("pieces", "final"),
    [
        (['{"city": "Rome"}', "\n"], "Rome is sunny"),
        (["{}", '{"city": "Rome"}'], None),
        (['{"city": "Rome"}', '{"city": "Rome"}'], None),
        (['{"city": "Rome"}', '{"city": "Oslo"}'], None),
        (['{"city": "Rome"}', " and so on"], None),
        (['{"city": "Ro', "{}", 'me"}'], "Ro{}me is sunny"),
    ],
)
def test_on_chat_completions_what_goes_on_after_it_closed_is_not_what_closed(
    pieces: list[str], final: str | None, colour: str
) -> None:
    bench = Bench()
    events = events_of(made([chat(*pieces), Reply("Done.")], *bench.tools), colour)
    done = end_of(events)
    endings = [event.ending for event in events if isinstance(event, ToolEnd)]
    if final is None:
        assert endings == ["discarded", "failed"]
        assert results(done)[0].startswith("Not run: ")
    else:
        assert (endings, results(done)) == (["done"], [final])
        assert sum(bench.ran.values()) == 1


# -- stored anywhere ---------------------------------------------------------------------------------------------------


def answer(step: int) -> list[StreamChunk]:
    """What the model says at each of three steps."""

    def one(block: int, name: str, arguments: dict[str, Any]) -> list[StreamChunk]:
        id, raw = f"c{step}{block}", json.dumps(arguments)
        return [
            ToolCallStart(block, id, name), ToolCallDelta(block, raw), ToolCallClosed(block, id, name, arguments),
            ToolCall(id, name, arguments, raw, sealed_by="call_end", block=block),
        ]  # fmt: skip

    if step == 3:
        return [Text(0, "All "), Text(0, "done."), Usage(5, 3), Finish("stop")]
    calls = [*one(1, "look", {"city": "Rome"}), *one(2, "write", {"text": f"{step}"}), *one(3, "shell", {"step": step})]
    return [Text(0, "Hm."), *calls, Usage(10, 7), Finish("tool_calls")]


POLICIES = {
    "look": LOOK, "write": ToolPolicy(start="turn"), "shell": ToolPolicy(start="turn", is_parallel=False),
}  # fmt: skip


@dataclass(frozen=True)
class Said:
    chunk: StreamChunk


@dataclass(frozen=True)
class Ended:
    pass


@dataclass(frozen=True)
class Worked:
    key: str


def play(store_at: int, policies: dict[str, ToolPolicy] = POLICIES) -> tuple[Run, Counter[str], int]:
    """Three steps; before the input of that number the run is stored, and another one goes on with it."""
    machine = Run([user("Go.")], policies)
    ran: Counter[str] = Counter()
    inputs: list[Said | Ended | Worked] = []
    fed = 0

    def carry_out(commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, Ask):
                # As a model does: it goes on from what the history holds.
                step = 1 + sum(message.role == "tool" for message in command.messages)
                inputs.extend(Said(chunk) for chunk in answer(min(step, 3)))
                inputs.append(Ended())
            elif isinstance(command, Start):
                ran[f"{command.name} {json.dumps(command.arguments)}"] += 1
                inputs.insert(len(inputs) // 2, Worked(command.key))

    carry_out(machine.begin())
    while inputs:
        if fed == store_at:
            machine = Run.load(machine.dump(), policies)
            inputs.clear()
            carry_out(machine.begin())
            if machine.is_over:
                break
        fed += 1
        match inputs.pop(0):
            case Said(chunk):
                carry_out(machine.chunk(chunk))
            case Ended():
                carry_out(machine.ended())
            case Worked(key):
                carry_out(machine.tool_done(key, Outcome((Text(0, "ok"),))))
    return machine, ran, fed


def test_a_run_can_be_stored_between_any_two_inputs_and_comes_to_the_same_end() -> None:
    whole, ran, count = play(-1)
    assert whole.output == "All done."
    assert all(times == 1 for key, times in ran.items() if not key.startswith("look"))
    for at in range(count + 1):
        stored, again, _ = play(at)
        assert stored.is_over, at
        assert stored.output == "All done.", at
        check_history(stored.messages)
        assert all(times == 1 for key, times in again.items() if not key.startswith("look")), (at, again)
        assert [message.role for message in stored.messages] == [message.role for message in whole.messages], at
        assert stored.step == whole.step, at


def test_what_started_while_the_model_spoke_is_not_started_again_by_a_loaded_run() -> None:
    policies = {name: ToolPolicy(start="call") for name in POLICIES}
    _, _, count = play(-1, policies)
    for at in range(count + 1):
        stored, again, _ = play(at, policies)
        assert stored.is_over
        check_history(stored.messages)
        assert all(times <= 1 for key, times in again.items() if not key.startswith("look")), (at, again)


@pytest.mark.parametrize("colour", COLOURS)
def test_a_run_that_is_over_can_be_resumed_and_says_so(colour: str) -> None:
    agent = made([Reply("Hi.")])
    with agent.stream("Go.") as running:
        first = list(running)[-1]
    if colour == "sync":
        with agent.resume(running.dump()) as resumed:
            events = list(resumed)
    else:

        async def read() -> list[StreamEvent]:
            async with asyncio.timeout(SOON), agent.aresume(running.dump()) as resumed:
                return [event async for event in resumed]

        events = asyncio.run(read())
    assert events == [first]


# -- ends --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wire", NAMES)
def test_what_starts_ends_whenever_a_run_is_cancelled(wire: str) -> None:
    model = [*script()[:1], *script()[2:]]
    whole, _ = run(Agent(Model(NAMES[wire], via=Scripted(model)), Bench().tools))
    for stop in range(len(whole) - 1):
        agent = Agent(Model(NAMES[wire], via=Scripted(model)), Bench().tools)
        events, messages = run(agent, lambda _, at, stop=stop: at == stop)  # type: ignore[misc]
        check_history(messages)
        end_of(events)


class Cut(Scripted):
    """Plays a script in which one answer breaks off after some pieces."""

    def __init__(self, replies: list[Reply], request: int, pieces: int) -> None:
        super().__init__(replies)
        self.is_cut = False
        self._at = request, pieces

    def _respond(self, command: Open) -> Response | Hang | Reset:
        played = super()._respond(command)
        request, pieces = self._at
        if len(self.requests) == request and isinstance(played, Response) and pieces < len(played.beats):
            self.is_cut = True
            return Response(played.status, played.headers, (*played.beats[:pieces], Drop()))
        return played


@pytest.mark.parametrize("request_number", [1, 2, 3])
@pytest.mark.parametrize("wire", NAMES)
def test_a_cut_at_every_piece_of_a_three_step_run_runs_nothing_twice(wire: str, request_number: int) -> None:
    for pieces in range(1, 1000):
        line, bench = Cut(script(), request_number, pieces), Bench()
        model = Model(NAMES[wire], via=line, retries=Retries(attempts=0))
        done = end_of(run(Agent(model, bench.tools))[0])
        if not line.is_cut:
            break
        assert done.reason in ("cut", "error", "answered")  # it may have been whole but for an end mark
        assert all(times == 1 for times in bench.ran.values()), pieces
        written = sum(times for name, times in bench.ran.items() if name.startswith("write"))
        assert written == min(len(line.requests) - 1, 2), pieces
    else:
        pytest.fail("the answer never ended")


@pytest.mark.parametrize("wire", sorted(NAMES.keys() - {"ollama", "cohere"}))  # which have no word for it
def test_a_refusal_is_told_as_one_and_starts_nothing(wire: str) -> None:
    bench = Bench()
    agent = Agent(Model(NAMES[wire], via=Scripted([Reply(refuse())])), bench.tools)
    done = end_of(run(agent)[0])
    assert (done.reason, sum(bench.ran.values())) == ("refused", 0)


@pytest.mark.parametrize("reply", [Hang(), Reply(say("Hm."), wait(60)), Reply(wait(60), "Hm.")])
@pytest.mark.parametrize("colour", COLOURS)
def test_a_model_that_hangs_can_be_cancelled_and_nothing_is_left(reply: Any, colour: str) -> None:
    with Loopback([reply]) as server:
        agent = Agent(Model("openai-compatible:m", server.base_url("openai-chat"), "-"))
        began = time.monotonic()
        if colour == "sync":
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


@pytest.mark.parametrize("colour", COLOURS)
def test_leaving_in_the_middle_of_a_tool_ends_the_run(colour: str) -> None:
    began, released = threading.Event(), threading.Event()

    @tool
    def hang() -> str:
        """Hang."""
        began.set()
        released.wait(20)
        return "late"

    agent = made([Reply(call("hang")), Reply("Never.")], hang)
    if colour == "sync":
        with agent.stream("Go.") as running:
            for event in running:
                if isinstance(event, ToolStart):
                    break
        messages = running.messages
    else:

        async def read() -> list[Message]:
            async with agent.astream("Go.") as running:
                async for event in running:
                    if isinstance(event, ToolStart):
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
    async def hang() -> str:
        """Hang."""
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()
        return "late"

    with made([Reply(call("hang"))], hang).stream("Go.") as running:
        for event in running:
            if isinstance(event, ToolStart):
                assert started.wait(SOON)
                running.cancel()
    assert stopped.wait(SOON)
    assert running.finish_reason == "cancelled"


@pytest.mark.parametrize("colour", COLOURS)
@pytest.mark.parametrize("is_async", [False, True])
def test_a_tool_may_cancel_its_run(colour: str, is_async: bool) -> None:
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
    if colour == "sync":
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


def test_whatever_keeps_the_model_from_being_asked_ends_the_run() -> None:
    class Broken:
        def connect(self) -> Any:
            raise ZeroDivisionError("oh")

        aconnect = connect

    agent = Agent(Model("openai-compatible:m", via=Broken()))
    for colour in COLOURS:
        done = end_of(events_of(agent, colour))
        assert (done.reason, done.why) == ("error", "oh")
    with pytest.raises(ZeroDivisionError):
        agent.run("Go.")
    with pytest.raises(ZeroDivisionError):
        asyncio.run(agent.arun("Go."))


# -- tools -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", COLOURS)
def test_every_kind_of_tool_works_in_both_colours(colour: str) -> None:
    seen: contextvars.ContextVar[str] = contextvars.ContextVar("seen", default="nothing")

    @tool
    async def later(context: Context[str]) -> str:
        """Later."""
        await asyncio.sleep(0)
        return f"{seen.get()} {context.deps} {context.tool} {context.step}"

    @tool
    def now(context: Context[str]) -> str:
        """Now."""
        return f"{seen.get()} {context.deps} {context.tool} {context.step}"

    @tool
    def pieces() -> Iterator[str]:
        """Pieces."""
        yield from ["one", "two", "end"]

    @tool
    async def later_pieces() -> AsyncIterator[str]:
        """Pieces, later."""
        for piece in ["one", "two", "end"]:
            await asyncio.sleep(0)
            yield piece

    names = ["later", "now", "pieces", "later_pieces"]
    agent = made([Reply(*map(call, names)), Reply("Done.")], later, now, pieces, later_pieces)
    token = seen.set("here")
    try:
        events = events_of(agent, colour, deps="deps")
    finally:
        seen.reset(token)
    done = end_of(events)
    assert results(done) == ["here deps later 1", "here deps now 1", "end", "end"]
    for name in names[2:]:
        shown = [event.data for event in events if isinstance(event, ToolProgress) and event.name == name]
        assert shown == ["one", "two", "end"]


def test_a_sync_run_works_inside_a_running_loop() -> None:
    told: list[str] = []

    @tool
    async def later() -> str:
        """Later."""
        await asyncio.sleep(0)
        return "later"

    async def on_text(text: str) -> None:
        await asyncio.sleep(0)
        told.append(text)

    async def cell() -> str:
        return made([Reply(call("later")), Reply("Done.")], later, on_text=on_text).run("Go.").output

    assert asyncio.run(cell()) == "".join(told) == "Done."


@pytest.mark.parametrize("colour", COLOURS)
def test_callbacks_may_be_async(colour: str) -> None:
    told: list[Any] = []

    async def on_text(text: str) -> None:
        await asyncio.sleep(0)
        told.append(text)

    async def on_tool_end(id: str, result: Any) -> None:
        told.append(result.text)

    agent = made([Reply(call("write", {"text": "a"})), Reply("Hi")], *Bench().tools, on_text=on_text,
                 on_tool_end=on_tool_end)  # fmt: skip
    end_of(events_of(agent, colour))
    assert told[0] == "written"
    assert "".join(told[1:]) == "Hi"


def test_a_generator_that_nobody_wants_any_more_is_stopped() -> None:
    counted: list[int] = []

    @tool
    def count() -> Iterator[int]:
        """Count for ever."""
        for number in range(10**9):
            counted.append(number)
            yield number
            time.sleep(0.001)

    for colour in COLOURS:
        agent = made([Reply(call("count")), Reply("Done.")], count, limits=Limits(seconds=0.1))
        assert end_of(events_of(agent, colour)).reason == "limit"  # and the fixture waits for the thread


@pytest.mark.parametrize("colour", COLOURS)
def test_a_tool_that_misbehaves_harms_nobody(
    colour: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    died: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", died.append)

    @tool
    def loud() -> str:
        """Print a lot, and return a lot."""
        for _ in range(100):
            print("x" * 10_000)  # noqa: T201
        return "y" * 3_000_000

    @tool
    def thing() -> object:
        """Return an object."""
        return object()

    @tool
    def half() -> list[Any]:
        """Return what is no JSON."""
        return ["\ud800", float("nan"), float("inf")]

    @tool
    def fork() -> str:
        """Start a thread that dies."""
        thread = threading.Thread(target=lambda: 1 / 0)
        thread.start()
        thread.join()
        return "forked"

    @tool
    async def self_cancelled() -> str:
        """Await what was cancelled."""
        task = asyncio.ensure_future(asyncio.sleep(60))
        task.cancel()
        await task
        return "never"

    @tool
    def interrupted() -> str:
        """Be interrupted."""
        raise KeyboardInterrupt

    @tool
    def sorry() -> str:
        """Say sorry."""
        raise ToolError("Try Rome.")

    tools: list[Tool[..., Any]] = [loud, thing, half, fork, self_cancelled, interrupted, sorry]
    events = events_of(made([Reply(*(call(one.name) for one in tools)), Reply("Done.")], *tools), colour)
    done = end_of(events)
    assert (done.reason, len(died)) == ("answered", 1)
    texts = results(done)
    assert "characters left out" in texts[0]
    assert len(texts[0]) < 300_000
    assert "object" in texts[1]
    assert "NaN" in texts[2]
    assert texts[3] == "forked"
    assert "CancelledError" in texts[4]
    assert texts[5:] == ["KeyboardInterrupt", "Try Rome."]
    json.dumps(texts).encode()
    capsys.readouterr()


@pytest.mark.parametrize("colour", COLOURS)
def test_a_tool_that_changes_its_arguments_changes_no_history(colour: str) -> None:
    def take(items: list[int]) -> int:
        return items.pop()

    schema = {"type": "object", "properties": {"items": {"type": "array"}}}
    taking = Tool.from_schema("take", "Take.", schema, take, read_only=True)
    line = Scripted([Reply(call("take", {"items": [1, 2]}), say("Hm."), wait(0.1)), Reply("Done.")])
    events = events_of(Agent(Model("openai-compatible:m", via=line), [taking]), colour)
    done = end_of(events)
    assert results(done) == ["2"]
    assert done.messages[1].tool_calls[0].arguments == {"items": [1, 2]}
    assert sum(isinstance(event, ToolStart) for event in events) == 1


@pytest.mark.parametrize("colour", COLOURS)
def test_tools_that_are_not_parallel_run_alone(colour: str) -> None:
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()

    def work(name: str) -> str:
        running[name] += 1
        most["all"] = max(most["all"], running.total())
        most[name] = max(most[name], running.total())
        time.sleep(0.03)
        running[name] -= 1
        return name

    @tool(parallel=False)
    def alone() -> str:
        """Alone."""
        return work("alone")

    @tool
    def beside() -> str:
        """Beside others."""
        return work("beside")

    names = ["alone", "beside", "alone", "beside", "beside"]
    done = end_of(events_of(made([Reply(*map(call, names)), Reply("Done.")], alone, beside), colour))
    assert results(done) == names
    assert most["alone"] == 1
    assert most["beside"] > 1


def test_two_tools_of_one_name_are_refused() -> None:
    def look() -> None:
        """Look."""

    with pytest.raises(UsageError, match="two tools are called 'look'"):
        made([], look, tool(name="look")(lambda: None))


@pytest.mark.parametrize("start", ["closed", "now"])
def test_an_agent_does_not_let_every_tool_start_too_early(start: Any) -> None:
    with pytest.raises(UsageError, match="read_only"):
        made([], start=start)


# -- what the model does wrong -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", COLOURS)
def test_what_the_model_does_wrong_is_told_to_it(colour: str) -> None:
    replies = [
        Reply(call("look", {"city": 3}), call("look", {}), call("look", {"city": "a", "odd": 1}), call("loook", {}),
              call("look", '{"city": '), call("look", "[1]")),
        Reply("Done."),
    ]  # fmt: skip
    done = end_of(events_of(made(replies, *Bench().tools), colour))
    texts = results(done)
    assert all("city" in text for text in texts[:2])
    assert "odd" in texts[2]
    assert "look" in texts[3]
    assert all(text.startswith("Not run: ") for text in texts[4:])
    assert done.reason == "answered"


def test_a_tool_may_be_tried_again_only_so_often() -> None:
    ran: Counter[str] = Counter()

    @tool(retries=2)
    def broken() -> str:
        """Break."""
        ran["broken"] += 1
        raise ValueError("no")

    done = end_of(events_of(made(always(Reply(call("broken"))), broken), "sync"))
    assert (done.reason, ran["broken"]) == ("limit", 3)
    assert "broken failed 3 times in a row" in done.why


def test_calls_that_fail_side_by_side_are_one_try() -> None:
    done = end_of(events_of(made([Reply(*[call("broken")] * 5), Reply("Done.")], *Bench().tools), "sync"))
    assert done.reason == "answered"


@pytest.mark.parametrize("colour", COLOURS)
def test_a_predicate_that_cannot_tell_asks_a_person(colour: str) -> None:
    ran: list[int] = []

    @tool(approval=lambda arguments: arguments["amount"] / (arguments["amount"] - 1) > 5)
    def pay(amount: int = 1) -> str:
        """Pay."""
        ran.append(amount)
        return "paid"

    done = events_of(made([Reply(call("pay"), call("pay", {"amount": 3}))], pay), colour)[-1]
    assert isinstance(done, Done)
    assert (done.reason, ran) == ("paused", [3])


@pytest.mark.parametrize("start", ["call", None])
def test_limits_hold_for_tools_that_start_early_too(start: Any) -> None:
    for limits in (Limits(calls=2), Limits(steps=1)):
        bench = Bench()
        cities = [call("look", {"city": name}) for name in "abcd"]
        done = end_of(events_of(made([Reply(*cities)], *bench.tools, start=start, limits=limits), "sync"))
        assert done.reason == "limit"
        assert sum(bench.ran.values()) <= (limits.calls or 0)


@pytest.mark.parametrize("colour", COLOURS)
def test_usage_is_summed_over_the_run(colour: str) -> None:
    first, second = Usage(100, 10, 50, 5), Usage(200, 20, 150, 0)
    replies = [Reply(call("write", {"text": "a"}), usage=first), Reply("Done.", usage=second)]
    usage = end_of(events_of(made(replies, *Bench().tools), colour)).usage
    assert (usage.input_tokens, usage.output_tokens, usage.cached_tokens) == (300, 30, 200)


@pytest.mark.parametrize("colour", COLOURS)
def test_a_leaked_call_is_rescued_if_asked_for(colour: str) -> None:
    leak = '<tool_call>\n{"name": "write", "arguments": {"text": "a"}}\n</tool_call>'
    bench = Bench()
    assert results(end_of(events_of(made([Reply(leak), Reply("Done.")], *bench.tools, rescue=True), colour))) == [
        "written"
    ]
    end_of(events_of(made([Reply(leak)], *bench.tools), colour))
    assert bench.ran == Counter({"write a": 1})


def test_a_call_cut_by_length_never_runs_and_the_run_goes_on() -> None:
    bench = Bench()
    done = end_of(
        events_of(made([Reply(call("look", '{"city": "Ro'), finish="length"), Reply("Done.")], *bench.tools), "sync")
    )
    assert (done.reason, done.output, sum(bench.ran.values())) == ("answered", "Done.", 0)
    assert isinstance(done.messages[1].parts[0], ToolCallInvalid)


# -- connections -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("answers", [0, 1], ids=["new", "reused"])
def test_a_sync_run_that_is_cancelled_before_the_headers_leaves_no_thread_and_no_socket(answers: int) -> None:
    staller = Staller(answers)
    with serving(staller) as url:
        agent = Agent(Model("openai-compatible:m", url, "-"))
        for _ in range(answers):
            assert agent.run("Go.").output == "Hi."
        with agent.stream("Go.") as running:
            assert staller.reached.wait(SOON)
            servers = {one for one in threading.enumerate() if not one.name.startswith("penstock")}
            running.cancel()
            end = time.monotonic() + AT_ONCE
            while {one for one in threading.enumerate() if "watchdog" not in one.name} - servers:
                assert time.monotonic() < end
                time.sleep(0.01)
            staller.may_go_on.set()
            assert staller.gone.wait(AT_ONCE)
            assert end_of(list(running)).reason == "cancelled"
    assert staller.connections == 1

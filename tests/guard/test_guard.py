"""Guards of agents: what a run shows, keeps and starts is only what the guard has cleared."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from sqlite3 import connect
from typing import Any

import pytest
from pydantic import BaseModel

import penstock
from penstock import (
    Agent,
    AgentStreamer,
    Done,
    Error,
    Finish,
    Guard,
    GuardContext,
    GuardError,
    Model,
    OutputError,
    Reasoning,
    StopRun,
    StreamEvent,
    Text,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    ToolEnd,
    ToolStart,
    UsageError,
    tool,
)
from penstock.log import SQLiteStore, Store
from penstock.log.take_up import read_log
from penstock.messages import user
from penstock.run.events import encode
from penstock.run.rebuild import rebuild
from penstock.testing import Hang, Reply, Reset, Scripted, call, say, think, wait
from penstock.testing.response import Response
from penstock.transport.commands import OpenRequest
from tests.leaks import nothing_is_left  # noqa: F401
from tests.log_stores import Clock
from tests.scripted_runs import (
    MODES,
    SOON,
    Cut,
    drive,
    end_of,
    events_of,
    every_wire,
    made,
    model_on,
    on,
    streaming,
    sync_and_async,
)

SECRET = "zebra"
MASK = "*****"


def mask(text: str) -> str:
    return text.replace(SECRET, MASK)


async def amask(text: str) -> str:
    return mask(text)


@tool(read_only=True)
def look(city: str) -> str:
    """Look at a city."""
    return f"{city} is sunny"


def texts(events: list[StreamEvent]) -> list[str]:
    return [event.text for event in events if isinstance(event, Text)]


def bytes_of(events: list[StreamEvent]) -> bytes:
    return b"\n".join(map(encode, events))


# -- nothing unguarded is seen -----------------------------------------------------------------------------------------


class Shuffled:
    """Guards that mask secrets and end in a random order: a thread lets those that wait go on."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._waiting: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._release, daemon=True)

    def plain(self, text: str) -> str:
        may_end = threading.Event()
        self._waiting.put(may_end.set)
        assert may_end.wait(SOON)
        return mask(text)

    async def awaited(self, text: str) -> str:
        loop, may_end = asyncio.get_running_loop(), asyncio.Event()
        self._waiting.put(lambda: loop.call_soon_threadsafe(may_end.set))
        async with asyncio.timeout(SOON):
            await may_end.wait()
        return mask(text)

    @contextmanager
    def running(self) -> Generator[None]:
        self._thread.start()
        yield
        self._waiting.put(None)
        self._thread.join(SOON)

    def _release(self) -> None:
        while (first := self._waiting.get()) is not None:
            group: list[Callable[[], object] | None] = [first]
            while True:
                try:
                    group.append(self._waiting.get_nowait())
                except Empty:
                    break
            self._rng.shuffle(group)
            for release in group:
                if release is None:
                    return
                release()


def random_text(rng: random.Random) -> str:
    return "".join(
        rng.choice(["one", "two", "3.14", SECRET, f"the{SECRET}s"]) + rng.choice([" ", " ", ". ", "! ", "\n"])
        for _ in range(rng.randrange(1, 14))
    )


def random_script(rng: random.Random) -> list[Reply]:
    """Three steps with thoughts, text and calls; calls have no secrets, as they are not text."""

    def parts() -> Iterator[Any]:
        if rng.random() < 0.7:
            yield think(random_text(rng))
        yield say(random_text(rng))

    calls = [call("look", {"city": rng.choice(["Rome", "Oslo"])}), call("look", {"city": "Pisa"})]
    return [Reply(*parts(), *calls[: rng.randrange(1, 3)]), Reply(*parts(), calls[1]), Reply(*parts())]


@every_wire
@sync_and_async
@pytest.mark.parametrize("seed", range(4))
def test_no_unguarded_text_is_seen_by_a_reader_a_log_or_the_provider(
    wire: str, mode: str, seed: int, tmp_path: Path
) -> None:
    rng = random.Random(f"{wire} {mode} {seed}")
    script = random_script(rng)
    played, shuffled = Scripted(script, cuts=seed, strict=True), Shuffled(rng)
    check: Any = rng.choice([shuffled.plain, shuffled.awaited])
    seen: list[str] = []
    guard = Guard(check, by=rng.choice(["sentence", "window", "answer"]), size=20, parallel=rng.randrange(1, 5))
    agent = Agent(model_on(wire, via=played), [look], guard=guard, name="guarded", on_text=seen.append)
    store = penstock.log.open(tmp_path / "runs.db")

    def start(prefix: str) -> Any:
        return getattr(agent, f"{prefix}stream")("Go.", log=store, run_id="r")

    with shuffled.running():
        events, run = drive(start, mode)
    assert end_of(events).reason == "answered", end_of(events).why
    log = [event for _, _, event in read_log(store, "r")]
    shown = bytes_of(events) + "".join(seen).encode() + run.dump() + bytes_of(log)  # type: ignore[arg-type]
    sent = b"".join(str(request.body).encode() for request in played.requests)
    for data in (shown, sent, (tmp_path / "runs.db").read_bytes()):
        assert SECRET.encode() not in data
    assert run.output == "".join(mask(reply.text) for reply in script[2:])
    texts_of_turns = [message.text for message in run.messages if message.role == "assistant"]
    assert [text.strip() for text in texts_of_turns] == [mask(reply.text).strip() for reply in script]
    rebuilt = rebuild(log, agent.config.policies)
    assert rebuilt.state.messages == run.messages
    store.close()


@pytest.mark.parametrize("wire", ["openai-chat", "anthropic", "openai-responses"])
def test_sync_and_async_give_the_same_events(wire: str) -> None:
    script = random_script(random.Random(1))
    seen = [events_of(on(wire, script, look, guard=guard), mode) for mode in MODES for guard in (mask, amask)]
    assert len({bytes_of([event for event in events if not isinstance(event, ToolEnd)]) for events in seen}) == 1


# -- tools wait for their call to be cleared ---------------------------------------------------------------------------


class Gate:
    """A guard that waits until the test lets it go."""

    def __init__(self) -> None:
        self.began, self.may_end = threading.Event(), threading.Event()

    def __call__(self, text: str) -> str:
        self.began.set()
        assert self.may_end.wait(SOON)
        return text

    def when_begun(self, *acts: Callable[[], object]) -> threading.Thread:
        """Do this in a thread, when the guard was called."""

        def wait_and_act() -> None:
            assert self.began.wait(SOON)
            for act in acts:
                act()

        thread = threading.Thread(target=wait_and_act)
        thread.start()
        return thread


@sync_and_async
@pytest.mark.parametrize("start", [None, "call"])
def test_no_tool_starts_before_the_text_before_its_call_is_cleared(mode: str, start: Any) -> None:
    gate, order = Gate(), list[str]()

    @tool(read_only=start is None, start=start)
    def act(city: str) -> str:
        """Do something."""
        order.append("tool")
        return "done"

    def cleared(text: str) -> str:
        gate(text)
        order.append("guard")
        return text

    script = [Reply(say("Let me look."), call("act", {"city": "Rome"}), say("Wait.")), Reply(say("Done."))]
    agent = on("anthropic", script, act, guard=cleared)
    releasing = gate.when_begun(lambda: order.append("release"), gate.may_end.set)
    events = events_of(agent, mode)
    releasing.join(SOON)
    assert order.index("guard") < order.index("tool")
    assert order[0] == "release"
    [started] = [event for event in events if isinstance(event, ToolStart)]
    assert started.is_early


@sync_and_async
def test_a_guard_of_calls_stops_the_run_before_the_tool_starts(mode: str) -> None:
    ran: list[str] = []

    @tool(read_only=True)
    def act(city: str) -> str:
        """Do something."""
        ran.append(city)
        return "done"

    async def check(name: str, arguments: dict[str, Any], context: GuardContext) -> StopRun | None:
        assert (name, context.kind, context.deps) == ("act", "call", "ada")
        return StopRun("not there") if arguments["city"] == "Oslo" else None

    script = [Reply(call("act", {"city": "Rome"})), Reply(say("And."), call("act", {"city": "Oslo"})), Reply("Never.")]
    events = events_of(made(script, act, guard=Guard(mask, call=check)), mode, deps="ada")
    done = end_of(events)
    assert (done.reason, done.why, ran) == ("refused", "not there", ["Rome"])
    assert sum(isinstance(event, ToolCallStart) for event in events) == 1
    assert b"Oslo" not in bytes_of(events)


# -- a guard that stops the run ----------------------------------------------------------------------------------------


@every_wire
@sync_and_async
def test_a_stop_ends_the_run_with_a_valid_history(wire: str, mode: str) -> None:
    def check(text: str) -> str | StopRun:
        return StopRun("no animals") if SECRET in text else text

    script = [Reply(say(f"One. Two {SECRET}. Three."), call("look", {"city": "Rome"})), Reply("Never.")]
    played = Scripted(script, strict=True)
    agent = Agent(model_on(wire, via=played), [look], guard=check)
    events, run = drive(streaming(agent), mode)
    done = end_of(events)
    assert (done.reason, done.why, done.output) == ("refused", "no animals", "One. ")
    assert (run.finish_reason, run.error, len(played.requests)) == ("refused", None, 1)
    [finish] = [event for event in events if isinstance(event, Finish)]
    assert finish == Finish("content_filter", "guard", "no animals")
    assert penstock.check(run.messages) == []
    assert not [event for event in events if isinstance(event, ToolStart)]


@sync_and_async
def test_a_stop_ends_the_stream_at_once(mode: str) -> None:
    script = Scripted([Reply(say("Bad words. "), wait(3600), say("More."))])
    agent = Agent(Model("openai-compatible:m", via=script), guard=lambda text: StopRun())
    done = end_of(events_of(agent, mode))
    assert (done.reason, done.why) == ("refused", "the guard stopped the run")


class Deltas(Scripted):
    """Sends these deltas of Chat Completions, and then nothing more for an hour."""

    def __init__(self, *deltas: dict[str, Any]) -> None:
        super().__init__([Reply("Never.")])
        self._deltas = deltas

    def _respond(self, command: OpenRequest) -> Response | Hang | Reset:
        choices = [{"index": 0, "delta": delta, "finish_reason": None} for delta in self._deltas]
        chunks = [json.dumps({"id": "c", "model": "m", "choices": [choice]}) for choice in choices]
        frames = [f"data: {chunk}\n\n".encode() for chunk in chunks]
        return Response(200, {"content-type": "text/event-stream"}, (*frames, wait(3600)))


@sync_and_async
def test_a_stop_ends_the_run_while_a_call_is_open(mode: str) -> None:
    function = {"name": "look", "arguments": '{"city": '}
    opened = {"tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}]}
    guard = Guard(lambda text: StopRun("no animals"), call=lambda name, arguments: None)
    model = Model("openai-compatible:m", via=Deltas(opened, {"content": f"A {SECRET}. "}))
    agent = Agent(model, [look], guard=guard)
    done = end_of(events_of(agent, mode))
    assert (done.reason, done.why) == ("refused", "no animals")


@sync_and_async
def test_a_stopped_run_is_rebuilt_from_any_prefix_of_its_log(mode: str, tmp_path: Path) -> None:
    store = penstock.log.open(tmp_path / "runs.db")

    def check(text: str) -> str | StopRun:
        return StopRun("no animals") if SECRET in text else text

    script = [Reply(say("Look. "), call("look", {"city": "Rome"})), Reply(say(f"One. Two {SECRET}."))]
    agent = made(script, look, guard=check, name="g")
    _, run = drive(lambda prefix: getattr(agent, f"{prefix}stream")("Go.", log=store, run_id="r"), mode)
    log = [event for _, _, event in read_log(store, "r")]
    assert rebuild(log, agent.config.policies).state.messages == run.messages
    assert rebuild(log, agent.config.policies).state.ending == ("refused", "no animals")
    for size in range(1, len(log)):
        rebuilt = rebuild(log[:size], agent.config.policies)
        rebuilt.begin()
        assert penstock.check(rebuilt.state.history) == []
    store.close()


@sync_and_async
def test_a_run_that_another_process_continues_is_guarded(mode: str, tmp_path: Path) -> None:
    script = [Reply(say(f"One {SECRET}. Two {SECRET}"), wait(3600)), Reply(say(f"Three {SECRET}."))]
    agent, clock = made(script, guard=mask, name="g"), Clock()

    def start(store: Store) -> Callable[[str], Any]:
        return lambda prefix: getattr(agent, f"{prefix}stream")("Go.", log=store, run_id="r")

    def copy_and_cancel(run: Any, event: StreamEvent) -> None:
        if isinstance(event, Text):
            with closing(connect(tmp_path / "a.db")) as log, closing(connect(tmp_path / "b.db")) as copy:
                log.backup(copy)
            run.cancel()

    with closing(SQLiteStore(tmp_path / "a.db", clock=clock)) as store:
        first, _ = drive(start(store), mode, copy_and_cancel)
    assert texts(first) == [f"One {MASK}. "]
    clock.now += 1000  # so that the first owner has lost the run
    with closing(SQLiteStore(tmp_path / "b.db", clock=clock)) as store:
        second, run = drive(start(store), mode)
    assert "retry" in [event.type for event in second]
    assert texts(second) == [f"One {MASK}. ", f"Three {MASK}."]
    assert end_of(second).reason == "answered"
    assert run.output == f"Three {MASK}."
    assert SECRET.encode() not in (tmp_path / "b.db").read_bytes() + bytes_of(second)


# -- a guard that fails ------------------------------------------------------------------------------------------------


def raises(text: str) -> str:
    raise ValueError(f"cannot judge {text}")


async def araises(text: str) -> str:
    raise ValueError(f"cannot judge {text}")


async def cancels(text: str) -> str:
    raise asyncio.CancelledError


def says_yes(name: str, arguments: dict[str, Any]) -> Any:
    return True


def exits(text: str) -> str:
    raise SystemExit(text)


@sync_and_async
@pytest.mark.parametrize(
    ("guard", "message"),
    [
        (raises, "the guard raised ValueError"),
        (araises, "the guard raised ValueError"),
        (cancels, "the guard raised CancelledError"),
        (exits, "the guard raised SystemExit"),
        (lambda text: None, "the guard returned None: return the text to pass on, or a StopRun"),
        (lambda text: True, "the guard returned a bool: return the text to pass on, or a StopRun"),
        (
            Guard(mask, call=says_yes),
            "the guard returned a bool for a call: return None or a StopRun",
        ),
    ],
)
def test_a_guard_that_fails_ends_the_run_and_shows_nothing(mode: str, guard: Any, message: str) -> None:
    agent = made([Reply(say(f"{SECRET}."), call("look", {"city": "Rome"}))], look, guard=guard)
    events, run = drive(streaming(agent), mode)
    done = end_of(events)
    assert (done.reason, done.why) == ("error", message)
    assert isinstance(run.error, GuardError)
    assert SECRET.encode() not in bytes_of(events)
    assert Error(message, "GuardError", origin="program") in events
    assert not [event for event in events if isinstance(event, ToolStart)]
    assert penstock.check(run.messages) == []


@sync_and_async
@pytest.mark.parametrize("is_late", [False, True])
def test_what_comes_before_a_piece_that_is_not_checked_is_passed_on(mode: str, is_late: bool) -> None:
    failed = asyncio.Event()

    async def fails_at_the_second(text: str) -> str:
        if text.startswith("One"):
            await failed.wait()
            return text
        failed.set()
        await (hangs("") if is_late else asyncio.sleep(0))
        raise ValueError(text)

    agent = made([Reply(say("One. Two. Three."))], guard=Guard(fails_at_the_second, timeout=0.2 if is_late else 10))
    events, run = drive(streaming(agent), mode)
    assert [event.text for event in events if isinstance(event, penstock.Text)] == ["One. "]
    assert (end_of(events).reason, run.messages[-1].text) == ("error", "One. ")
    assert isinstance(run.error, GuardError)


async def hangs(text: str) -> str:
    await asyncio.Event().wait()
    return text


@sync_and_async
@pytest.mark.parametrize("is_plain", [True, False])
def test_a_guard_that_hangs_ends_the_run(mode: str, is_plain: bool) -> None:
    gate = Gate()
    agent = made([Reply(say(f"{SECRET}. More."))], guard=Guard(gate if is_plain else hangs, timeout=0.05))
    events, run = drive(streaming(agent), mode)
    assert end_of(events).why == "the guard took longer than 0.05 seconds (Guard.timeout)"
    assert isinstance(run.error, GuardError)
    assert SECRET.encode() not in bytes_of(events)
    gate.may_end.set()


@sync_and_async
def test_a_run_is_cancelled_while_its_guard_checks(mode: str) -> None:
    gate = Gate()
    agent = made([Reply(say(f"One. {SECRET}. "), wait(3600))], guard=Guard(gate, parallel=1))

    def on_event(run: Any, event: StreamEvent) -> None:
        if event.type == "step_start":
            gate.when_begun(run.cancel)

    events, _ = drive(streaming(agent), mode, on_event)
    gate.may_end.set()
    assert end_of(events).reason == "cancelled"
    assert texts(events) == []


@sync_and_async
def test_a_whole_answer_that_is_too_long_to_hold_ends_the_run(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.agent.calls import guarded_stream
    from penstock.guard import stage

    monkeypatch.setattr(stage, "MAX_HELD", 100)
    monkeypatch.setattr(guarded_stream, "MAX_HELD", 100)
    script = [Reply(say("word " * 100))]
    done = end_of(events_of(made(script, guard=Guard(mask, by="answer")), mode))
    assert done.why.startswith("the guard would hold back more than 100 characters (MAX_HELD)")
    assert end_of(events_of(made(script, guard=Guard(mask, by="window", size=20)), mode)).reason == "answered"


# -- with other parts of an agent --------------------------------------------------------------------------------------


@sync_and_async
def test_calls_in_the_text_wait_for_the_text_before_them(mode: str) -> None:
    text = f'I ask {SECRET}.\n<tool_call>{{"name": "look", "arguments": {{"city": "Rome"}}}}</tool_call>'
    agent = made([Reply(say(text)), Reply(say("Sunny."))], look, calls="hermes", guard=mask)
    events = events_of(agent, mode)
    assert end_of(events).output == "Sunny."
    assert SECRET.encode() not in bytes_of(events)
    assert [event.result.text for event in events if isinstance(event, ToolEnd)] == ["Rome is sunny"]


DAMAGED = {
    "malformed": f'<tool_call>{{"name": "look", "arguments": {{"city": "{SECRET}" oh}}}}</tool_call>',
    "cut": f'<tool_call>{{"name": "look", "arguments": {{"city": "a long {SECRET}',
    "quoted": f'<tool_call>{{"name": "look", "arguments": {{"city": "a long {SECRET}"}}}}</tool_call>',
}


@sync_and_async
@pytest.mark.parametrize("damage", [*DAMAGED])
@pytest.mark.parametrize("options", [{"calls": "hermes"}, {"rescue": True}], ids=["dialect", "rescue"])
@pytest.mark.parametrize("has_call_guard", [False, True])
def test_the_text_of_calls_that_must_not_run_is_guarded(
    mode: str, damage: str, options: dict[str, Any], has_call_guard: bool
) -> None:
    guard = Guard(mask, call=lambda name, arguments: None) if has_call_guard else mask
    agent = made([Reply(say(f"I ask.\n{DAMAGED[damage]}")), Reply(say("Sunny."))], look, guard=guard, **options)
    if damage == "quoted":
        prompt = user(f"Read this: {DAMAGED[damage]}")
        events, run = drive(lambda prefix: getattr(agent, f"{prefix}stream")(messages=[prompt]), mode)
        shown = bytes_of([event for event in events if not isinstance(event, Done)])
    else:
        events, run = drive(streaming(agent), mode)
        shown = bytes_of(events)
    assert end_of(events).output == "Sunny."
    [invalid] = [event for event in events if isinstance(event, ToolCallInvalid)]
    assert (invalid.why, invalid.repaired) == (damage, None)
    assert MASK in invalid.arguments_raw
    assert SECRET.encode() not in shown
    assert SECRET not in str(run.messages[1:])


@sync_and_async
def test_arguments_of_native_calls_stream_while_the_guard_has_no_check_of_calls(mode: str) -> None:
    asked = list[str]()

    def check(text: str) -> str:
        asked.append(text)
        return text

    events = events_of(made([Reply(call("look", {"city": "Rome"})), "Sunny."], look, guard=check), mode)
    assert any(isinstance(event, ToolCallDelta) for event in events)
    assert asked == ["Sunny."]


class City(BaseModel):
    name: str
    motto: str


@sync_and_async
@pytest.mark.parametrize("wire", ["openai-responses", "anthropic", "ollama"])
def test_structured_output_is_what_the_guard_passed(wire: str, mode: str) -> None:
    script = [Reply(say(f'{{"name": "Rome", "motto": "A {SECRET}. Two."}}'))]
    agent: Agent[Any, Any] = Agent(model_on(wire, via=Scripted(script)), output=City, guard=mask)
    events, run = drive(streaming(agent), mode)
    assert run.output == City(name="Rome", motto=f"A {MASK}. Two.")
    assert SECRET.encode() not in bytes_of(events)


def test_output_that_the_guard_breaks_is_not_valid() -> None:
    script = [Reply(say('{"name": "Rome", "motto": "x"}'))] * 5
    agent = Agent(Model("openai:m", via=Scripted(script)), output=City, guard=lambda text: text.replace("}", ""))
    with pytest.raises(OutputError):
        agent.run("Go.").output  # noqa: B018


def test_a_response_that_is_withdrawn_is_checked_again() -> None:
    script = Cut([Reply(say(f"One. Two. {SECRET}.")), Reply(say(f"Three {SECRET}."))], 1, 3)
    retries = penstock.Retries(after_start=True, first_delay=0)
    agent = Agent(Model("openai-compatible:m", via=script, retries=retries), guard=mask)
    result = agent.run("Go.")
    assert script.is_cut
    assert result.output == f"Three {MASK}."


def test_a_guard_gets_a_context_if_it_has_a_parameter_for_it() -> None:
    seen: list[GuardContext] = []

    def check(text: str, context: GuardContext) -> str:
        seen.append(context)
        return text

    made([Reply(think("Hm."), say("One. Two."))], guard=Guard(check, parallel=1)).run("Go.", deps="ada")
    assert [(context.kind, context.before, context.step, context.deps) for context in seen] == [
        ("reasoning", "", 1, "ada"), ("text", "", 1, "ada"), ("text", "One. ", 1, "ada"),
    ]  # fmt: skip


@sync_and_async
def test_reasoning_that_was_changed_loses_its_signature(mode: str) -> None:
    script = [Reply(think(f"{SECRET}."), call("look", {"city": "Rome"})), Reply(say("Sunny."))]
    played = Scripted(script, strict=True)
    agent = Agent(Model("anthropic:m", via=played), [look], guard=mask)
    events, _ = drive(streaming(agent), mode)
    assert end_of(events).reason == "answered"
    assert [event.text for event in events if isinstance(event, Reasoning)] == [f"{MASK}."]
    assert "signature" not in str(played.requests[1].body)


OWN_GUARDS: list[tuple[Any, str]] = [(mask, MASK), (Guard(amask), MASK), (None, SECRET)]


@pytest.mark.parametrize(("guard", "word"), OWN_GUARDS)
@sync_and_async
def test_a_run_may_have_a_guard_of_its_own(mode: str, guard: Any, word: str) -> None:
    agent = made(lambda request: f"The {SECRET} runs.", guard=lambda text: "nothing")
    _, run = drive(lambda prefix: getattr(agent, f"{prefix}stream")("Go.", guard=guard), mode)
    assert run.output == f"The {word} runs."
    assert agent.run("Go.").output == "nothing"


def test_the_guard_of_a_run_is_refused_with_a_log_and_if_it_is_not_one(tmp_path: Path) -> None:
    agent, not_a_guard = made(["Hi."], name="guide"), "no"
    with closing(SQLiteStore(tmp_path / "runs.db")) as store, pytest.raises(UsageError, match="cannot be combined"):
        agent.run("Go.", guard=mask, log=store)
    with pytest.raises(UsageError, match="guard must be a function"):
        agent.run("Go.", guard=not_a_guard)  # type: ignore[call-overload]


def test_process_stream_refuses_a_guard() -> None:
    streamer = AgentStreamer(tools=[look], guard=mask)
    with pytest.raises(UsageError, match="process_stream has no guard"):
        asyncio.run(streamer.process_stream(["Hi."]))


@pytest.mark.parametrize("guard", [lambda: "", lambda a, b, c: "", lambda a, *, key: ""])
def test_a_guard_with_other_parameters_is_refused_when_the_agent_is_made(guard: Any) -> None:
    """Its error during a run would not say why, as it may quote the text."""
    with pytest.raises(UsageError, match=r"Guard.text must take \(text\), and may take a GuardContext"):
        made(["Hi."], guard=guard)
    with pytest.raises(UsageError, match=r"Guard.call must take \(name, arguments\)"):
        Guard(mask, call=lambda name: None)  # type: ignore[arg-type]
    assert Guard(str.strip, call=lambda *values: None).text is str.strip


def test_what_is_not_a_guard_is_refused() -> None:
    with pytest.raises(UsageError, match="guard must be a function that checks a piece of text"):
        made(["Hi."], guard="strict")

"""Runs to test: tools that count, scripted models, ways to read a run, and checks of its end."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock import (
    Agent,
    ApprovalRequest,
    Done,
    Message,
    Model,
    RunResult,
    StepEnd,
    StepStart,
    StreamChunk,
    StreamEvent,
    Text,
    ToolCall,
    ToolCallInvalid,
    ToolEnd,
    ToolStart,
    tool,
)
from penstock.messages import user
from penstock.results import Outcome
from penstock.run.commands import AskModel, CancelTool, Command, Emit, StartTool
from penstock.run.machine import Run
from penstock.testing import Hang, Reply, Reset, Scripted, call, say, think
from penstock.testing.reply import Drop
from penstock.testing.response import Response
from penstock.tools.policy import ToolPolicy
from penstock.transport.commands import OpenRequest

NAMES = {
    "openai-chat": "openai-compatible:m", "openai-responses": "openai:m", "anthropic": "anthropic:m",
    "gemini": "google:m", "ollama": "ollama:m", "cohere": "cohere:m", "bedrock": "bedrock:m",
    "gemini-interactions": "google:m",
}  # fmt: skip
MODES = ["sync", "async"]
SOON = 20.0  # seconds within which everything here must have ended, also on a busy machine
LOOK = ToolPolicy(start="closed")

every_wire = pytest.mark.parametrize("wire", NAMES)


def model_on(wire: str, *arguments: Any, **options: Any) -> Model:
    """A model of a provider on a wire, which need not be the provider's usual one."""
    settings: Any = {**({"wire": wire} if wire == "gemini-interactions" else {}), **options}
    return Model(NAMES[wire], *arguments, **settings)


sync_and_async = pytest.mark.parametrize("mode", MODES)


# -- tools -------------------------------------------------------------------------------------------------------------


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


@tool
def pay(euros: int = 0) -> str:
    """Pay, which cannot be undone."""
    return f"paid {euros}"


# -- agents ------------------------------------------------------------------------------------------------------------


def script() -> list[Reply]:
    """Three steps, with thoughts, calls side by side, a tool that fails and one that is not there."""
    return [
        Reply(think("Hm."), say("Let me look."), call("look", {"city": "Rome"}), call("write", {"text": "a"})),
        Reply(say("And again."), call("broken", {}), call("write", {"text": "b"}), call("nothing", {})),
        Reply("All done."),
    ]


def on(wire: str, replies: Any, *tools: Any, **options: Any) -> Agent:
    """An agent whose model plays these replies on a wire."""
    return Agent(model_on(wire, via=Scripted(replies)), tools, **options)


def made(replies: Any, *tools: Any, **options: Any) -> Agent:
    return on("openai-chat", replies, *tools, **options)


class Cut(Scripted):
    """Plays a script in which one answer breaks off after some pieces."""

    def __init__(self, replies: list[Reply], request: int, pieces: int) -> None:
        super().__init__(replies)
        self.is_cut = False
        self._at = request, pieces

    def _respond(self, command: OpenRequest) -> Response | Hang | Reset:
        played = super()._respond(command)
        request, pieces = self._at
        if len(self.requests) == request and isinstance(played, Response) and pieces < len(played.actions):
            self.is_cut = True
            return Response(played.status, played.headers, (*played.actions[:pieces], Drop()))
        return played


# -- ways to read a run ------------------------------------------------------------------------------------------------


def drive(
    start: Callable[[str], Any], mode: str, on_event: Callable[[Any, StreamEvent], Any] = lambda running, event: None
) -> tuple[list[StreamEvent], Any]:
    """Read a run that `start` begins; returns its events and the run. `on_event` is called for each event."""
    if mode == "sync":
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


def answer_with(approved: bool, *rest: Any) -> Callable[[Any, StreamEvent], None]:
    """Decide on every call that waits for approval."""

    def on_event(running: Any, event: StreamEvent) -> None:
        if isinstance(event, ApprovalRequest):
            running.decide(event.call_id, approved, *rest)

    return on_event


def events_of(agent: Agent, mode: str, deps: Any = None) -> list[StreamEvent]:
    """All events of a run, sync or async; it must end soon."""
    if mode == "sync":
        with agent.stream("Go.", deps=deps) as running:
            return list(running)

    async def read() -> list[StreamEvent]:
        async with asyncio.timeout(SOON):
            async with agent.astream("Go.", deps=deps) as running:
                return [event async for event in running]

    return asyncio.run(read())


def run_of(agent: Agent, mode: str, *arguments: Any, **options: Any) -> RunResult:
    """The result of a run, sync or async."""
    return agent.run(*arguments, **options) if mode == "sync" else asyncio.run(agent.arun(*arguments, **options))


# -- what holds of a run -----------------------------------------------------------------------------------------------


def end_of(events: list[StreamEvent]) -> Done:
    """The end of a run: there is one, its history is good, and whatever started has ended."""
    assert isinstance(events[-1], Done)
    assert sum(isinstance(event, Done) for event in events) == 1
    check_history(list(events[-1].messages))
    check_ends(events)
    return events[-1]


def check_history(messages: list[Message]) -> None:
    """Every call has its result, in one message, right after it, in the order of the calls."""
    for at, message in enumerate(messages):
        calls = [part.id for part in message.parts if isinstance(part, ToolCall | ToolCallInvalid)]
        if calls:
            assert messages[at + 1].role == "tool"
            assert [result.call_id for result in messages[at + 1].results] == calls
        if message.role == "tool":
            assert messages[at - 1].role == "assistant"


def check_ends(events: list[StreamEvent]) -> None:
    """Every start has one end."""
    started = [event.key for event in events if isinstance(event, ToolStart)]
    ended = Counter(event.key for event in events if isinstance(event, ToolEnd))
    assert len(set(started)) == len(started)
    assert all(ended[key] == 1 for key in started)


def check_pairs(events: list[StreamEvent]) -> None:
    """Every start has one end, and every result in the history has a `ToolEnd`, unless the run was cancelled."""
    check_ends(events)
    begun = [event.step for event in events if isinstance(event, StepStart)]
    assert [event.step for event in events if isinstance(event, StepEnd)] == begun
    done = events[-1]
    assert isinstance(done, Done)
    ends = {event.result.call_id: event.result for event in events if isinstance(event, ToolEnd)}
    for message in done.messages:
        for result in message.results:
            assert ends.get(result.call_id, None if done.reason == "cancelled" else result) in (result, None)


def texts_of(messages: Any) -> list[str]:
    """What the model reads of all results in a history."""
    return [result.text for message in messages for result in message.results]


def results(done: Done) -> list[str]:
    return texts_of(done.messages)


# -- the machine of a run ----------------------------------------------------------------------------------------------


def emitted(commands: list[Command]) -> list[StreamEvent]:
    """The events of these commands."""
    return [event for command in commands if isinstance(command, Emit) for event in command.events]


class Machine:
    """A machine that is fed by hand; collects its commands. Its reader reads everything at once."""

    def __init__(self, **policies: ToolPolicy) -> None:
        self.run = Run([user("Go.")], policies)
        self.commands: list[Command] = []
        self.take(self.run.begin())

    def take(self, commands: list[Command]) -> None:
        self.commands += commands
        self.run.state.response.fold(0)
        for command in commands:
            if isinstance(command, AskModel | StartTool):
                self.run.reached(command)

    def feed(self, *chunks: StreamChunk) -> None:
        for chunk in chunks:
            self.take(self.run.chunks([chunk]))

    def ended(self) -> None:
        self.take(self.run.ended())

    def done(self, key: str, text: str) -> None:
        self.take(self.run.tool_done(key, Outcome((Text(0, text),))))

    @property
    def starts(self) -> list[StartTool]:
        return [command for command in self.commands if isinstance(command, StartTool)]

    @property
    def cancelled(self) -> list[str]:
        return [command.key for command in self.commands if isinstance(command, CancelTool)]

    @property
    def events(self) -> list[StreamEvent]:
        return emitted(self.commands)

    @property
    def requests(self) -> list[tuple[Message, ...]]:
        return [command.messages for command in self.commands if isinstance(command, AskModel)]

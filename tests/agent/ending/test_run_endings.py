"""Law 8: whatever ends a run, and wherever, its history is valid for every provider, tells the truth, and goes on.

A run of three steps with parallel calls is ended at every event in every way, on every wire; where a vendor has tools
of its own, each answer uses one. Each history that is left passes `check` for all providers, survives JSON, is taken by
a strict server of another wire, and goes on there to the final answer; on its own wire if a tool of the vendor's was
cut off.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from functools import partial
from itertools import cycle, islice
from typing import Any

import pytest

from penstock import Agent, Done, Limits, Message, Model, Retries, StreamEvent, ToolCall, ToolCallInvalid, check, tool
from penstock.messages import decode_messages, encode_messages, user
from penstock.providers import PROVIDERS, find_provider
from penstock.testing import Hang, ReceivedRequest, Reply, Reset, Scripted, Status, call, fail, refuse, say, think
from penstock.testing.response import Response
from penstock.transport.commands import OpenRequest
from penstock.wires import all_facts
from penstock.wires.shared.encode_request.hosted_calls import HostedCalls
from tests.budget import IS_THOROUGH, places, share
from tests.scripted_runs import Cut, check_history

TARGETS = {
    "openai-chat": ("openai-compatible:m", None), "openai-responses": ("openai:m", None),
    "anthropic": ("anthropic:claude-haiku-4-5", None), "gemini": ("google:gemini-3-flash", None),
    "ollama": ("ollama:m", None), "cohere": ("cohere:m", None),
    "bedrock": ("bedrock:anthropic.claude-haiku-4-5", None), "mistral": ("mistral:m", "http://localhost/mistral/v1"),
}  # fmt: skip
every_wire = pytest.mark.parametrize("wire", TARGETS)
Left = tuple[list[Message], Counter[str]]
"""The history that a run has left, and how often each tool ran in it."""


class Bench:
    """Tools that count how often they ran; plain, async, read-only, and one that fails."""

    def __init__(self) -> None:
        self.ran: Counter[str] = Counter()

        @tool(read_only=True)
        async def look(city: str) -> str:
            """Look at a city."""
            self.ran[f"look {city}"] += 1
            await asyncio.sleep(0)
            return f"{city} is sunny"

        @tool
        async def write(text: str) -> str:
            """Write something down."""
            self.ran[f"write {text}"] += 1
            return "written"

        @tool
        async def broken() -> str:
            """Never works."""
            self.ran["broken"] += 1
            raise ValueError("no luck")

        self.tools = [look, write, broken]


class Line(Scripted):
    """Plays a script in which the vendor first uses a tool of its own, where it has some, and tells what came of it."""

    def _respond(self, command: OpenRequest) -> Response | Hang | Reset:
        played = super()._respond(command)
        if not isinstance(played, Response) or played.status != 200:
            return played
        request = self.requests[-1]
        frames = [framed(frame) for frame in OWN_TOOLS.get(request.wire, lambda id: [])(len(str(request.body)))]
        return Response(played.status, played.headers, (*played.actions[:1], *frames, *played.actions[1:]))


class CutLine(Cut, Line):
    """The same, broken off after some pieces."""


def framed(frame: dict[str, Any]) -> bytes:
    return f"event: {frame['type']}\ndata: {json.dumps(frame)}\n\n".encode()


def search(number: int) -> list[dict[str, Any]]:
    """The frames of a hosted search of Anthropic, and of its result."""
    use = {"type": "server_tool_use", "id": f"srvtoolu_{number}", "name": "web_search", "input": {}}
    result = {"type": "web_search_tool_result", "tool_use_id": use["id"], "content": []}
    piece = {"type": "input_json_delta", "partial_json": '{"query": "Rome"}'}
    return [
        {"type": "content_block_start", "index": 100, "content_block": use},
        {"type": "content_block_delta", "index": 100, "delta": piece},
        {"type": "content_block_stop", "index": 100},
        {"type": "content_block_start", "index": 101, "content_block": result},
        {"type": "content_block_stop", "index": 101},
    ]


def shell(number: int) -> list[dict[str, Any]]:
    """A command that OpenAI runs in a container of its own, and what it printed."""
    call = {"type": "shell_call", "id": f"sh_{number}", "call_id": f"call_sh_{number}", "action": {"commands": ["ls"]}}
    output = {"type": "shell_call_output", "id": f"sho_{number}", "call_id": call["call_id"], "output": []}
    return [
        {"type": f"response.output_item.{what}", "output_index": at, "item": {**item, "status": "completed"}}
        for at, item in ((100, call), (101, output))
        for what in ("added", "done")
    ]


OWN_TOOLS: dict[str, Callable[[int], list[dict[str, Any]]]] = {"anthropic": search, "openai-responses": shell}


def script() -> list[Reply]:
    return [
        Reply(think("Hm."), say("Let me look."), call("look", {"city": "Rome"}), call("write", {"text": "a"})),
        Reply(say("And again."), call("broken", {}), call("write", {"text": "b"}), call("look", {"city": "Oslo"})),
        Reply("All done."),
    ]


def made(wire: str, line: Scripted, bench: Bench, **options: Any) -> Agent:
    name, url = TARGETS[wire]
    return Agent(Model(name, url, via=line, retries=Retries(attempts=0)), bench.tools, **options)


async def ended(agent: Agent, stop: Callable[[Any, int], bool] = lambda run, at: False) -> list[Message]:
    """The history of a run that is left as soon as `stop` says so."""
    async with agent.astream("Go.") as run:
        async for at, _ in _counted(run):
            if stop(run, at):
                break
    return run.messages


async def _counted(run: Any) -> AsyncIterator[tuple[int, StreamEvent]]:
    at = 0
    async for event in run:
        yield at, event
        at += 1


async def length(wire: str) -> int:
    """How many events the whole run has."""
    async with made(wire, Line(script(), strict=True), Bench()).astream("Go.") as run:
        return len([event async for event in run])


# The ways to end.


def cancelled(when: int, run: Any, at: int) -> bool:
    if at == when:
        run.cancel()
    return False


def left(when: int, run: Any, at: int) -> bool:
    return at == when


async def at_every_event(wire: str, way: Callable[[int, Any, int], bool]) -> AsyncIterator[Left]:
    for when in places(await length(wire), few=12):
        bench = Bench()
        agent = made(wire, Line(script(), strict=True), bench)
        yield await ended(agent, partial(way, when)), bench.ran


async def in_sync_code(wire: str) -> AsyncIterator[Left]:
    for when in places(await length(wire), few=12):
        bench = Bench()
        agent = made(wire, Line(script(), strict=True), bench)
        yield await asyncio.to_thread(_ended_in_sync_code, agent, when), bench.ran


def _ended_in_sync_code(agent: Agent, when: int) -> list[Message]:
    with agent.stream("Go.") as run:
        for at, _ in enumerate(run):
            if at == when:
                run.cancel()
    return run.messages


async def crashed(wire: str) -> AsyncIterator[Left]:
    """What another process has that noted the history at every event, and nothing after it."""
    for when in places(await length(wire), few=12):
        bench, noted = Bench(), list[Message]()
        async with made(wire, Line(script(), strict=True), bench).astream("Go.") as run:
            async for at, _ in _counted(run):
                if at == when:
                    noted = run.messages
        yield noted, bench.ran


async def stored(wire: str) -> AsyncIterator[Left]:
    """What is left of a run that was stored at every event, resumed by another agent and brought to its end."""
    for when in places(await length(wire), few=12):
        bench, line, state = Bench(), Line(answering, strict=True), b""
        async with made(wire, line, bench).astream("Go.") as run:
            async for at, _ in _counted(run):
                if at == when:
                    state = run.dump()
                    break
        async with made(wire, line, bench).aresume(state) as run:
            events = [event async for event in run]
        assert isinstance(events[-1], Done)
        effects = {name: times for name, times in bench.ran.items() if not name.startswith("look")}
        yield run.messages, Counter(effects)  # an answer that was broken off is asked for again, and may be read again


def answering(request: ReceivedRequest) -> Reply:
    """The script, for whoever asks: what comes next depends on what the tools gave back."""
    body = str(request.body)
    return script()[2] if "And again." in body else script()[1] if "Let me look." in body else script()[0]


async def broken_off(wire: str) -> AsyncIterator[Left]:
    for request in (1, 2, 3):
        for pieces in range(10_000):
            bench, line = Bench(), CutLine(script(), request, pieces)
            messages = await ended(made(wire, line, bench))
            if not line.is_cut:
                break
            yield messages, bench.ran


FAILURES: list[Any] = [
    Status(400), Status(500), Reply(say("Well,"), fail("overloaded", "Too busy.")), Reply(refuse("No.")),
    Reply(say("I"), finish="content_filter"), Reply(call("write", {"text": "c"}), finish="content_filter"),
    Reply(say("So"), finish="length"), Reply(call("write", '{"text": "c'), finish="length"), Reply(),
    Reply(call("write", '{"text": "c"')), Reply(call("write", "[1]")), Reply(call("nothing", {})),
]  # fmt: skip


async def failed(wire: str) -> AsyncIterator[Left]:
    for number in range(3):
        for failure in FAILURES:
            bench = Bench()
            line = Line([*script()[:number], failure, *script()[number:]])
            yield await ended(made(wire, line, bench)), bench.ran


async def limited(wire: str) -> AsyncIterator[Left]:
    tight = [
        Limits(steps=1), Limits(steps=2), Limits(calls=1), Limits(calls=3), Limits(tokens=1), Limits(seconds=1e-6),
        Limits(parallel=1), Limits(calls_per_answer=1), Limits(repeats=1), Limits(hook_seconds=1), Limits(cost=3.0),
    ]  # fmt: skip
    for limits in tight:
        bench = Bench()
        prices = {} if limits.cost is None else {"prices": lambda model, usage: 1.0}
        yield await ended(made(wire, Line(script(), strict=True), bench, limits=limits, **prices)), bench.ran


WAYS: dict[str, Callable[[str], AsyncIterator[Left]]] = {
    "cancelled": lambda wire: at_every_event(wire, cancelled),
    "left": lambda wire: at_every_event(wire, left),
    "cancelled in sync code": in_sync_code,
    "crashed": crashed,
    "stored and resumed": stored,
    "broken off": broken_off,
    "failed": failed,
    "limited": limited,
}


# What holds for every end.


@every_wire
@pytest.mark.parametrize("way", WAYS)
def test_a_history_is_valid_after_every_ending(wire: str, way: str, record_property: Any) -> None:
    others = cycle(name for name in TARGETS if name != wire)

    async def all_of_them() -> int:
        count = 0
        async for messages, ran in WAYS[way](wire):
            count += 1
            assert max(ran.values(), default=0) <= 1, (count, ran)
            holds(messages)
            is_cut_off = bool(HostedCalls([*messages, user("Go on.")], all_facts()).unfinished)
            cut_off.append(is_cut_off)
            await goes_on(messages, wire if is_cut_off else next(others))
        return count

    cut_off: list[bool] = []
    count = asyncio.run(all_of_them())
    if way in ("cancelled", "left", "crashed", "broken off"):
        assert any(cut_off) == (wire in OWN_TOOLS) or not (any(cut_off) or IS_THOROUGH)  # few endings may all miss it
    assert count >= (len(Limits.__struct_fields__) if way == "limited" else 10)
    record_property("endings", count)


JUDGES = cycle(PROVIDERS)
"""The providers in turns: each checks a part of the histories."""


def holds(messages: list[Message]) -> None:
    """The history is valid for every provider, and says what became of every call."""
    check_history(messages)
    assert check(messages) == []
    for provider in islice(JUDGES, share(len(PROVIDERS), 6)):
        assert check(messages, find_provider(provider)[0]) == []
    assert decode_messages(encode_messages(messages)) == messages
    for answer in (result for message in messages for result in message.results):
        assert answer.text.strip(), "a result says something"
    for part in (part for message in messages for part in message.parts):
        if isinstance(part, ToolCallInvalid):
            assert next(iter(_answers(messages, part.id))).is_error


def _answers(messages: Iterable[Message], id: str) -> Iterator[Any]:
    return (result for message in messages for result in message.results if result.call_id == id)


async def goes_on(messages: list[Message], wire: str) -> None:
    """A strict provider of another wire takes the history, and the run comes to its answer."""
    line = Scripted([Reply(say("Once more."), call("look", {"city": "Paris"})), "All is well."], strict=True)
    result = await made(wire, line, Bench()).arun("Go on.", messages=messages)
    assert (result.reason, result.output) == ("answered", "All is well."), (wire, result.why)
    before = [part.id for message in messages for part in message.parts if isinstance(part, ToolCall)]
    after = [part.id for message in result.messages for part in message.parts if isinstance(part, ToolCall)]
    assert len(after) == len(before) + 1
    holds(list(result.messages))

"""Reads that take long to decode: other tasks of the event loop run meanwhile, and the events are the same."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock import Model, Text, ToolCall
from penstock.events import StreamChunk
from penstock.healing.parts import PART_CHARACTERS, EventParts
from penstock.healing.settings import Healing
from penstock.testing import Loopback, Raw
from penstock.transport.http.read_slices import FIRST_BYTES, LEAST_BYTES, MOST_BYTES, ReadSlices
from tests.support import joined

TOOLS = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}]
END = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'


def text(words: str) -> bytes:
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'content': words}}]})}\n\n".encode()


def call(number: int) -> bytes:
    function = {"name": "look", "arguments": "{}"}
    calls = [{"index": number, "id": f"c{number}", "type": "function", "function": function}]
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'tool_calls': calls}}]})}\n\n".encode()


async def read(model: Model, options: Any) -> tuple[list[StreamChunk], int, int]:
    """The events of a response, how many turns the event loop had meanwhile, and the size of the largest batch."""
    turns = largest = 0
    is_over = False

    async def count() -> None:
        nonlocal turns
        while not is_over:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    events: list[StreamChunk] = []
    async with model.astream("hello", tools=TOOLS, **options) as stream:
        turns = 0
        async for batch in stream.batches():
            largest = max(largest, len(batch))
            events += batch
    is_over = True
    await counting
    return events, turns, largest


BODIES: dict[str, Callable[[], bytes]] = {
    "one frame of marks": lambda: text("<" * 20_000) + END,
    "one frame of calls": lambda: text('<tool_call>{"name":"look","arguments":{}}</tool_call>\n' * 300) + END,
    "many calls": lambda: b"".join(map(call, range(500))) + END,
    "many texts": lambda: text("<") * 4000 + END,
}


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("options", [{"rescue": True}, {"healing": Healing()}], ids=["rescue", "healing"])
def test_the_loop_has_turns_while_a_long_read_is_decoded(name: str, options: Any) -> None:
    with Loopback([Raw(BODIES[name]())] * 2) as server:
        model = Model("openai-compatible:m", base_url=server.url, api_key="k")
        events, turns, largest = asyncio.run(read(model, options))
        with model.stream("hello", tools=TOOLS, **options) as stream:
            expected = list(stream)
    assert joined(events) == joined(expected)
    assert largest <= 600  # the events of parts that took a moment, or a batch
    assert turns > 8


def test_a_large_read_is_cut_between_frames() -> None:
    frame = b"data: " + b"x" * 500 + b"\n\n"
    data = frame * 40

    async def slices() -> list[bytes]:
        cut = ReadSlices()
        pieces = [cut.first(data)]
        while cut.rest:
            pieces.append(await cut.next())
        return pieces

    pieces = asyncio.run(slices())
    assert b"".join(pieces) == data
    assert len(pieces) > 1
    assert all(len(piece) % len(frame) == 0 for piece in pieces)
    assert len(pieces[0]) <= FIRST_BYTES


def test_slices_follow_the_time_that_the_last_one_took(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("penstock.transport.http.read_slices.time.monotonic", lambda: now)

    async def sizes(seconds: float) -> list[int]:
        nonlocal now
        cut = ReadSlices()
        found = [len(cut.first(b"x" * 200_000))]
        while cut.rest:
            now += seconds
            found.append(len(await cut.next()))
        return found

    assert max(asyncio.run(sizes(0.0001))) == MOST_BYTES
    assert min(asyncio.run(sizes(0.01))[:-1]) == LEAST_BYTES


def test_parts_are_the_events() -> None:
    parts = EventParts()
    events: list[StreamChunk] = [
        Text(0, "ab" * 1000),
        ToolCall("a", "look", {}, "{}"),
        Text(1, "c"),
        Text(1, "d" * 600),
    ]
    assert parts.first(events) == events
    assert not parts.has_more
    parts.is_used = True
    read = [parts.first(events)]
    while parts.has_more:
        read.append(parts.next())
    assert joined(event for part in read for event in part) == joined(events)
    assert all(sum(len(event.text) for event in part if isinstance(event, Text)) <= PART_CHARACTERS for part in read)

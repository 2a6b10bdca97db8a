"""Protocols that write one block after the other: a call ends before the next block begins, and nothing is lost."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock import Error, Finish, Retry, StreamChunk, Text, ToolCall, ToolCallDelta, ToolCallStart
from penstock.calls import arguments
from penstock.wires import find_response_frames
from penstock.wires.shared.encode_response import response_encoder
from penstock.wires.shared.encode_response.block_order import BlockOrder
from penstock.wires.shared.encode_response.response_encoder import ResponseEncoder
from penstock.wires.shared.encode_response.response_head import ResponseHead

SEQUENTIAL = ["anthropic", "openai-responses"]


def start(block: int) -> StreamChunk:
    return ToolCallStart(block, f"c{block}", "look")


def delta(block: int, piece: str = "{}") -> StreamChunk:
    return ToolCallDelta(block, piece)


def whole(block: int, raw: str = "{}") -> StreamChunk:
    return ToolCall(f"c{block}", "look", json.loads(raw), raw, block=block)


def written(wire: str, events: list[StreamChunk]) -> list[Any]:
    encoder = ResponseEncoder(find_response_frames(wire)(ResponseHead(id="1")))
    data = b"".join(encoder.feed([event]) for event in events) + encoder.close()
    return [json.loads(line[6:]) for line in data.decode().splitlines() if line.startswith("data: {")]


@pytest.mark.parametrize("wire", SEQUENTIAL)
def test_calls_that_overlap_are_written_one_after_the_other(wire: str) -> None:
    events = [start(1), delta(1), start(2), delta(2), Text(3, "Hi"), whole(1), whole(2), Finish("tool_calls")]
    index = "index" if wire == "anthropic" else "output_index"
    places = [frame[index] for frame in written(wire, events) if index in frame]
    assert places == sorted(places)
    assert set(places) == {0, 1, 2}


def test_what_waits_is_written_at_the_end_of_the_call_and_not_later() -> None:
    order = BlockOrder()
    for event in (start(1), start(2), delta(2), Text(3, "Hi"), start(4)):
        order.feed(event)
    assert order.feed(whole(1)) == [whole(1), start(2), delta(2)]
    assert order.feed(delta(4)) == ()
    assert order.feed(whole(2)) == [whole(2), Text(3, "Hi"), start(4), delta(4)]
    assert order.size == 0


@pytest.mark.parametrize("end", [Finish("cut"), Error("lost"), Retry("lost")])
def test_what_waits_is_not_lost_when_the_response_breaks_off(end: StreamChunk) -> None:
    order = BlockOrder()
    for event in (start(1), start(2), delta(2)):
        order.feed(event)
    assert order.feed(end) == [start(2), delta(2), end]


def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response_encoder, "MAX_ARGUMENTS", 100)
    frames = written("anthropic", [start(1), start(2), *(delta(2, "x" * 10) for _ in range(20)), whole(1)])
    assert frames[-1]["type"] == "error"
    assert "too large" in frames[-1]["error"]["message"]
    assert arguments.MAX_ARGUMENTS > 100

"""Law 4 for responses: four times the events take about four times the time, on every protocol, streamed and whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from penstock import Finish, Opaque, Reasoning, StreamChunk, Text, ToolCall, ToolCallDelta, ToolCallStart
from penstock.wires import RESPONSE_FRAMES, find_response_frames
from penstock.wires.shared.encode_response.response_bodies import encode_body
from penstock.wires.shared.encode_response.response_encoder import ResponseEncoder
from penstock.wires.shared.encode_response.response_head import ResponseHead
from tests.growth import assert_linear


def one_call(size: int) -> Iterator[StreamChunk]:
    raw = '{"a":"' + "x" * size + '"}'
    yield ToolCallStart(0, "c1", "mail")
    yield from (ToolCallDelta(0, letter) for letter in raw)
    yield ToolCall("c1", "mail", {"a": "x" * size}, raw, sealed_by="call_end")


def many_calls(size: int) -> Iterator[StreamChunk]:
    """Calls with vendor state; all are confirmed at the end."""
    for block in range(size):
        yield ToolCallStart(block, f"c{block}", "mail")
        yield from (Opaque(block, wire, "signature", "abc") for wire in ("anthropic", "gemini", "openai-chat"))
        yield ToolCallDelta(block, "{}")
    yield from (ToolCall(f"c{block}", "mail", {}, "{}", sealed_by="finish", block=block) for block in range(size))


RESPONSES: dict[str, Callable[[int], Iterator[StreamChunk]]] = {
    "a text": lambda size: (Text(0, "word ") for _ in range(size)),
    "many texts": lambda size: (Text(block, "word ") for block in range(size)),
    "many thoughts": lambda size: (Reasoning(block, "word ") for block in range(size)),
    "a call": one_call,
    "many calls": many_calls,
}


def events_of(response: str, size: int) -> list[StreamChunk]:
    return [*RESPONSES[response](size), Finish("stop")]


@pytest.mark.parametrize("protocol", RESPONSE_FRAMES)
@pytest.mark.parametrize("response", RESPONSES)
def test_encoding_a_stream_is_linear(response: str, protocol: str) -> None:
    def work(size: int) -> Callable[[], object]:
        events, encoder = events_of(response, size), ResponseEncoder(find_response_frames(protocol)(ResponseHead()))
        return lambda: [*(encoder.feed([event]) for event in events), encoder.close()]

    assert_linear(work, 500)


@pytest.mark.parametrize("protocol", RESPONSE_FRAMES)
@pytest.mark.parametrize("response", RESPONSES)
def test_encoding_a_body_is_linear(response: str, protocol: str) -> None:
    def work(size: int) -> Callable[[], object]:
        events = events_of(response, size)
        return lambda: encode_body(find_response_frames(protocol), events, ResponseHead())

    assert_linear(work, 500)

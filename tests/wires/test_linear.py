"""Law 4: four times the input takes about four times the time, for pieces of any size, in bounded memory."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from penstock import StreamingToolCallAccumulator
from penstock.wires import WIRES
from tests import streams
from tests.growth import assert_linear
from tests.support import decode_pieces, frame_bytes, pieces_of


def openai_chunk(delta: dict[str, Any]) -> bytes:
    return frame_bytes("openai-chat", {"choices": [{"index": 0, "delta": delta}]})


def anthropic_delta(**delta: Any) -> bytes:
    return frame_bytes("anthropic", {"type": "content_block_delta", "index": 0, "delta": delta})


def long_text(wire: str, size: int) -> bytes:
    """A stream with one very large frame."""
    return streams.body(wire).replace(b"Let me ", b"x" * size)


@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire != "bedrock"])
@pytest.mark.parametrize("piece", [64, 1024])
def test_a_giant_frame_in_small_pieces_is_linear(wire: str, piece: int) -> None:
    def work(size: int) -> Callable[[], object]:
        pieces = list(pieces_of(long_text(wire, size), piece))
        return lambda: decode_pieces(wire, pieces)

    assert_linear(work, 1000 * piece)


def test_blocks_of_several_lines_are_linear() -> None:
    def work(size: int) -> Callable[[], object]:
        body = b'data: {"choices":\r\ndata: []}\r\n\r\n' * size
        return lambda: decode_pieces("openai-chat", [body])

    assert_linear(work, 2000)


def test_querying_the_accumulator_after_each_piece_is_linear() -> None:
    def work(size: int) -> Callable[[], object]:
        text = json.dumps({"content": "word " * (size // 5)})
        pieces = [text[at : at + 8] for at in range(0, len(text), 8)]

        def run() -> None:
            calls = StreamingToolCallAccumulator()
            for piece in pieces:
                calls.add_chunk([{"index": 0, "id": "c", "function": {"name": "f", "arguments": piece}}])
                calls.has_complete_tool_calls()

        return run

    assert_linear(work, 20_000)


def test_many_copies_of_a_call_in_the_accumulator_are_linear() -> None:
    def work(size: int) -> Callable[[], object]:
        calls = StreamingToolCallAccumulator()
        for index in range(size):
            calls.add_chunk([{"index": index, "id": "c", "function": {"name": "f", "arguments": "{}"}}])
        return calls.get_complete_tool_calls

    assert_linear(work, 100)


@pytest.mark.parametrize("between", [b"", b": keep-alive\n\n", b"event: ping\ndata: {}\n\n", b"\r\n"])
def test_many_frames_in_one_read_are_linear(between: bytes) -> None:
    def work(size: int) -> Callable[[], object]:
        body = (openai_chunk({"content": "word "}) + between) * size
        return lambda: decode_pieces("openai-chat", [body])

    assert_linear(work, 3000)


ARGUMENTS = {
    "one long string": lambda size: json.dumps({"content": "word } " * (size // 7)}),
    "many objects": lambda size: json.dumps({"edits": [{"line": 1, "new": "{x}"}] * (size // 30)}),
    "braces that never close": lambda size: '{"a":' + "{}}" * (size // 3),
}


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=list(ARGUMENTS))
@pytest.mark.parametrize("style", ["index", "name repeated, nothing else", "id repeated", "another name each time"])
def test_arguments_in_small_pieces_are_linear(arguments: Callable[[int], str], style: str) -> None:
    def fragment(at: int, piece: str) -> dict[str, Any]:
        head: dict[str, dict[str, Any]] = {
            "index": {"index": 0, "id": "" if at else "c", "function": {"name": "" if at else "f", "arguments": piece}},
            "name repeated, nothing else": {"function": {"name": "f", "arguments": piece}},
            "id repeated": {"index": at, "id": "c", "function": {"name": "f", "arguments": piece}},
            "another name each time": {"index": 0, "function": {"name": f"f{at}", "arguments": piece}},
        }
        return head[style]

    def work(size: int) -> Callable[[], object]:
        text = arguments(size)
        pieces = [text[at : at + 8] for at in range(0, len(text), 8)]
        body = [openai_chunk({"tool_calls": [fragment(at, piece)]}) for at, piece in enumerate(pieces)]
        return lambda: decode_pieces("openai-chat", body)

    assert_linear(work, 16_000)

"""Damage in and around the frames of a stream: no cut shows, and a prefix has no call that the whole does not have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random
from typing import Any

import penstock
from penstock import StreamChunk, ToolCall, WireName
from tests.budget import sample
from tests.cases import each
from tests.fuzz.answers import Answer, Call, Words
from tests.fuzz.protocols import stream_of
from tests.support import aws_message, decode_pieces, frame_bytes, joined

LINES = [
    b"\xff", b"hello", b"{", b'"x"', b"data", b"data: ", b"data: \xff", b"data: x", b"data: null", b"data: [DONE]",
    b"data: {}", b"event: \xff", b"event: error", b"event: other", b"id: \xff", b"retry: \xff", b": \xff", b':{"',
    b"odd: word", b"odd: {", b'error: {"message": "m"}', b"error: \xff", b"[DONE]", b'{"a": 1}', b"\xef\xbb\xbf",
    b"\xef\xbb\xbfdata: {}", b"dat", b" data: {}", b"\x00",
]  # fmt: skip
TAILS = [b"\xff", b" x", b"}", b"{}", b'"', b" [DONE]", b",", b"  ", b"\x00", b"\xe2\x82", b" {", b"]", b":"]
"""What may follow a frame in its line."""
LINE_ENDS = [b"\n", b"\r\n", b"\r"]
ANSWER = Answer([Words("text", ["a"]), Call("c1", "write", {"k": "v"}, ['{"k": ', '"v"}'])], "tool_calls")
SSE_WIRES: list[WireName] = ["openai-chat", "openai-responses", "anthropic", "gemini", "cohere"]


def calls_of(events: list[StreamChunk]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(event.id, event.name, event.arguments) for event in events if isinstance(event, ToolCall)]


def assert_lawful(wire: str, body: bytes, start: int, end: int) -> None:
    """Laws 1 and 3, for cuts between these places."""
    whole = decode_pieces(wire, [body])
    expected, known = joined(whole), calls_of(whole)
    for at in range(start, end + 1):
        assert joined(decode_pieces(wire, [body[:at], body[at:]])) == expected, (body, at)
        for call in calls_of(decode_pieces(wire, [body[:at]])):
            assert call in known, (body, at)
    assert joined(decode_pieces(wire, [body[at : at + 1] for at in range(len(body))])) == expected, body


def damaged_blocks(block: bytes) -> Iterator[bytes]:
    """An SSE block with one more line at any place, or with more in a line, for each line end."""
    lines = block.strip(b"\n").split(b"\n")
    for end in LINE_ENDS:
        for line in LINES:
            for at in range(len(lines) + 1):
                yield end.join([*lines[:at], line, *lines[at:], b"", b""])
        for tail in TAILS:
            for at in range(len(lines)):
                yield end.join([*lines[:at], lines[at] + tail, *lines[at + 1 :], b"", b""])


@each("wire", SSE_WIRES)
def test_a_damaged_line_of_a_block_obeys_the_laws(wire: str) -> None:
    blocks = [frame_bytes(wire, frame) for frame in stream_of(wire, ANSWER, Random(1))]
    cases = [(number, damaged) for number, block in enumerate(blocks) for damaged in damaged_blocks(block)]
    for number, damaged in sample(cases, 16):
        before, after = b"".join(blocks[:number]), b"".join(blocks[number + 1 :])
        end = len(before) + len(damaged)
        assert_lawful(wire, before + damaged + after, max(len(before), end - 24), end + 1)


def test_a_damaged_line_of_ndjson_obeys_the_laws() -> None:
    lines = [frame_bytes("ollama", frame) for frame in stream_of("ollama", ANSWER, Random(1))]
    cases = [(number, line[:-1] + tail + b"\n") for number, line in enumerate(lines) for tail in TAILS]
    cases += [(number, line + other + b"\n") for number, line in enumerate(lines) for other in LINES]
    for number, damaged in sample(cases, 16):
        before = b"".join(lines[:number])
        end = len(before) + len(damaged)
        assert_lawful("ollama", before + damaged + b"".join(lines[number + 1 :]), max(len(before), end - 24), end + 1)


def test_more_than_json_in_a_frame_of_aws_obeys_the_laws() -> None:
    frames = stream_of("bedrock", ANSWER, Random(1))
    encoded = [frame_bytes("bedrock", frame) for frame in frames]
    for number, frame in enumerate(frames):
        assert isinstance(frame, dict)
        [(name, payload)] = frame.items()
        for tail in sample(TAILS, 4):
            message = aws_message({":message-type": "event", ":event-type": name}, json.dumps(payload).encode() + tail)
            before = b"".join(encoded[:number])
            end = len(before) + len(message)
            assert_lawful("bedrock", before + message + b"".join(encoded[number + 1 :]), end - 9, end + 1)


def test_lines_without_their_ends_obey_the_laws() -> None:
    for wire in ("gemini", "ollama"):
        body = b"".join(frame_bytes(wire, frame) for frame in stream_of(wire, ANSWER, Random(1))).replace(b"\n", b"")
        assert_lawful(wire, body, 0, len(body))


PAY = {
    "candidates": [{"content": {"role": "model", "parts": [{"functionCall": {"name": "pay", "args": {"to": "A"}}}]}}]
}


def turn_of(*parts: bytes) -> penstock.Turn:
    stop = b'data: {"candidates": [{"finishReason": "STOP"}]}\n\n'
    return penstock.collect(penstock.decode(b"".join(parts) + stop, "gemini"))


@each("line", [b"\xff", b"hello", b'"amount": 1,', b"{", b"dat\xff: 1,"])
def test_a_frame_with_a_damaged_line_amid_its_data_is_not_read(line: bytes) -> None:
    lines = json.dumps(PAY, indent=1).encode().split(b"\n")
    for at in range(1, len(lines)):
        damaged = b"\n".join(
            [*(b"data: " + data for data in lines[:at]), line, *(b"data: " + data for data in lines[at:])]
        )
        turn = turn_of(damaged + b"\n\n")
        assert not turn.tool_calls, damaged
        assert turn.finish_reason == "error"


@each("line", [b": comment", b"id: \xff", b"retry: 5", b"odd: word"])
def test_a_line_that_sse_ignores_does_not_damage_the_data_around_it(line: bytes) -> None:
    lines = [b"data: " + data for data in json.dumps(PAY, indent=1).encode().split(b"\n")]
    for at in range(len(lines) + 1):
        turn = turn_of(b"\n".join([*lines[:at], line, *lines[at:]]) + b"\n\n")
        assert [call.arguments for call in turn.tool_calls] == [{"to": "A"}]
        assert turn.error is None


@each("more", [b"\xff", b'\nodd: {"', b'\n\xff": 1', b" x", b"{", b"\n{", b"\nevent: \xff"])
def test_damage_after_a_frame_is_an_error_that_does_not_change_the_frame(more: bytes) -> None:
    turn = turn_of(b"data: " + json.dumps(PAY).encode() + more + b"\n\n")
    assert [call.arguments for call in turn.tool_calls] == [{"to": "A"}]
    assert turn.error is not None
    assert (turn.error.code, turn.finish_reason) == ("unreadable_frame", "error")


def test_names_amid_a_block_without_blank_lines_belong_to_their_frames() -> None:
    frames = [b'{"type":"message_start","message":{}}', b'{"index":0,"content_block":{"type":"text","text":"Hi"}}']
    names = [b"message_start", b"content_block_start"]
    first = b"".join(b"event: %s\ndata: %s\n" % pair for pair in zip(names, frames, strict=True))
    last = b"".join(b"data: %s\nevent: %s\n" % pair for pair in zip(frames, names, strict=True))
    for body in (first, last):
        turn = penstock.collect(penstock.decode(body + b"\n", "anthropic"))
        assert (turn.text, turn.unknown) == ("Hi", ())

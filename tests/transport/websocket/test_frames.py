"""Laws over frames: a response over WebSocket gives the events of the same response over HTTP."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.decoder import Decoder
from penstock.errors import ConnectionFailed
from penstock.events import Finish, StreamChunk, ToolCall
from penstock.transport.websocket.answer import Answer, as_sse
from penstock.wires.openai_responses.facts import FACTS
from penstock.wires.openai_responses.websocket import FRAMES
from penstock.wires.shared.remembered import Remembered, SplitBody, following_body, split_body, whole_body
from tests.cases import each
from tests.support import Vector, frame_bytes, joined, vectors

VECTORS = [
    vector for vector in vectors()
    if vector.wire == "openai-responses"
    and vector.frames
    and all(isinstance(frame, dict) and "$bytes" not in frame and "type" in frame for frame in vector.frames)
    and vector.frames[0]["type"] == "response.created"
]  # fmt: skip
every_vector = each("vector", VECTORS, ids=lambda vector: vector.name)


def decoded(pieces: list[bytes]) -> list[StreamChunk]:
    decoder = Decoder("openai-responses")
    chunks = [chunk for piece in pieces for chunk in decoder.feed(piece)]
    return joined([*chunks, *decoder.close()])


def answered(frames: list[Any]) -> list[bytes]:
    answer = Answer(FRAMES)
    return [answer.feed(json.dumps(frame)) for frame in frames if not answer.is_over]


def test_there_are_vectors() -> None:
    assert len(VECTORS) > 20


@every_vector
def test_frames_give_the_events_of_the_stream(vector: Vector) -> None:
    frames = until_the_end(vector.frames)
    assert decoded(answered(frames)) == decoded([frame_bytes(vector.wire, frame) for frame in frames])


def until_the_end(frames: list[Any]) -> list[Any]:
    """The frames of a response up to the one that ends it: there the connection is free for the next."""
    ends = [number for number, frame in enumerate(frames) if FRAMES.read(json.dumps(frame)).kind in ENDS]
    return frames[: ends[0] + 1] if ends else frames


ENDS = ("ends", "error", "refused", "closing")


@every_vector
def test_every_prefix_is_a_response_whose_calls_are_calls_of_the_whole(vector: Vector) -> None:
    frames = until_the_end(vector.frames)
    calls = [chunk for chunk in decoded(answered(frames)) if isinstance(chunk, ToolCall)]
    for count in range(1, len(frames)):
        chunks = decoded(answered(frames[:count]))
        assert isinstance(chunks[-1], Finish)
        begun = [chunk for chunk in chunks if isinstance(chunk, ToolCall)]
        assert [call.id for call in begun] == [call.id for call in calls][: len(begun)]


@pytest.mark.parametrize("text", ['{"type":\n"x", "a": 1}', '{"type":\r\n"x", "a": 1}', '{"type":\r"x", "a": 1}'])
def test_line_ends_in_a_frame_do_not_split_it(text: str) -> None:
    decoder = Decoder("openai-responses")
    unknown, *_ = [*decoder.feed(as_sse(text)), *decoder.close()]
    assert unknown.type == "unknown"


def test_the_end_of_another_response_is_not_taken_for_an_answer() -> None:
    answer = Answer(FRAMES)
    with pytest.raises(ConnectionFailed):
        answer.feed('{"type": "response.completed", "response": {"id": "resp_0"}}')
    assert answer.phase == "broken"


def test_a_request_is_one_object_without_fields_of_http() -> None:
    body = (
        b'{"model":"m","input":[',
        b'{"a":1}',
        b',{"b":2}',
        b'],"stream":true,"background":false,"tools":[{"stream":true}]}',
    )
    expected = {"type": "response.create", "model": "m", "tools": [{"stream": True}], "input": [{"a": 1}, {"b": 2}]}
    assert json.loads(FRAMES.request(body)) == expected
    assert json.loads(FRAMES.request(b"".join(body))) == expected


# Remembered.

MEMORY = FACTS.memory
PARTS = (b'{"model":"m","input":[', b'{"a":1}', b',{"b":2}', b'],"store":false,"generate":false}')


def body_of(*items: bytes, fields: bytes = b'{"model":"m"}') -> SplitBody:
    return SplitBody(fields, items)


def test_a_body_is_split_and_written_again() -> None:
    assert MEMORY is not None
    body = split_body(PARTS, MEMORY, is_stored=False)
    assert body == SplitBody(b'{"model":"m","store":false}', (b'{"a":1}', b',{"b":2}'), {"generate": False})
    assert json.loads(b"".join(whole_body(body, MEMORY))) == json.loads(b"".join(PARTS))
    rest = json.loads(b"".join(following_body(body, MEMORY, "r", (b',{"b":2}',))))
    assert rest == {"model": "m", "store": False, "generate": False, "previous_response_id": "r", "input": [{"b": 2}]}
    assert split_body((b'{"model":"m","input":"text"}',), MEMORY, is_stored=False) is None


def test_only_an_extension_continues() -> None:
    known = Remembered(parent="r", fields=b'{"model":"m"}', items=(b"1", b",2"), until=10.0)
    assert known.rest(body_of(b"1", b",2", b",3"), 0.0) == (b",3",)
    assert known.rest(body_of(b"1", b",2"), 0.0) is None
    assert known.rest(body_of(b"1", b",9", b",3"), 0.0) is None
    assert known.rest(body_of(b"1", b",2", b",3", fields=b'{"model":"n"}'), 0.0) is None
    assert known.rest(body_of(b"1", b",2", b",3"), 10.0) is None
    warm = Remembered(parent="r", fields=b'{"model":"m"}', items=(b"1",), is_open=True)
    assert warm.rest(body_of(b"1"), 0.0) == ()

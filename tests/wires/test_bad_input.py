"""Malformed input: reported as events, bounded by named limits, never raised."""

from __future__ import annotations

import copy
import gzip
import json
import random
import tracemalloc
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock
from penstock import Error, Finish, Opaque, PenstockError, Retry, StreamChunk, Unknown, UnknownWireError, WireName
from penstock.framing import aws, json_array, ndjson, sse
from penstock.framing import frames as frame
from penstock.wires import ALIASES, WIRES
from penstock.wires.openai_chat import decode_response as openai_chat
from tests import streams
from tests.budget import sample
from tests.cases import each
from tests.sanity import assert_sane, visible_text
from tests.support import aws_message, decode_pieces, frame_bytes, joined, pieces_of, random_pieces, vectors

every_wire = pytest.mark.parametrize("wire", list(WIRES))
a_few = settings(max_examples=settings().max_examples // 2)  # for each wire
MEBIBYTE = 1024 * 1024


def frames_of(wire: str) -> list[Any]:
    frames: list[Any] = getattr(streams, wire.replace("-", "_"))()
    return frames


def framed(wire: str, payload: bytes, event: str = "contentBlockDelta") -> bytes:
    """Any payload in the framing of the wire."""
    match wire:
        case "ollama":
            return payload + b"\n"
        case "bedrock":
            return aws_message({":message-type": "event", ":event-type": event}, payload)
        case _:
            return b"data: " + payload + b"\n\n"


def beginning(wire: str) -> bytes:
    """The beginning of a stream, up to the end of its text."""
    data = b""
    for item in frames_of(wire):
        data += frame_bytes(wire, item)
        if visible_text(decode_pieces(wire, [data])) == streams.TEXT:
            return data
    raise AssertionError("the stream never says its text")


BEGINNINGS = {wire: beginning(wire) for wire in WIRES}


def decoded(wire: str, pieces: Iterable[bytes], tools: Any = None) -> list[StreamChunk]:
    """The events of a stream, after checking that they are sane."""
    stream = decode_pieces(wire, pieces, tools)
    assert_sane(stream)
    return stream


def problems(stream: list[StreamChunk]) -> list[Error | Unknown]:
    return [event for event in stream if isinstance(event, Error | Unknown)]


# Bodies that are not streams

NO_STREAMS = {
    "markup": b"<html>\r\n<head><title>504 Gateway Time-out</title></head>\r\n<body>nginx</body></html>",
    "xml": b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>',
    "gzip": gzip.compress(b'data: {"choices": []}\n\n'),
    "random": random.Random(7).randbytes(3000),
    "words": b"upstream connect error or disconnect/reset before headers. reset reason: overflow",
    "nul": b"\x00" * 2000,
    "invalid utf-8": b"\xff\xfe\xc3(\xa0\xa1 not text\n" * 20,
    "a number": b"4711 is not a stream",
    "an array of nothing much": b'[1, "two", null, [3]]',
    "brackets": b"{" * 1000,
    "quotes": b'"' * 1001,
}


@every_wire
@each("body", NO_STREAMS.values(), ids=list(NO_STREAMS))
def test_a_body_that_is_not_a_stream_is_reported(wire: str, body: bytes) -> None:
    stream = decoded(wire, [body])
    assert problems(stream)
    assert [type(event) for event in stream][-1] is Finish
    assert penstock.collect(stream).finish_reason in ("cut", "error")
    assert joined(decoded(wire, pieces_of(body, 1))) == joined(stream)


NOT_UTF8 = [b"\xff", b"\xc3", b"\x80", b"\xed\xa0\x80"]  # the last is a surrogate


@pytest.mark.parametrize("wire", [*WIRES, *ALIASES])
def test_a_call_with_bytes_that_are_not_utf8_never_runs(wire: str) -> None:
    chance = random.Random(wire)
    for vector in vectors():
        if vector.wire != wire or not vector.expected.get("tool_calls"):
            continue
        calls = [
            (call.name, call.arguments)
            for call in penstock.collect(decoded(wire, [vector.body()], vector.tools)).tool_calls
        ]
        encoded = [frame_bytes(wire, item) for item in vector.frames]
        for at in chance.sample(range(len(encoded)), min(4, len(encoded))):
            body = b"".join([*encoded[:at], garble(wire, vector.frames[at], chance), *encoded[at + 1 :]])
            turn = penstock.collect(stream := decoded(wire, [body], vector.tools))
            assert [call for call in turn.tool_calls if (call.name, call.arguments) not in calls] == [], vector.name
            assert joined(decoded(wire, random_pieces(body, at), vector.tools)) == joined(stream), vector.name


def garble(wire: str, item: Any, chance: random.Random) -> bytes:
    """A frame with bytes that are not UTF-8 in its payload or in the name of its event."""
    if wire == "bedrock" and isinstance(item, dict) and len(item) == 1:
        [(event, payload)] = item.items()
        data = json.dumps(payload).encode()
        at = chance.randrange(len(data) + 1)
        return framed(wire, data[:at] + chance.choice(NOT_UTF8) + data[at:], event)
    data = frame_bytes(wire, item)
    at = chance.randrange(len(data.rstrip()) + 1)
    return data[:at] + chance.choice(NOT_UTF8) + data[at:]


@every_wire
def test_bytes_that_are_not_utf8_are_an_error_only_in_calls_names_and_keys(wire: str) -> None:
    body = b"".join(frame_bytes(wire, item) for item in frames_of(wire))
    end = len(BEGINNINGS[wire])
    for payload, is_hole in (
        (b'{"words": "\xff"}', False),
        (b'{"words": ["a", {"more": "\xfe\xff"}]}', False),
        (b'{"name": "\xff"}', True),
        (b'{"type": "\xff"}', True),
        (b'{"wo\xffrds": ""}', True),
        (b'{"deep": [{"arguments": {"a": ["\xff"]}}]}', True),
        (b'{"words": "\xff", "words": ', True),
    ):
        turn = penstock.collect(decoded(wire, [body[:end] + framed(wire, payload) + body[end:]]))
        assert turn.text == streams.TEXT
        assert (turn.finish_reason == "error") == is_hole, payload
        assert (turn.error is not None and turn.error.code == "unreadable_frame") == is_hole


ERROR_BODIES = {
    "openai": {"error": {"message": "no such boat", "type": "invalid_request_error", "code": "boat_not_found"}},
    "anthropic": {"type": "error", "error": {"type": "not_found_error", "message": "no such boat"}, "request_id": "r"},
    "google": {"error": {"code": 404, "message": "no such boat", "status": "NOT_FOUND"}},
    "ollama": {"error": "no such boat"},
    "aws and cohere": {"message": "no such boat"},
    "fastapi": {"detail": "no such boat"},
    "vllm": {"object": "error", "message": "no such boat", "code": 404},
}


@every_wire
@each("error", ERROR_BODIES.values(), ids=list(ERROR_BODIES))
@each("indent", [None, 2])
def test_a_json_error_body_is_an_error(wire: str, error: Any, indent: int | None) -> None:
    body = json.dumps(error, indent=indent).encode()
    for pieces in ([body], pieces_of(body, 1), [b"\n" + body + b"\n"]):
        turn = penstock.collect(decoded(wire, pieces))
        assert turn.error is not None
        assert turn.error.message == "no such boat"
        assert turn.finish_reason == "error"


@pytest.mark.parametrize("name", ["openai_chat", "OpenAI", "gpt", "", None, 5, ["openai-chat"]])
def test_an_unknown_wire_raises_at_once_with_a_suggestion_or_the_list(name: Any) -> None:
    for ask in (lambda: penstock.Decoder(name), lambda: penstock.decode(b"", name)):
        with pytest.raises(UnknownWireError) as raised:
            ask()
        assert isinstance(raised.value, PenstockError)
        message = str(raised.value)
        assert "did you mean 'openai-chat'?" in message or all(wire in message for wire in WIRES)


def test_every_alias_names_a_wire() -> None:
    assert set(ALIASES.values()) <= set(WIRES)


# Streams with garbage in the middle

GARBAGE = {
    **NO_STREAMS,
    "lone surrogates": b'{"\\ud800": "\\udc00", "text": "\\ud83d"}',
    "raw surrogates": b'{"text": "\xed\xa0\xbd\xed\xb8\x80"}',
    "nul in json": b'{"text": "\x00\\u0000"}',
    "a deep value": b'{"a":' * 2000 + b"1" + b"}" * 2000,
    "a cut value": b'{"choices": [{"delta": {"content": "x',
    "a long number": b'{"n": ' + b"9" * 5000 + b"}",
    "not a number": b'{"n": NaN, "i": -Infinity, "big": 1e999}',
}


@every_wire
@each("garbage", GARBAGE.values(), ids=list(GARBAGE))
def test_text_before_garbage_is_kept(wire: str, garbage: bytes) -> None:
    body = BEGINNINGS[wire] + garbage
    stream = decoded(wire, [body])
    assert visible_text(stream) == streams.TEXT
    assert problems(stream)
    for seed in range(3):
        assert joined(decoded(wire, random_pieces(body, seed))) == joined(stream)


@every_wire
@each("garbage", GARBAGE.values(), ids=list(GARBAGE))
def test_frames_after_a_malformed_one_are_decoded(wire: str, garbage: bytes) -> None:
    rest = streams.body(wire).removeprefix(BEGINNINGS[wire])
    line = garbage.replace(b"\r", b"").replace(b"\n", b"")
    if wire == "ollama" and line.startswith(b"{") and not line.endswith(b"}"):
        line += b'"}'  # otherwise the next lines would continue it
    stream = decoded(wire, [BEGINNINGS[wire] + framed(wire, line) + rest])
    assert visible_text(stream) == streams.TEXT
    assert [call.name for call in penstock.collect(stream).tool_calls] == [name for name, _ in streams.CALLS]


# Limits


@pytest.fixture
def small_cap(monkeypatch: pytest.MonkeyPatch) -> int:
    cap = 4000
    for module in (frame, sse, ndjson, json_array, aws):
        monkeypatch.setattr(module, "MAX_FRAME_BYTES", cap)
    return cap


@every_wire
@pytest.mark.parametrize("size", [1, 100, 5000, 10**6])
def test_a_frame_beyond_the_limit_is_reported_and_the_rest_is_decoded(wire: str, size: int, small_cap: int) -> None:
    rest = streams.body(wire).removeprefix(BEGINNINGS[wire])
    giant = framed(wire, b'{"type":"x","text":"' + b"x" * (5 * small_cap) + b'"}')
    stream = decoded(wire, pieces_of(BEGINNINGS[wire] + giant + rest, size))
    turn = penstock.collect(stream)
    assert turn.text == streams.TEXT
    assert turn.error is not None
    assert turn.error.code == "frame_too_large"
    assert "MAX_FRAME_BYTES" in turn.error.message
    assert [call.name for call in turn.tool_calls] == [name for name, _ in streams.CALLS]


@every_wire
def test_an_endless_line_uses_bounded_memory(wire: WireName, small_cap: int) -> None:
    decoder = penstock.Decoder(wire)
    stream = decoder.feed(BEGINNINGS[wire])
    stream += decoder.feed(framed(wire, b'{"text":"' + b"x" * 10 * MEBIBYTE)[:1000])
    tracemalloc.start()
    try:
        for _ in range(2000):
            stream += decoder.feed(b"x" * 1000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20 * small_cap
    stream += decoder.close()
    assert_sane(stream)
    assert visible_text(stream) == streams.TEXT
    assert any(isinstance(event, Error) and event.code == "frame_too_large" for event in stream)


def test_a_frame_of_a_hundred_megabytes_uses_bounded_memory() -> None:
    """With the real limit."""
    decoder = penstock.Decoder("openai-chat")
    stream = decoder.feed(BEGINNINGS["openai-chat"] + b'data: {"choices":[{"delta":{"content":"')
    piece = b"x" * MEBIBYTE
    tracemalloc.start()
    try:
        for _ in range(100):
            stream += decoder.feed(piece)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * frame.MAX_FRAME_BYTES
    stream += decoder.feed(b'"}}]}\n\n' + frame_bytes("openai-chat", {"choices": [{"delta": {"content": " Done."}}]}))
    stream += decoder.close()
    assert_sane(stream)
    assert visible_text(stream) == streams.TEXT + " Done."
    assert [event.code for event in stream if isinstance(event, Error)] == ["frame_too_large"]


def test_endless_arguments_are_dropped_and_the_call_is_invalid(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("penstock.calls.growing", "penstock.wires.shared.decode_response.open_call"):
        monkeypatch.setattr(f"{module}.MAX_ARGUMENTS", 10_000)
    head = {"index": 0, "id": "c", "function": {"name": "f", "arguments": '{"a": "'}}
    more = frame_bytes("openai-chat", chat_chunk(tool_calls=[{"index": 0, "function": {"arguments": "x" * 100}}]))
    decoder = penstock.Decoder("openai-chat")
    events = decoder.feed(frame_bytes("openai-chat", chat_chunk(tool_calls=[head])))
    tracemalloc.start()
    try:
        for _ in range(500):
            events += decoder.feed(more * 20)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 300_000
    finish = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    turn = penstock.collect([*events, *decoder.feed(frame_bytes("openai-chat", finish)), *decoder.close()])
    assert [(bad.why, len(bad.arguments_raw)) for bad in turn.invalid_calls] == [("too_large", 9907)]
    assert "MAX_ARGUMENTS" in turn.invalid_calls[0].message


def test_endless_state_is_reported_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_chat, "MAX_STATE", 10_000)
    detail = {"type": "reasoning.text", "text": "x" * 90}
    more = frame_bytes("openai-chat", chat_chunk(reasoning_details=[detail]))
    turn = penstock.collect(decoded("openai-chat", [more * 100] * 10))
    assert len(turn.reasoning) == 90_000
    [state] = [part for part in turn.parts if isinstance(part, Opaque)]
    assert len(state.data[0]["text"]) + 90 * len(turn.unknown) == 90_000


def chat_chunk(**delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta}]}


def nested(depth: int, shape: str) -> str:
    opening, closing = {"list": ("[", "]"), "object": ('{"a":', "}"), "mixed": ('[{"a":', "}]")}[shape]
    return opening * depth + "1" + closing * depth


def paths_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from paths_in(item, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """A copy of the value with another value at this path."""
    if not path:
        return new
    value = copy.copy(value)
    value[path[0]] = changed(value[path[0]], path[1:], new)
    return value


DEEP = "@@deep@@"


def payload_frames(wire: str) -> list[tuple[str, Any]]:
    """The event name (where the framing has one) and the payload of each JSON frame of a stream."""
    items = [item for item in frames_of(wire) if isinstance(item, dict)]
    return [next(iter(item.items())) for item in items] if wire == "bedrock" else [("", item) for item in items]


@every_wire
@pytest.mark.parametrize("shape", ["list", "object", "mixed"])
def test_deep_nesting_at_any_place_is_tolerated(wire: str, shape: str) -> None:
    texts = [nested(depth, shape) for depth in (100, 480, 700, 940, 1100)]
    for event, payload in payload_frames(wire):
        for path in sample(list(paths_in(payload)), few=4):
            template = json.dumps(changed(payload, path, DEEP))
            for text in texts:
                bad = framed(wire, template.replace(f'"{DEEP}"', text).encode(), event)
                assert visible_text(decoded(wire, [BEGINNINGS[wire] + bad])).startswith(streams.TEXT)


def test_a_hosted_item_of_any_depth_is_tolerated() -> None:
    for depth in range(700, 1000, 3):  # which of them are too deep to be kept depends on the frames of the caller
        item = '{"type":"shell_call_output","call_id":"c","output":' + nested(depth, "list") + "}"
        response = '{"id":"r","status":"completed","output":[' + item + "]}"
        frame = framed("openai-responses", ('{"type":"response.completed","response":' + response + "}").encode())
        assert visible_text(decoded("openai-responses", [BEGINNINGS["openai-responses"] + frame])) == streams.TEXT


@every_wire
@pytest.mark.parametrize("shape", ["list", "object", "mixed"])
def test_a_million_levels_of_nesting_are_tolerated(wire: str, shape: str) -> None:
    deep = nested(1_000_000, shape)
    texts = [deep, '{"choices":[' + deep + "]}", '{"type":"error","error":' + deep + "}", deep[:1_500_000]]
    for text in sample(texts, few=1):
        line = framed(wire, text.encode())
        assert visible_text(decoded(wire, [BEGINNINGS[wire] + line])) == streams.TEXT


@pytest.mark.parametrize("depth", [100, 480, 900, 990, 1100, 100_000])
def test_arguments_may_be_deep(depth: int) -> None:
    text = '{"a":' + nested(depth, "mixed") + "}"
    for raw in (text, text + text, text + "}", json.dumps(text), text[:-depth]):
        chunk = {
            "choices": [
                {"delta": {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": raw}}]}}
            ]
        }
        finish = {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}
        body = frame_bytes("openai-chat", chunk) + frame_bytes("openai-chat", finish)
        turn = penstock.collect(decoded("openai-chat", [body]))
        assert len(turn.tool_calls) + len(turn.invalid_calls) == 1
        if depth > 1000 or raw != text:
            assert not turn.tool_calls


# Random JSON

leaves = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.integers(), st.floats(), st.text(max_size=5),
    st.sampled_from(["", "text", "error", "stop", "tool_use", "\ud83d", "\ude00", "{}", '{"a":', "[DONE]", "null"]),
)  # fmt: skip
FRAMES = [item for wire in WIRES for item in frames_of(wire) if isinstance(item, dict)]
WORDS = sorted(
    {key for item in FRAMES for path in paths_in(item) for key in path if isinstance(key, str)} | {"error", "detail"}
)
json_values = st.recursive(
    leaves,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(WORDS), inner, max_size=4)),
    max_leaves=15,
)


def written(value: Any) -> bytes:
    return json.dumps(value).encode()


@every_wire
@a_few
@given(values=st.lists(json_values, max_size=4))
def test_any_json_is_tolerated_as_a_frame(wire: str, values: list[Any]) -> None:
    body = BEGINNINGS[wire] + b"".join(framed(wire, written(value)) for value in values)
    stream = decoded(wire, [body])
    assert visible_text(stream).startswith(streams.TEXT)
    assert joined(decoded(wire, random_pieces(body, len(body)))) == joined(stream)


VECTORS = {wire: [vector for vector in vectors() if ALIASES.get(vector.wire, vector.wire) == wire] for wire in WIRES}


@every_wire
@given(data=st.data())
def test_a_frame_with_a_wrong_field_is_tolerated(wire: str, data: st.DataObject) -> None:
    vector = data.draw(st.sampled_from(VECTORS[wire]))
    frames = [
        item for item in vector.frames if isinstance(item, dict) and "$bytes" not in item and "exception" not in item
    ]
    before = [frame_bytes(vector.wire, item) for item in frames]
    if not frames:
        return
    at = data.draw(st.integers(0, len(frames) - 1))
    event, payload = next(iter(frames[at].items())) if wire == "bedrock" else ("", frames[at])
    path = data.draw(st.sampled_from(list(paths_in(payload))))
    bad = framed(wire, written(changed(payload, path, data.draw(json_values))), event)
    body = b"".join([*before[:at], bad, *before[at + 1 :]])
    stream = decoded(wire, [body])
    assert joined(decoded(wire, random_pieces(body, at))) == joined(stream)
    if not any(isinstance(item, Retry) for item in stream):
        assert visible_text(stream).startswith(visible_text(decode_pieces(wire, before[:at])))


@every_wire
@a_few
@given(data=st.data())
def test_frames_in_another_order_are_tolerated(wire: str, data: st.DataObject) -> None:
    vector = data.draw(st.sampled_from(VECTORS[wire]))
    frames = data.draw(
        st.lists(st.sampled_from([frame_bytes(vector.wire, item) for item in vector.frames]), max_size=8)
    )
    body = b"".join(frames)
    assert joined(decoded(wire, random_pieces(body, len(body)))) == joined(decoded(wire, [body]))


# Errors


def test_a_rejected_generation_is_kept() -> None:  # QUIRKS 95
    rejected = '{"name": "sail", "arguments": {"to": "Kiel"}}'
    error = {"error": {"message": "no", "code": "tool_use_failed", "failed_generation": rejected}}
    body = b"event: error\ndata: " + written(error) + b"\n\n"
    [told_error] = [event for event in decoded("openai-chat", [body]) if isinstance(event, Error)]
    assert told_error.raw["error"]["failed_generation"] == rejected

"""The laws that hold for every vector: see "Laws" in docs/architecture.md."""

from __future__ import annotations

import json
from typing import Any

import pytest

import penstock
from penstock import (  # fmt: skip
    Finish,
    Opaque,
    Retry,
    StreamChunk,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    events,
)
from penstock.wires import find_wire
from tests.budget import places
from tests.cases import each
from tests.support import Vector, decode_pieces, frame_bytes, joined, pieces_of, random_pieces, vectors

VECTORS = vectors()


def name_of(vector: Vector) -> str:
    return f"{vector.wire}-{vector.name}"


every_vector = each("vector", VECTORS, ids=name_of)
every_vector_in_parts = each("vector", VECTORS, ids=name_of, parts=16)


def as_expected(turn: penstock.Turn) -> dict[str, Any]:
    """A turn in the keys of a vector's `expected`."""
    usage = turn.usage
    counts = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "reasoning_tokens")
    return {
        "text": turn.text,
        "reasoning": turn.reasoning,
        "refusal": turn.refusal,
        "tool_calls": [
            {name: getattr(call, name) for name in ("id", "name", "arguments", "arguments_raw", "kind", "sealed_by")}
            for call in turn.tool_calls
        ],
        "invalid_calls": [
            {name: getattr(call, name) for name in ("id", "name", "arguments_raw", "why", "repaired", "kind")}
            for call in turn.invalid_calls
        ],
        "opaque": [{"kind": part.kind, "data": part.data} for part in turn.parts if isinstance(part, Opaque)],
        "parts": [part.type for part in turn.parts],
        "finish_reason": turn.finish_reason,
        "raw_finish_reason": turn.raw_finish_reason,
        "finish_message": turn.finish_message,
        "usage": {name: getattr(usage, name) for name in counts if getattr(usage, name)} if usage else {},
        "error": turn.error.message if turn.error else "",
        "error_code": turn.error.code if turn.error else "",
        "unknown": len(turn.unknown),
        "client_work": turn.client_work,
        "vendor_calls": [
            {name: getattr(call, name) for name in VENDOR} | {"safety_checks": [*call.safety_checks]}
            for call in turn.vendor_calls
        ],
    }  # fmt: skip


VENDOR = ("id", "name", "arguments", "kind", "sealed_by")
OPTIONAL = {"vendor_calls", "parts", "finish_message", "raw_finish_reason", "opaque", "usage", "error_code"}
"""Keys that are compared only if a vector has them."""


def assert_expected(turn: penstock.Turn, expected: dict[str, Any]) -> None:
    actual = as_expected(turn)
    for key, value in actual.items():
        if key in expected:
            wanted = expected[key]
            if isinstance(wanted, list) and value and isinstance(value[0], dict):
                value = [{k: item[k] for k in want} for item, want in zip(value, wanted, strict=True)]
            assert value == wanted, key
        elif key not in OPTIONAL:
            assert not value, key
    assert expected.keys() <= actual.keys() | {"choices"}, "a vector expects something that is never compared"


@every_vector
def test_a_vector_decodes_to_its_expected_turn(vector: Vector) -> None:
    decoded = decode_pieces(vector.wire, [vector.body()], vector.tools)
    assert_expected(penstock.collect(decoded), vector.expected)
    for choice, expected in vector.expected.get("choices", {}).items():
        assert_expected(penstock.collect(decoded, int(choice)), {"error": vector.expected.get("error", ""), **expected})


@every_vector_in_parts
def test_cuts_do_not_show(vector: Vector) -> None:
    body = vector.body()
    whole = joined(decode_pieces(vector.wire, [body], vector.tools))
    cuttings = [list(pieces_of(body, size)) for size in (1, 2, 3, 7, 64)]
    cuttings.append(
        [frame_bytes(vector.wire, frame) for frame in vector.frames]
    )  # as models stream: one frame per read
    cuttings += [random_pieces(body, seed) for seed in range(5)]
    cuttings += [[body[:at], body[at:]] for at in places(len(body))]
    for cutting in cuttings:
        assert joined(decode_pieces(vector.wire, cutting, vector.tools)) == whole


NARROW_ONLY = {
    "gemini-a-call-without-arguments",
    "gemini-arguments-keep-their-spelling",
}
"""Vectors with a spelling of arguments that the loose path does not keep."""


@every_vector
def test_the_loose_path_gives_the_same_events(vector: Vector) -> None:
    def refuse(payload: bytes) -> None:
        raise ValueError("not of the narrow shape")

    narrow = joined(decode_pieces(vector.wire, [vector.body()], vector.tools))
    with pytest.MonkeyPatch.context() as patch:
        for name in ("decode", "decode_wide"):  # the second one only on a wire that has two typed shapes
            patch.setattr(find_wire(vector.wire), name, staticmethod(refuse), raising=False)
        loose = joined(decode_pieces(vector.wire, [vector.body()], vector.tools))
    assert (loose == narrow) == (name_of(vector) not in NARROW_ONLY)


@every_vector_in_parts
def test_every_prefix_is_a_stream_whose_calls_are_calls_of_the_whole(vector: Vector) -> None:
    body = vector.body()
    whole = decode_pieces(vector.wire, [body], vector.tools)
    reason, known = penstock.collect(whole).finish_reason, calls_of(whole)
    extra: list[Call] = []
    for end in places(len(body)):
        prefix = decode_pieces(vector.wire, [body[:end]], vector.tools)
        assert sum(isinstance(event, Finish) and event.choice == 0 for event in prefix) == 1
        cut = penstock.collect(prefix)
        has_mark = b"[DONE]" in body[:end] or body.startswith(b"{")  # a whole body is its own mark
        is_by_mark = cut.finish_reason == "tool_calls" and has_mark
        has_reason = cut.raw_finish_reason or cut.finish_reason in ("cut", "error", "other")
        assert has_reason or is_by_mark, "no provider gave a reason"
        may_come_first = (reason, "error", "other", "stop", "tool_calls")  # before a later reason replaces it
        assert {"cut", "error"} & {reason, cut.finish_reason} or cut.finish_reason in may_come_first
        extra += [call for call in calls_of(prefix) if call not in known]
    if not any(isinstance(event, Retry) for event in whole):  # else the attempt that a prefix shows is withdrawn later
        assert not extra


@every_vector
def test_nothing_comes_for_a_call_after_its_end(vector: Vector) -> None:
    """Nor anything but the ends of other choices after the finish."""
    over: set[int] = set()
    is_finished = False
    for event in decode_pieces(vector.wire, [vector.body()], vector.tools):
        assert not is_finished or isinstance(event, Finish), event
        is_finished |= isinstance(event, Finish)
        if isinstance(event, ToolCallStart | ToolCallDelta | ToolCallClosed | ToolCall | ToolCallInvalid):
            assert event.block not in over, event
        if isinstance(event, ToolCall | ToolCallInvalid):
            over.add(event.block)


Call = tuple[str, str, dict[str, Any]]


def calls_of(decoded: list[StreamChunk]) -> list[Call]:
    return [(event.id, event.name, event.arguments) for event in decoded if isinstance(event, ToolCall)]


@every_vector
def test_events_survive_json(vector: Vector) -> None:
    for event in decode_pieces(vector.wire, [vector.body()], vector.tools):
        assert events.decode(events.encode(event)) == event


@each("vector", [vector for vector in VECTORS if vector.whole], ids=name_of)
def test_streamed_equals_whole(vector: Vector) -> None:
    def facts(turn: penstock.Turn) -> dict[str, Any]:
        kept = as_expected(turn)
        calls = {
            kind: [{k: v for k, v in call.items() if k not in ("sealed_by", "arguments_raw")} for call in kept[kind]]
            for kind in ("tool_calls", "vendor_calls")
        }
        return {**kept, **calls}

    streamed = penstock.collect(decode_pieces(vector.wire, [vector.body()], vector.tools))
    whole = penstock.collect(decode_pieces(vector.wire, [json.dumps(vector.whole).encode()], vector.tools))
    assert facts(whole) == facts(streamed)

"""The laws 1 to 5 and 7 for healing as a stage, over every vector: see "Laws" in docs/architecture.md."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

from penstock import (
    Decoder,
    Error,
    Finish,
    Healing,
    Reasoning,
    Refusal,
    Retry,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    Unknown,
    collect,
)
from penstock.declarations import read_declarations
from penstock.healing.decoding import HealedDecoding, response_context
from penstock.wires import wire_name
from tests.budget import places
from tests.cases import each
from tests.growth import assert_linear
from tests.support import Vector, decode_pieces, joined, pieces_of, random_pieces, vectors

MOST = Healing(repair="guess", reasoning_calls=True)
SETTINGS = {"default": Healing(), "most": MOST}
OFF = Healing(rescue=False, repair="off", reasoning=False, finish_reasons=False, usage=False)
TOOLS = ["weather", "get_weather", "search", "f", "shell"]
VECTORS = vectors()


def heal(wire: str, pieces: Iterable[bytes], tools: Any, healing: Healing = MOST) -> list[StreamChunk]:
    """The healed events of a response."""
    declared = tuple(read_declarations(tools or TOOLS))
    context = response_context(wire_name(wire), declared, (), healing)
    decoding = HealedDecoding(Decoder(wire_name(wire), declared), context)
    events: list[StreamChunk] = []
    for piece in pieces:
        events += decoding.feed(piece)
    return events + decoding.close()


def name_of(vector: Vector) -> str:
    return f"{vector.wire}-{vector.name}"


def calls_of(events: list[StreamChunk]) -> list[tuple[str, str, Any]]:
    return [(event.id, event.name, event.arguments) for event in events if isinstance(event, ToolCall)]


def text_of(events: list[StreamChunk], choice: int = 0) -> str:
    texts = (event for event in events if isinstance(event, Text | Reasoning | Refusal))
    return "".join(event.text for event in texts if event.choice == choice)


INTERLEAVED = "openai-responses-interleaved-messages-are-two-parts"
"""Two messages that are written at once: the stage that reads texts writes their pieces in the order of arrival."""

every_vector = each("vector", VECTORS, ids=name_of)
every_vector_in_parts = each("vector", VECTORS, ids=name_of, parts=8)


@every_vector_in_parts
def test_cuts_do_not_show_in_healed_events(vector: Vector) -> None:
    body = vector.body()
    for healing in SETTINGS.values():
        whole = joined(heal(vector.wire, [body], vector.tools, healing))
        cuttings = [list(pieces_of(body, size)) for size in (1, 7, 64)]
        cuttings += [random_pieces(body, seed) for seed in range(3)]
        cuttings += [[body[:at], body[at:]] for at in places(len(body), 10)]
        for cutting in cuttings:
            assert joined(heal(vector.wire, cutting, vector.tools, healing)) == whole


@every_vector
def test_healing_loses_nothing(vector: Vector) -> None:
    """Each text, error, unknown part and call is still there; a call that was repaired is a call."""
    plain = decode_pieces(vector.wire, [vector.body()], vector.tools or TOOLS)
    healed = heal(vector.wire, [vector.body()], vector.tools)
    rescued = any(event.origin != "native" for event in healed if isinstance(event, ToolCall))
    if not rescued and "<think>" not in text_of(plain) and "</think>" not in text_of(plain):
        assert [text_of(healed, choice) for choice in range(3)] == [text_of(plain, choice) for choice in range(3)]
    for kind in (Error, Unknown, Retry, Finish):
        assert sum(isinstance(event, kind) for event in healed) == sum(isinstance(event, kind) for event in plain), kind
    ends = ToolCall | ToolCallInvalid
    native = [event for event in healed if isinstance(event, ends) and event.origin == "native"]
    assert len(native) == sum(isinstance(event, ends) for event in plain)


@every_vector_in_parts
def test_every_healed_call_of_a_prefix_is_one_of_the_whole(vector: Vector) -> None:
    body = vector.body()
    whole = heal(vector.wire, [body], vector.tools)
    if any(isinstance(event, Retry) for event in whole):
        return
    known = calls_of(whole)
    for end in places(len(body)):
        prefix = heal(vector.wire, [body[:end]], vector.tools)
        assert sum(isinstance(event, Finish) and event.choice == 0 for event in prefix) == 1
        assert not [call for call in calls_of(prefix) if call not in known], end


@each("vector", [vector for vector in VECTORS if vector.whole and name_of(vector) != INTERLEAVED], ids=name_of)
def test_streamed_equals_whole_when_healed(vector: Vector) -> None:
    streamed = collect(heal(vector.wire, [vector.body()], vector.tools))
    whole = collect(heal(vector.wire, [json.dumps(vector.whole).encode()], vector.tools))
    for turn in (streamed, whole):
        assert turn.finish_reason == streamed.finish_reason
        assert (turn.text, turn.reasoning) == (streamed.text, streamed.reasoning)
    facts = [[(call.name, call.arguments) for call in turn.tool_calls] for turn in (streamed, whole)]
    assert facts[0] == facts[1]


@every_vector
def test_only_what_was_asked_for_makes_a_call_valid(vector: Vector) -> None:
    plain = decode_pieces(vector.wire, [vector.body()], vector.tools or TOOLS)
    off = heal(vector.wire, [vector.body()], vector.tools, OFF)
    assert calls_of(off) == calls_of(plain)
    healed = [event for event in heal(vector.wire, [vector.body()], vector.tools) if isinstance(event, ToolCall)]
    for call in healed:
        is_marked = call.quirks or call.origin != "native"
        assert is_marked or call.arguments in [known[2] for known in calls_of(plain)]
    cut = [event.id for event in plain if isinstance(event, ToolCallInvalid) and event.why in ("cut", "too_large")]
    assert not [call for call in healed if call.id in cut], "what is cut is never repaired"


@every_vector
def test_the_pieces_of_a_healed_call_are_its_arguments_and_nothing_follows_its_end(vector: Vector) -> None:
    pieces: dict[int, str] = {}
    over: set[int] = set()
    for event in heal(vector.wire, [vector.body()], vector.tools):
        if isinstance(event, ToolCallStart | ToolCallDelta | ToolCallClosed | ToolCall | ToolCallInvalid):
            assert event.block not in over, event
        if isinstance(event, ToolCallDelta):
            pieces[event.block] = pieces.get(event.block, "") + event.piece
        if isinstance(event, ToolCall | ToolCallInvalid):
            over.add(event.block)
        if isinstance(event, ToolCall) and event.quirks and event.block in pieces:
            assert event.arguments_raw == pieces[event.block]


def test_healing_is_linear_in_the_stream_and_in_one_call() -> None:
    def text(size: int) -> Callable[[], object]:
        chunk = b'data: {"choices": [{"index": 0, "delta": {"content": "a <tool {} <th"}}]}\n\n'
        return lambda: heal("openai-chat", [chunk] * size, None)

    def arguments(size: int) -> Callable[[], object]:
        def piece(text: str) -> bytes:
            entry = {"index": 0, "function": {"arguments": text}}
            return f"data: {json.dumps({'choices': [{'index': 0, 'delta': {'tool_calls': [entry]}}]})}\n\n".encode()

        first = b'data: {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]}}]}\n\n'  # noqa: E501
        last = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}\n\n'
        body = [first, piece('{"a": "'), *[piece("word ")] * size, piece('",}'), last]
        return lambda: heal("openai-chat", body, None)

    assert_linear(text, 2_000)
    assert_linear(arguments, 2_000)

"""Law 9: a response that is decoded and encoded, for its own wire or another, decodes to the same events again.

The responses are all vectors and recordings. What may differ is in `tests/round_trip.py` and in the facts of the wires.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import pytest

import penstock
from penstock import Finish, StreamChunk, Text, ToolCall, ToolCallDelta, ToolCallInvalid, ToolCallStart, Unknown
from penstock.wires import RESPONSE_FRAMES, find_response_frames
from penstock.wires.shared.encode_response.response_bodies import encode_body
from penstock.wires.shared.encode_response.response_encoder import ResponseEncoder
from penstock.wires.shared.encode_response.response_head import ResponseHead, ToolPath
from penstock.wires.shared.facts import LossName
from tests.budget import sample
from tests.cases import each
from tests.round_trip import (
    AFTER,
    BEFORE,
    Record,
    across_wires,
    compared,
    encode_stream,
    encode_whole,
    expected,
    in_order,
    without_faults,
)
from tests.support import decode_pieces, vectors
from tests.wires.test_corpus import SPOKEN

Response = tuple[str, str, bytes, list[Any]]
"""Its name, its protocol, its body, and its tools."""


def _responses() -> list[Response]:
    responses = [(f"{vector.wire}-{vector.name}", vector.wire, vector.body(), vector.tools) for vector in vectors()]
    for case in SPOKEN:
        protocol = case.meta["wire"] if case.meta["wire"] in RESPONSE_FRAMES else case.wire
        responses.append((case.meta["id"], protocol, case.body(), []))
    return responses


RESPONSES = _responses()
OWN = [place for place, response in enumerate(RESPONSES) if response[1] in RESPONSE_FRAMES]
every_response = each("place", OWN, ids=[RESPONSES[place][0] for place in OWN], parts=8)


@cache
def events_of(place: int) -> list[StreamChunk]:
    _, wire, body, tools = RESPONSES[place]
    return decode_pieces(wire, [body], tools)


def losses_of(protocol: str) -> frozenset[LossName]:
    return frozenset(loss.what for loss in find_response_frames(protocol).format.losses)


def sides(place: int, protocol: str, losses: frozenset[LossName], size: int = 7) -> tuple[list[Record], list[Record]]:
    """The records of a response after a round trip through a protocol, and those that are expected."""
    _, wire, _, tools = RESPONSES[place]
    events = events_of(place)
    again = decode_pieces(protocol, [encode_stream(protocol, events, size)], tools)
    events = in_order(events) if find_response_frames(protocol).format.one_block_at_a_time else events
    if wire == protocol:
        return compared(again, losses), expected(events, losses)
    actual, wanted = compared(across_wires(again), losses), expected(across_wires(events), losses)
    return without_faults(actual), without_faults(wanted)


@every_response
def test_a_response_that_is_streamed_again_has_the_same_events(place: int) -> None:
    protocol = RESPONSES[place][1]
    for size in (1, len(events_of(place)) + 1):
        actual, wanted = sides(place, protocol, losses_of(protocol), size)
        assert actual == wanted


@pytest.mark.parametrize("protocol", RESPONSE_FRAMES)
def test_responses_of_every_wire_keep_their_content_on_another(
    protocol: str, record_property: Callable[[str, object], None]
) -> None:
    losses = losses_of(protocol)
    others = sample([place for place, response in enumerate(RESPONSES) if response[1] != protocol], few=500)
    failed = [RESPONSES[place][0] for place in others if len({*map(str, sides(place, protocol, losses))}) == 2]
    recordings = [place for place in others if place >= len(RESPONSES) - len(SPOKEN)]
    record_property("round trips", len(others))
    record_property("round trips of recordings", len(recordings))
    record_property("round trips that differ", len(failed))
    assert failed == []


@pytest.mark.parametrize("protocol", RESPONSE_FRAMES)
def test_every_loss_in_the_facts_is_needed(protocol: str) -> None:
    losses = losses_of(protocol)
    for loss in losses:
        others = losses - {loss}
        needing = (place for place in range(len(RESPONSES)) if _matters(place, losses, others))
        differing = (place for place in needing if len({*map(str, sides(place, protocol, others))}) == 2)
        assert next(differing, None) is not None, f"{loss} is not needed"


def _matters(place: int, losses: frozenset[LossName], others: frozenset[LossName]) -> bool:
    """Whether a response has what only the larger set of losses allows to be lost."""
    return expected(events_of(place), losses) != expected(events_of(place), others)


def test_every_rule_belongs_to_a_loss() -> None:
    assert BEFORE.keys() | AFTER.keys() == frozenset().union(*map(losses_of, RESPONSE_FRAMES))


@every_response
def test_a_response_that_is_written_whole_has_the_same_content(place: int) -> None:
    """Texts, calls, counts and the end are the same; the order of texts and calls is not, on wires with fields."""
    _, protocol, _, tools = RESPONSES[place]
    events = events_of(place)
    turn = penstock.collect(events)
    encoded = encode_whole(protocol, events)
    again = penstock.collect(decode_pieces(protocol, [encoded.body], tools))
    has_failed = turn.error or not {"error", "cut"}.isdisjoint(finish_reasons(events))
    if encoded.status != 200 or has_failed:
        assert has_failed or turn.invalid_calls
        assert encoded.status >= 400
        assert again.error is not None
        assert again.error.message == (turn.error.message if turn.error else again.error.message)
        return
    assert (again.text, again.reasoning, again.refusal) == (turn.text, turn.reasoning, turn.refusal)
    assert calls_of(again) == calls_of(turn)
    assert again.finish_reason == turn.finish_reason


def calls_of(turn: penstock.Turn) -> list[tuple[str, str, object]]:
    return [(call.id, call.name, call.arguments) for call in turn.tool_calls]


def finish_reasons(events: list[StreamChunk]) -> list[str]:
    return [event.reason for event in events if isinstance(event, Finish)]


@pytest.mark.parametrize("protocol", RESPONSE_FRAMES)
def test_a_call_beyond_the_cap_ends_a_response_that_streams_it(protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.wires.shared.encode_response.response_encoder.MAX_ARGUMENTS", 30)
    start = ToolCallStart(0, "c1", "mail")
    encoder = ResponseEncoder(find_response_frames(protocol)(ResponseHead()))
    stream = encoder.feed([start]) + b"".join(encoder.feed([ToolCallDelta(0, "12345")]) for _ in range(20))
    turn = penstock.collect(decode_pieces(protocol, [stream + encoder.close()]))
    assert turn.error is not None
    assert turn.error.message in ("the call of mail is too large", "the response ended before it was complete")
    assert not turn.tool_calls
    assert encoder.feed([Text(1, "more")]) == b""


@pytest.mark.parametrize("protocol", RESPONSE_FRAMES)
def test_a_stream_without_an_end_ends_with_an_error(protocol: str) -> None:
    encoder = ResponseEncoder(find_response_frames(protocol)(ResponseHead()))
    turn = penstock.collect(decode_pieces(protocol, [encoder.open(), encoder.feed([Text(0, "Hi")]), encoder.close()]))
    assert (turn.text, turn.finish_reason) == ("Hi", "error")


@pytest.mark.parametrize("protocol", RESPONSE_FRAMES)
def test_nothing_is_written_after_the_end(protocol: str) -> None:
    encoder = ResponseEncoder(find_response_frames(protocol)(ResponseHead()))
    encoder.feed([Text(0, "Hi"), Finish("stop")])
    late: list[StreamChunk] = [Text(1, "more"), ToolCallStart(2, "c1", "mail"), Finish("length")]
    assert encoder.feed(late) == b""


@pytest.mark.parametrize("protocol", RESPONSE_FRAMES)
def test_keep_alives_between_frames_do_not_show(protocol: str) -> None:
    encoder = ResponseEncoder(find_response_frames(protocol)(ResponseHead()))
    pause = encoder.format.keep_alive
    events: list[StreamChunk] = [Text(0, "Hi"), Text(0, " there"), Finish("stop")]
    pieces = [pause, *(piece for event in events for piece in (encoder.feed([event]), pause)), encoder.close()]
    decoded = decode_pieces(protocol, pieces)
    assert penstock.collect(decoded).text == "Hi there"
    assert not [event for event in decoded if isinstance(event, Unknown)]


def test_a_quoted_call_is_never_written_as_a_call() -> None:
    call = ToolCallInvalid(0, "c1", "mail", "{}", "quoted", "it repeats the user's message")
    for protocol in RESPONSE_FRAMES:
        turn = penstock.collect(decode_pieces(protocol, [encode_stream(protocol, [call, Finish("stop")])]))
        assert (turn.tool_calls, turn.finish_reason) == ([], "error"), protocol


def test_custom_tools_that_the_model_calls_as_functions_are_custom_calls_again() -> None:
    head = ResponseHead(unwrapped_tools=frozenset({"patch"}), echo={"tools": [{"type": "custom", "name": "patch"}]})
    call = ToolCall("c1", "patch", {"input": "*** Begin"}, '{"input": "*** Begin"}', sealed_by="call_end")
    for protocol in ("openai-chat", "openai-responses"):
        encoder = ResponseEncoder(find_response_frames(protocol)(head))
        deltas: list[StreamChunk] = [
            ToolCallStart(0, "c1", "patch"),
            ToolCallDelta(0, '{"input": '),
            ToolCallDelta(0, '"*** Begin"}'),
        ]
        stream = encoder.feed([*deltas, call, Finish("tool_calls")]) + encoder.close()
        [made] = penstock.collect(decode_pieces(protocol, [stream])).tool_calls
        assert (made.kind, made.arguments_raw) == ("custom", "*** Begin")


def test_tools_of_a_namespace_get_their_own_names_back() -> None:
    head = ResponseHead(namespaces={"files__open": ToolPath("files", "open")})
    call = ToolCall("c1", "files__open", {}, "{}", sealed_by="call_end")
    frames = find_response_frames("openai-responses")
    [item] = msgspec.json.decode(encode_body(frames, [call, Finish("tool_calls")], head).body)["output"]
    assert (item["namespace"], item["name"], item["call_id"]) == ("files", "open", "c1")

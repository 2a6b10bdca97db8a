"""Streams with faults, on the wires that end each call: which calls are valid, which are cut, what is reported."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any, ClassVar

import pytest

import penstock
from penstock import Error, Finish, Retry, StreamChunk, ToolCall, ToolCallInvalid, Unknown, Usage, export_messages
from penstock.calls.numbering import Numbering, UniqueIds
from penstock.testing import Reply, call, frames
from penstock.wires import WIRES
from tests.budget import places
from tests.cases import each
from tests.growth import assert_linear
from tests.sanity import assert_sane
from tests.support import decode_pieces, frame_bytes, joined, pieces_of, random_pieces

Frame = dict[str, Any]


def events_of(wire: str, *stream: Frame | str) -> list[StreamChunk]:
    """Decodes a stream in several cuttings, checks that the events agree and are sane, and returns them."""
    parts = [frame_bytes(wire, frame) for frame in stream]
    body = b"".join(parts)
    whole = decode_pieces(wire, [body])
    assert_sane(whole)
    cuttings = [parts, list(pieces_of(body, 1)), list(pieces_of(body, 7)), *(random_pieces(body, s) for s in range(3))]
    cuttings += [[body[:at], body[at:]] for at in places(len(body), few=40)]
    for cutting in cuttings:
        assert joined(decode_pieces(wire, cutting)) == joined(whole)
    return whole


def calls_in(events: list[StreamChunk]) -> list[tuple[str, Any]]:
    """The calls in order, by id: the arguments of valid ones, and the fault of the others."""
    calls = [event for event in events if isinstance(event, ToolCall | ToolCallInvalid)]
    return [(one.id, one.arguments if isinstance(one, ToolCall) else one.why) for one in calls]


def calls_of(wire: str, *stream: Frame | str) -> list[tuple[str, Any]]:
    return calls_in(events_of(wire, *stream))


def unknown_in(events: list[StreamChunk]) -> list[Any]:
    return [event.raw for event in events if isinstance(event, Unknown)]


class Anthropic:
    """Builds the frames of Anthropic Messages."""

    name = "anthropic"
    first: ClassVar[Frame] = {"type": "message_start", "message": {"id": "m1", "content": []}}
    last: ClassVar[tuple[Frame, ...]] = (
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    )

    def start(self, index: int, id: str = "A", name: str = "pay") -> Frame:
        block = {"type": "tool_use", "id": id, "name": name, "input": {}}
        return {"type": "content_block_start", "index": index, "content_block": block}

    def piece(self, index: int, text: str) -> Frame:
        return self.delta(index, {"type": "input_json_delta", "partial_json": text})

    def unknown(self, index: int) -> Frame:
        return self.delta(index, {"type": "input_raw_delta", "raw": "/x"})

    def delta(self, index: int, delta: Any) -> Frame:
        return {"type": "content_block_delta", "index": index, "delta": delta}

    def stop(self, index: int) -> Frame:
        return {"type": "content_block_stop", "index": index}


class Bedrock:
    name = "bedrock"
    first: ClassVar[Frame] = {"messageStart": {"role": "assistant"}}
    last: ClassVar[tuple[Frame, ...]] = ({"messageStop": {"stopReason": "tool_use"}},)

    def start(self, index: int, id: str = "A", name: str = "pay") -> Frame:
        tool = {"toolUseId": id, "name": name}
        return {"contentBlockStart": {"contentBlockIndex": index, "start": {"toolUse": tool}}}

    def piece(self, index: int, text: str) -> Frame:
        return self.delta(index, {"toolUse": {"input": text}})

    def unknown(self, index: int) -> Frame:
        return self.delta(index, {"toolRaw": "/x"})

    def delta(self, index: int, delta: Any) -> Frame:
        return {"contentBlockDelta": {"contentBlockIndex": index, "delta": delta}}

    def stop(self, index: int) -> Frame:
        return {"contentBlockStop": {"contentBlockIndex": index}}


class Cohere:
    name = "cohere"
    first: ClassVar[Frame] = {"type": "message-start", "id": "m1", "delta": {"message": {"role": "assistant"}}}
    last: ClassVar[tuple[Frame, ...]] = ({"type": "message-end", "delta": {"finish_reason": "TOOL_CALL"}},)

    def start(self, index: int | None, id: str = "A", name: str = "pay") -> Frame:
        entry = {"id": id, "type": "function", "function": {"name": name, "arguments": ""}}
        return {"type": "tool-call-start", "index": index, "delta": {"message": {"tool_calls": entry}}}

    def piece(self, index: int | None, text: str) -> Frame:
        return self.delta(index, {"message": {"tool_calls": {"function": {"arguments": text}}}})

    def unknown(self, index: int) -> Frame:
        return self.delta(index, {"message": {"tool_calls": {"function": {"raw": "/x"}}}})

    def delta(self, index: int | None, delta: Any) -> Frame:
        return {"type": "tool-call-delta", "index": index, "delta": delta}

    def stop(self, index: int | None) -> Frame:
        return {"type": "tool-call-end", "index": index}


FrameBuilder = Anthropic | Bedrock | Cohere
every_wire = pytest.mark.parametrize("build", [Anthropic(), Bedrock(), Cohere()], ids=lambda build: build.name)
FIVE = '{"eur":5}'


# A number that is used again.


@every_wire
def test_a_repeated_start_opens_no_second_block(build: FrameBuilder) -> None:
    stream = [build.first, build.start(0), build.start(0), build.piece(0, FIVE), build.stop(0), *build.last]
    assert calls_of(build.name, *stream) == [("A", {"eur": 5})]


@every_wire
@pytest.mark.parametrize("first", ["", '{"eur"', FIVE], ids=["nothing", "a piece", "all"])
def test_an_open_call_that_loses_its_number_is_cut(build: FrameBuilder, first: str) -> None:
    begun = [build.first, build.start(0), *([build.piece(0, first)] if first else [])]
    stream = [*begun, build.start(0, "B"), build.piece(0, FIVE), build.stop(0), *build.last]
    assert calls_of(build.name, *stream) == [("A", "cut"), ("B", {"eur": 5})]


@every_wire
def test_a_start_repeated_after_arguments_is_another_call(build: FrameBuilder) -> None:
    stream = [
        build.first,
        build.start(0),
        build.piece(0, FIVE),
        build.start(0),
        build.piece(0, FIVE),
        build.stop(0),
        *build.last,
    ]
    assert calls_of(build.name, *stream) == [("A", "cut"), ("A_2", {"eur": 5})]


def test_a_second_generation_under_the_same_message_id_does_not_run_the_first() -> None:
    build = Anthropic()
    first = [build.first, build.start(0), build.piece(0, FIVE)]
    stream = [*first, build.first, build.start(0, "B"), build.piece(0, FIVE), build.stop(0), *build.last]
    assert calls_of("anthropic", *stream) == [("A", "cut"), ("B", {"eur": 5})]


def test_a_text_that_takes_a_calls_number_cuts_the_call() -> None:
    build = Anthropic()
    text: Frame = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    assert calls_of("anthropic", build.first, build.start(0), build.piece(0, FIVE), text, *build.last) == [("A", "cut")]


def test_a_repeated_start_may_bring_the_input() -> None:
    build = Anthropic()
    again = copy.deepcopy(build.start(0))
    again["content_block"] |= {"input": {"eur": 5}, "caller": {"type": "code"}}
    assert calls_of("anthropic", build.first, build.start(0), again, build.stop(0), *build.last) == [("A", {"eur": 5})]


def test_calls_without_numbers_are_distinguished_by_their_starts() -> None:
    build = Anthropic()
    stream = [build.start(0), build.piece(0, FIVE), build.start(0, "B", "log"), build.piece(0, "{}")]
    nameless = [{key: value for key, value in frame.items() if key != "index"} for frame in stream]
    assert sorted(calls_of("anthropic", build.first, *nameless, *build.last)) == [("A", {"eur": 5}), ("B", {})]


# Arguments without a call.


@every_wire
def test_a_piece_before_any_start_invalidates_a_call_without_arguments(build: FrameBuilder) -> None:
    stream = [build.first, build.piece(0, FIVE), build.start(0), build.stop(0), *build.last]
    assert calls_of(build.name, *stream) == [("A", "cut")]


@every_wire
def test_a_piece_of_an_unknown_call_invalidates_the_calls_that_may_lack_it(build: FrameBuilder) -> None:
    begun = [build.first, build.start(0), build.start(1, "B", "log"), build.piece(7, FIVE)]
    assert calls_of(build.name, *begun, build.stop(0), build.stop(1), *build.last) == [("A", "cut"), ("B", "cut")]


@every_wire
def test_a_lost_piece_does_not_affect_a_call_with_whole_arguments(build: FrameBuilder) -> None:
    stream = [build.first, build.piece(0, FIVE), build.start(0), build.piece(0, FIVE), build.stop(0), *build.last]
    assert calls_of(build.name, *stream) == [("A", {"eur": 5})]


@every_wire
def test_a_piece_with_an_unknown_number_belongs_to_the_only_open_call(build: FrameBuilder) -> None:
    stream = [build.first, build.start(0), build.piece(7, FIVE), build.stop(0), *build.last]
    assert calls_of(build.name, *stream) == [("A", {"eur": 5})]


@every_wire
def test_a_piece_of_an_ended_call_does_not_belong_to_the_next_one(build: FrameBuilder) -> None:
    ended = [build.first, build.start(0), build.piece(0, "{}"), build.stop(0)]
    stream = [*ended, build.start(1, "B"), build.piece(0, " "), build.piece(1, FIVE), build.stop(1), *build.last]
    assert calls_of(build.name, *stream) == [("A", {}), ("B", {"eur": 5})]


def test_cohere_starts_may_lack_an_index() -> None:
    build = Cohere()
    stream = [build.first, build.start(None), build.piece(0, FIVE), build.stop(0), *build.last]
    assert calls_of("cohere", *stream) == [("A", {"eur": 5})]


@pytest.mark.parametrize("extra", [{}, {"more": 1}], ids=["plain", "odd"])
def test_a_piece_after_a_call_ended_without_arguments_invalidates_it(extra: Frame) -> None:
    build = Cohere()
    stream = [build.first, build.start(0), build.stop(0), {**build.piece(0, FIVE), **extra}, *build.last]
    assert calls_of("cohere", *stream) == [("A", "cut")]


@every_wire
def test_no_arguments_at_all_are_the_empty_object(build: FrameBuilder) -> None:
    assert calls_of(build.name, build.first, build.start(0), build.stop(0), *build.last) == [("A", {})]


# What could not be read.

HOLE = [("anthropic", "data: {]\n\n"), ("cohere", "data: {]\n\n"), ("anthropic", "data: " + "[" * 3000 + "\n\n")]


@pytest.mark.parametrize(("wire", "hole"), HOLE, ids=["anthropic", "cohere", "too deep"])
def test_a_call_with_an_unreadable_frame_in_it_is_cut(wire: str, hole: str) -> None:
    build: FrameBuilder = Anthropic() if wire == "anthropic" else Cohere()
    begun: list[Any] = [build.first, build.start(0), build.piece(0, '{"p":"/tmp')]
    ended = [build.piece(0, '"}'), build.stop(0), *build.last]
    assert calls_in(decode_pieces(wire, [frame_bytes(wire, frame) for frame in [*begun, hole, *ended]])) == [
        ("A", "cut")
    ]
    if len(hole) < 100:
        assert calls_of(wire, *begun, hole, *ended) == [("A", "cut")]
        assert calls_of(wire, *begun, build.piece(0, '"}'), hole, build.stop(0), *build.last) == [("A", {"p": "/tmp"})]
        assert calls_of(wire, hole, *begun, *ended) == [("A", {"p": "/tmp"})]
        assert calls_of(wire, build.first, build.start(0), hole, build.stop(0), *build.last) == [("A", "cut")]


def test_a_chat_call_with_an_unreadable_frame_in_it_is_cut() -> None:
    def chunk(**delta: Any) -> Frame:
        return {"choices": [{"index": 0, "delta": delta}]}

    head = {"index": 0, "id": "A", "function": {"name": "rm", "arguments": '{"p":"/tmp'}}
    tail = {"index": 0, "function": {"arguments": '"}'}}
    reason = {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    end: list[Any] = [reason, "data: [DONE]\n\n"]
    hole = 'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,\n\n'
    begun, ended = chunk(tool_calls=[head]), chunk(tool_calls=[tail])
    assert calls_of("openai-chat", begun, hole, ended, *end) == [("A", "cut")]
    assert calls_of("openai-chat", begun, ended, hole, *end) == [("A", {"p": "/tmp"})]
    assert calls_of("openai-chat", begun, ended, end[0], "data: [DO") == [("A", {"p": "/tmp"})]


@every_wire
def test_a_call_is_cut_by_a_misshapen_delta_but_not_by_an_unknown_one(build: FrameBuilder) -> None:
    begun = [build.first, build.start(0), build.piece(0, '{"p":"/tmp')]
    ended = [build.piece(0, '"}'), build.stop(0), *build.last]
    assert calls_of(build.name, *begun, build.unknown(0), *ended) == [("A", {"p": "/tmp"})]
    assert calls_of(build.name, *begun, build.delta(0, "/x"), *ended) == [("A", "cut")]
    assert calls_of(build.name, *begun, build.delta(0, {}), *ended) == [("A", {"p": "/tmp"})]


@every_wire
def test_an_unknown_event_for_its_block_does_not_damage_a_call(build: FrameBuilder) -> None:
    begun = [build.first, build.start(0), build.piece(0, '{"p":"/tmp')]
    ended = [build.piece(0, '"}'), build.stop(0), *build.last]
    strange: Frame = {"type": "call-patch", "index": 0, "patch": "/x"}
    if build.name == "bedrock":
        strange = {"contentBlockPatch": {"contentBlockIndex": 0, "patch": "/x"}}
    assert calls_of(build.name, *begun, strange, *ended) == [("A", {"p": "/tmp"})]


def test_a_call_with_a_frame_beyond_the_cap_in_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.framing.sse.MAX_FRAME_BYTES", 1000)
    build = Anthropic()
    begun = [build.first, build.start(0), build.piece(0, '{"p":"'), build.piece(0, "x" * 1000), build.piece(0, '"}')]
    assert calls_of("anthropic", *begun, build.stop(0), *build.last) == [("A", "cut")]


# A bare end mark.


def test_an_end_mark_alone_does_not_confirm_empty_arguments() -> None:
    build = Anthropic()
    stop = {"type": "message_stop"}
    assert calls_of("anthropic", build.first, build.start(0), stop) == [("A", "cut")]
    assert calls_of("anthropic", build.first, build.start(0), build.stop(0), stop) == [("A", {})]
    assert calls_of("anthropic", build.first, build.start(0), build.piece(0, FIVE), stop) == [("A", {"eur": 5})]
    head = {"index": 0, "id": "A", "function": {"name": "delete_all", "arguments": ""}}
    chunk = {"choices": [{"index": 0, "delta": {"tool_calls": [head]}}]}
    assert calls_of("openai-chat", chunk, "data: [DONE]\n\n") == [("A", "cut")]


# A second attempt.


def after_the_retry(events: list[StreamChunk]) -> list[StreamChunk]:
    """The part of the events that is compared."""
    [at] = [at for at, event in enumerate(events) if isinstance(event, Retry)]
    return events[at:]


def test_a_new_attempt_withdraws_the_error_and_usage_of_the_first() -> None:
    build = Anthropic()
    usage = {"input_tokens": 9, "cache_read_input_tokens": 5}
    first: Frame = {"type": "message_start", "message": {"id": "m1", "content": [], "usage": usage}}
    error: Frame = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    anew: Frame = {"type": "message_start", "message": {"id": "m2", "content": [], "usage": {"input_tokens": 7}}}
    events = events_of(
        "anthropic", first, error, anew, build.start(0), build.piece(0, FIVE), build.stop(0), *build.last
    )
    turn = penstock.collect(after_the_retry(events))
    assert (turn.finish_reason, turn.error, calls_in(events)) == ("tool_calls", None, [("A", {"eur": 5})])
    assert turn.usage == Usage(7, raw={"input_tokens": 7})


def test_a_lost_piece_of_a_withdrawn_attempt_has_no_effect() -> None:
    build = Anthropic()
    anew: Frame = {"type": "message_start", "message": {"id": "m2", "content": []}}
    stream = [build.first, build.piece(0, FIVE), anew, build.start(0), build.stop(0), *build.last]
    assert calls_of("anthropic", *stream) == [("A", {})]


# The Responses API: which item a frame speaks of.


def item(arguments: str = "", id: str = "fc1", call_id: str = "call_1", name: str = "pay", **fields: Any) -> Frame:
    head = {"type": "function_call", "id": id, "call_id": call_id, "name": name, "arguments": arguments}
    return {**head, "status": "completed", **fields}


def added(index: int | None, data: Frame) -> Frame:
    place = {} if index is None else {"output_index": index}
    return {"type": "response.output_item.added", **place, "item": {**data, "arguments": "", "status": "in_progress"}}


def ended(index: int | None, data: Frame) -> Frame:
    return {**added(index, data), "type": "response.output_item.done", "item": data}


def piece(index: int, text: str, id: str = "fc1") -> Frame:
    where = {"output_index": index, "item_id": id}
    return {"type": "response.function_call_arguments.delta", **where, "delta": text}


CREATED: Frame = {"type": "response.created", "response": {"id": "r1", "output": []}}
COMPLETED: Frame = {"type": "response.completed", "response": {"id": "r1", "status": "completed", "output": []}}
TWO = item('{"x":1}', "fc2", "call_2", "log")


def responses(*stream: Frame | str) -> list[tuple[str, Any]]:
    return calls_of("openai-responses", CREATED, *stream, COMPLETED)


def test_an_item_added_without_an_index_is_found_by_its_id() -> None:
    assert responses(added(None, item()), piece(0, FIVE), ended(0, item(FIVE))) == [("call_1", {"eur": 5})]
    assert responses(added(None, item()), piece(0, FIVE, "x"), ended(0, item(FIVE, "y"))) == [("call_1", {"eur": 5})]


def test_arguments_with_a_wrong_index_are_assigned_by_the_item_id() -> None:
    assert responses(added(0, item()), piece(1, FIVE)) == [("call_1", {"eur": 5})]
    split = [piece(0, '{"eur"'), piece(1, ":"), piece(0, "5}")]
    assert responses(added(0, item()), added(1, TWO), *split, ended(1, TWO)) == [
        ("call_2", {"x": 1}),
        ("call_1", {"eur": 5}),
    ]


def test_items_with_the_same_index_are_distinguished_by_their_ids() -> None:
    begun = [added(0, item()), added(0, TWO)]
    pieces = [piece(0, '{"eur"'), piece(0, '{"x"', "fc2"), piece(0, ":5}"), piece(0, ":1}", "fc2")]
    one, two = ("call_1", {"eur": 5}), ("call_2", {"x": 1})
    assert responses(*begun, *pieces, ended(0, item(FIVE)), ended(0, TWO)) == [one, two]
    silent = [ended(0, item()), ended(0, {**TWO, "arguments": ""})]
    assert responses(*begun, *pieces, *silent) == [one, two]


def test_an_item_that_ends_twice_with_different_ids_is_one_call() -> None:
    begun = [added(0, item(id="x1")), piece(0, FIVE, "x2"), ended(0, item(FIVE, "x3"))]
    assert responses(*begun, ended(0, item(FIVE, "x4"))) == [("call_1", {"eur": 5})]
    assert responses(*begun, added(0, item(id="x5"))) == [("call_1", {"eur": 5})]


def test_a_call_whose_id_changes_is_one_call() -> None:
    assert responses(added(0, item()), piece(0, FIVE), ended(0, item(FIVE, call_id="other"))) == [
        ("call_1", {"eur": 5})
    ]


def test_items_with_the_same_id_are_distinguished_by_their_index() -> None:
    same = {**TWO, "id": "fc1"}
    stream = [added(0, item()), added(1, same), piece(0, FIVE), piece(1, '{"x":1}'), ended(0, item()), ended(1, same)]
    assert responses(*stream) == [("call_1", {"eur": 5}), ("call_2", {"x": 1})]
    assert responses(added(0, item()), piece(0, FIVE), ended(0, item()), ended(1, same)) == [
        ("call_1", {"eur": 5}),
        ("call_2", {"x": 1}),
    ]


def test_an_open_item_that_loses_its_index_is_cut() -> None:
    anew = item(FIVE, "fc2", "call_2")
    stream = [added(0, item()), piece(0, FIVE), added(0, anew), piece(0, FIVE, "fc2"), ended(0, anew)]
    assert responses(*stream) == [("call_2", {"eur": 5}), ("call_1", "cut")]


@pytest.mark.parametrize("ending", [[], [ended(0, item())]], ids=["no end", "an end without arguments"])
def test_arguments_without_an_item_invalidate_a_call_without_arguments(ending: list[Frame]) -> None:
    assert ("call_1", "cut") in responses(added(0, item()), piece(1, FIVE, "x"), *ending)


def test_a_late_id_is_not_given_to_another_call() -> None:
    late = [
        piece(0, FIVE),
        added(0, item(call_id="call_0")),
        piece(1, '{"x":1}', "fc2"),
        added(1, {**TWO, "call_id": "call_0"}),
    ]
    calls = responses(*late, ended(0, item(FIVE, call_id="call_0")), ended(1, {**TWO, "call_id": "call_0"}))
    assert calls == [("call_0", {"eur": 5}), ("call_0_2", {"x": 1})]


def test_final_arguments_replace_a_lost_piece() -> None:
    begun: list[Any] = [added(0, item()), piece(0, '{"eur"'), "data: {]\n\n", piece(0, ":5}")]
    assert responses(*begun, ended(0, item(FIVE))) == [("call_1", {"eur": 5})]
    assert responses(*begun, ended(0, item())) == [("call_1", "cut")]
    assert responses(*begun) == [("call_1", "cut")]
    strange = {**piece(0, "/x"), "type": "response.function_call_raw.delta"}
    assert responses(begun[0], begun[1], strange, begun[3]) == [("call_1", {"eur": 5})]


@pytest.mark.parametrize("begun", [[], [added(0, item())]], ids=["nothing", "a call"])
def test_a_second_response_withdraws_the_error_of_the_first(begun: list[Frame]) -> None:
    error: Frame = {"type": "error", "code": "server_error", "message": "x"}
    anew: Frame = {"type": "response.created", "response": {"id": "r2"}}
    stream = [CREATED, *begun, error, anew, added(0, item()), ended(0, item(FIVE)), COMPLETED]
    turn = penstock.collect(after_the_retry(events_of("openai-responses", *stream)))
    assert (turn.finish_reason, turn.error, len(turn.tool_calls)) == ("tool_calls", None, 1)


def test_pieces_missing_from_the_final_item_are_reported() -> None:
    patch = {"type": "apply_patch_call", "id": "ap", "status": "completed"}
    where = {"output_index": 0, "item_id": "ap"}
    pieces = [
        {"type": "response.apply_patch_call_operation_diff.delta", **where, "delta": one} for one in ("@@", " -1")
    ]
    begun = [CREATED, added(0, patch), *pieces]
    assert unknown_in(events_of("openai-responses", *begun, ended(0, patch), COMPLETED)) == [
        {"apply_patch_call_operation_diff": "@@ -1"}
    ]
    whole = {**patch, "operation": {"diff": "@@ -1"}}
    assert unknown_in(events_of("openai-responses", *begun, ended(0, whole), COMPLETED)) == []


# Another wire's stream.

PAIRS = [(one, other) for one in WIRES for other in WIRES if one != other]


@each(("wire", "other"), PAIRS, ids=lambda name: name)
def test_a_stream_of_another_wire_is_an_error(wire: str, other: str) -> None:
    body = b"".join(frames(other, Reply("Look.", call("weather", {"city": "Rome"}))))
    for pieces in ([body], pieces_of(body, 1), pieces_of(body, 100)):
        events = decode_pieces(wire, pieces)
        turn = penstock.collect(events)
        assert turn.error is not None
        assert (turn.error.code, turn.finish_reason) == ("not_understood", "error")
        assert [type(event) for event in events][-2:] == [Error, Finish]


@pytest.mark.parametrize(
    ("wire", "frame"),
    [
        ("anthropic", Anthropic.first),
        ("bedrock", Bedrock.first),
        ("cohere", Cohere.first),
        ("openai-responses", CREATED),
        ("gemini", {"usageMetadata": {"promptTokenCount": 3}}),
        ("ollama", {"model": "m", "message": {"role": "assistant", "content": ""}, "done": False}),
    ],
)
def test_an_empty_stream_of_the_right_wire_is_not_an_error(wire: str, frame: Frame) -> None:
    strange = {"brandNew": {"a": 1}} if wire == "bedrock" else {"type": "brand_new", "a": 1}
    events = events_of(wire, frame, strange)
    assert unknown_in(events)
    assert [event for event in events if isinstance(event, Error)] == []


# What is reported, and how.


@pytest.mark.parametrize("end", [b"", b" "])
def test_json_lines_without_line_ends_are_reported(end: bytes) -> None:
    body = b"".join(frames("ollama", Reply("Look.", call("weather", {"city": "Rome"}))))
    for pieces in ([line + end for line in body.splitlines()], pieces_of(end.join(body.splitlines()), 1)):
        turn = penstock.collect(penstock.decode(list(pieces), wire="ollama"))
        assert turn.error is not None
        assert (turn.error.code, turn.finish_reason) == ("missing_line_ends", "error")
        assert "iter_bytes" in turn.error.message


def test_a_last_line_without_a_line_end_is_a_frame() -> None:
    line = {"model": "m", "message": {"content": "}{"}, "done": True}
    assert penstock.collect(decode_pieces("ollama", [json.dumps(line).encode()])).text == "}{"


def test_a_bare_array_in_an_event_stream_is_a_frame() -> None:
    chunk: Frame = {"candidates": [{"content": {"parts": [{"text": "x"}]}}]}
    error = '[{"error":{"code":503,"message":"down","status":"UNAVAILABLE"}}]\n'
    turn = penstock.collect(events_of("gemini", chunk, error))
    assert turn.error is not None
    assert (turn.text, turn.error.code, turn.finish_reason) == ("x", "503", "error")
    assert unknown_in(events_of("gemini", chunk, "[no JSON]\n")) == ["[no JSON]"]


@pytest.mark.parametrize(
    ("inner", "outer", "count"),
    [({"output_tokens": 3}, None, 3), ({"output_tokens": 3, "input_tokens": 2}, {"output_tokens": 4}, 4)],
)
def test_counts_in_the_delta_of_a_message_are_read(inner: Frame, outer: Frame | None, count: int) -> None:
    delta: Frame = {"type": "message_delta", "delta": {"stop_reason": "end_turn", "usage": inner}}
    stream = [Anthropic.first, delta if outer is None else {**delta, "usage": outer}, {"type": "message_stop"}]
    usage = penstock.collect(events_of("anthropic", *stream)).usage
    assert usage is not None
    assert (usage.output_tokens, usage.input_tokens) == (count, inner.get("input_tokens", 0))


@pytest.mark.parametrize(
    ("wire", "frame"),
    [
        ("ollama", {"error": "boom", "done": True, "done_reason": "error", "eval_count": 3, "model": "m"}),
        ("gemini", {"error": {"code": 500}, "candidates": [{"finishReason": "STOP"}], "usage_metadata": {"a": 3}}),
        ("gemini", {"message": "boom", "usageMetadata": {"promptTokenCount": 3}}),
    ],
)
def test_an_error_has_the_original_frame(wire: str, frame: Frame) -> None:
    error = penstock.collect(events_of(wire, frame)).error
    assert error is not None
    assert error.raw == frame


# Time.


def linear(size: int, stream: Callable[[int], list[Frame]]) -> None:
    def work(count: int) -> Callable[[], object]:
        body = b"".join(frame_bytes("anthropic", frame) for frame in stream(count))
        return lambda: decode_pieces("anthropic", [body])

    assert_linear(work, size)


def test_a_stop_after_each_piece_is_linear() -> None:
    build = Anthropic()
    pair = [build.piece(0, '{"a":"xxxxxxxxxxxxxxxx'), build.stop(0)]
    linear(1000, lambda size: [build.first, build.start(0), *pair * size, *build.last])
    closed = [build.piece(0, "{} x"), build.stop(0)]
    linear(1000, lambda size: [build.first, build.start(0), *closed * size, *build.last])


def test_orphaned_pieces_are_linear_with_many_open_calls() -> None:
    build = Anthropic()
    linear(500, lambda size: [*(build.start(at, f"t{at}") for at in range(size)), *[build.piece(-5, "x")] * size])


def test_unreadable_frames_are_linear_with_many_open_calls() -> None:
    build = Anthropic()

    def work(size: int) -> Callable[[], object]:
        starts = [frame_bytes("anthropic", build.start(at, f"t{at}")) for at in range(size)]
        return lambda: decode_pieces("anthropic", [start + b"data: {]\n\n" for start in starts])

    assert_linear(work, 500)


# Ids.


def test_a_used_id_gets_the_first_free_number() -> None:
    ids = UniqueIds()
    assert [ids.take(id) for id in ("a", "a", "a_2", "a", "a_2")] == ["a", "a_2", "a_2_2", "a_3", "a_2_3"]
    ids.add("b")
    ids.add("b")
    assert [ids.take("b"), ids.take("b")] == ["b_2", "b_3"]
    ids.release("a")
    assert ids.take("a") == "a"
    assert [ids.take("c", lambda number: f"c{number}") for _ in range(3)] == ["c", "c2", "c3"]


def test_generated_ids_count_from_zero_and_skip_used_ones() -> None:
    blocks = Numbering("call_")
    provider_ids = ["", "call_1", "", "call_1", ""]
    assert [blocks.unique_id(id) for id in provider_ids] == ["call_0", "call_1", "call_2", "call_1_2", "call_3"]
    blocks.release("call_0")
    assert [blocks.unique_id(""), blocks.unique_id("")] == ["call_0", "call_4"]


# -- what is no piece of anything --------------------------------------------------------------------------------------

NOISE = {
    "a field of no stream": b"ts: 1\n", "a word": b"ping\n\n", "a word as data": b"data: ping\n\n",
    "an event": b"event: ping\ndata: ping\n\n", "a heartbeat": b"event: heartbeat\ndata: {}\n\n",
    "a typed heartbeat": b'data: {"type": "heartbeat"}\n\n',
}  # fmt: skip


@each("noise", NOISE)
@each("wire", ["openai-chat", "anthropic", "openai-responses", "cohere", "gemini"])
def test_a_keep_alive_does_not_damage_a_call(wire: str, noise: str) -> None:
    parts = frames(wire, Reply("Look.", call("weather", {"city": "Rome"}), call("now")))
    events = decode_pieces(wire, [NOISE[noise] + part for part in parts])
    calls = [event for event in events if isinstance(event, ToolCall)]
    assert [(one.name, one.arguments) for one in calls] == [("weather", {"city": "Rome"}), ("now", {})]


def chat(*choices: Any, **fields: Any) -> bytes:
    return frame_bytes("openai-chat", {"choices": list(choices), **fields})


def test_a_message_sent_before_its_deltas_is_not_repeated() -> None:
    ahead = {"index": 0, "delta": {"content": ""}, "message": {"content": "He"}}
    deltas = [chat({"index": 0, "delta": {"content": piece}}) for piece in ("He", "llo")]
    end = chat({"index": 0, "delta": {}, "message": {"content": "Hello"}, "finish_reason": "stop"})
    turn = penstock.collect(decode_pieces("openai-chat", [chat(ahead), *deltas, end]))
    assert (turn.text, turn.finish_reason) == ("Hello", "stop")


def test_an_entry_of_another_kind_does_not_damage_a_call() -> None:
    call_0 = {"index": 0, "id": "c", "function": {"name": "look", "arguments": '{"a"'}}
    search = {"index": 1, "type": "web_search", "web_search": {"query": "x"}}
    rest = {"index": 0, "function": {"arguments": ":1}"}}
    deltas = [chat({"index": 0, "delta": {"tool_calls": [entry]}}) for entry in (call_0, search, rest)]
    end = chat({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    turn = penstock.collect(decode_pieces("openai-chat", [*deltas, end]))
    assert [one.arguments for one in turn.tool_calls] == [{"a": 1}]


@pytest.mark.parametrize("good", [{"error_code": "0"}, {"base_resp": {"status_code": "0"}}, {"error_msg": "success"}])
def test_an_error_code_of_zero_is_not_an_error(good: Any) -> None:
    whole = chat({"index": 0, "delta": {"content": "Hi."}, "finish_reason": "stop"}, **good)
    turn = penstock.collect(decode_pieces("openai-chat", [whole]))
    assert (turn.text, turn.error, turn.finish_reason) == ("Hi.", None, "stop")


def test_empty_choices_are_not_answers() -> None:
    events = decode_pieces("openai-chat", [chat(7, "x", [], {"delta": "no"}, {"delta": []})])
    assert {event.choice for event in events if isinstance(event, Finish)} == {0}


def test_a_custom_call_that_the_provider_ran_is_sent_back() -> None:
    call_item = {"id": "c", "type": "custom_tool_call", "call_id": "x", "name": "x_search", "input": "tide"}
    body = {"id": "r", "object": "response", "status": "completed", "output": [call_item], "tools": [{"type": "x"}]}
    turn = penstock.collect(penstock.decode(json.dumps(body), "openai-responses"))
    assert (turn.tool_calls, turn.finish_reason) == ([], "stop")
    assert call_item in export_messages(penstock.as_messages(["go", turn]), "openai-responses")["input"]

"""Turns, `consume`, and the input of `decode`."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import penstock
from penstock import (
    Error,
    Finish,
    Opaque,
    Reasoning,
    Retry,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    Usage,
)
from penstock.events import USAGE_COUNTS, USAGE_PARTS
from penstock.wires import WIRES, find_wire


def never(what: object) -> None:
    pytest.fail(f"called with {what}")


CALL = ToolCall("c1", "weather", {"city": "Rome"}, block=2, sealed_by="finish")
EVENTS: list[StreamChunk] = [
    Reasoning(0, "hm"),
    Reasoning(0, "m"),
    Text(1, "I will "),
    ToolCallStart(2, "c1", "weather"),
    Text(1, "look."),
    ToolCallDelta(2, '{"city":"Rome"}'),
    Opaque(0, "anthropic", "signature", "abc"),
    CALL,
    Usage(3, 4),
    Finish("tool_calls", "tool_use"),
]


def test_the_parts_of_a_turn_are_in_the_order_of_their_blocks() -> None:
    turn = penstock.collect(EVENTS)
    assert [part.type for part in turn.parts] == ["reasoning", "opaque", "text", "tool_call"]
    assert (turn.text, turn.reasoning) == ("I will look.", "hmm")
    assert turn.tool_calls == [CALL]
    assert (turn.finish_reason, turn.raw_finish_reason, turn.type) == ("tool_calls", "tool_use", "tool_calls")
    assert turn.usage == Usage(3, 4)
    assert turn.error is None


def test_classify_and_extract_are_the_same_fold() -> None:
    assert penstock.classify(EVENTS) == penstock.collect(EVENTS)
    assert penstock.extract(EVENTS) == [CALL]
    assert penstock.classify([Text(0, "4")]).type == "final_answer"


def test_a_turn_without_a_finish_was_cut_and_its_open_call_is_invalid() -> None:
    turn = penstock.collect([Text(0, "a"), ToolCallStart(1, "c", "f"), ToolCallDelta(1, '{"x":')])
    assert turn.finish_reason == "cut"
    assert turn.type == "invalid_calls"
    [call] = turn.invalid_calls
    assert (call.name, call.arguments_raw, call.why) == ("f", '{"x":', "cut")


def test_a_withdrawn_attempt_is_not_in_the_turn() -> None:
    turn = penstock.collect(
        [Text(0, "wrong"), Retry("the provider began anew"), Text(1, "right"), Finish("stop", "stop")]
    )
    assert turn.text == "right"
    assert turn.finish_reason == "stop"


def test_choices_are_folded_separately() -> None:
    events: list[StreamChunk] = [
        Text(0, "a"),
        Text(1, "b", choice=1),
        Finish("stop", "stop"),
        Finish("length", "x", choice=1),
    ]
    assert penstock.collect(events).text == "a"
    second = penstock.collect(events, choice=1)
    assert (second.text, second.finish_reason) == ("b", "length")


def test_a_call_can_be_created_from_a_dict_or_json_text() -> None:
    by_dict = ToolCall("c", "f", {"a": [1]})
    by_text = ToolCall("c", "f", '{"a": [1]}')  # type: ignore[arg-type]  # that is the point
    assert by_dict.arguments == by_text.arguments == {"a": [1]}
    assert (by_dict.arguments_raw, by_text.arguments_raw) == ('{"a":[1]}', '{"a": [1]}')


@pytest.mark.parametrize("arguments", ["{bad", "[1]", "5", "nul", [1], None, {"a": Ellipsis}], ids=repr)
def test_a_call_cannot_be_created_from_anything_else(arguments: Any) -> None:
    with pytest.raises(penstock.PenstockError, match="the arguments of the call of 'f' are not a JSON object"):
        ToolCall("c", "f", arguments)


def test_consume_calls_back_for_each_event_and_once_at_the_end() -> None:
    seen: list[Any] = []
    turn = penstock.consume(EVENTS, on_message=seen.append, on_complete=seen.append, on_error=never)
    assert seen == [*EVENTS, turn]


def test_consume_passes_an_in_band_error_to_on_error_and_keeps_the_turn() -> None:
    error = Error("overloaded", "overloaded_error", retryable=True)
    seen: list[Any] = []
    turn = penstock.consume([Text(0, "so far"), error, Finish("error")], on_complete=never, on_error=seen.append)
    assert seen == [error]
    assert turn.text == "so far"


def failing() -> Any:
    yield Text(0, "so far")
    raise ConnectionResetError("gone")


def test_consume_passes_an_exception_of_the_stream_to_on_error_or_raises_it() -> None:
    seen: list[Any] = []
    turn = penstock.consume(failing(), on_error=seen.append)
    assert isinstance(seen[0], ConnectionResetError)
    assert (turn.text, turn.finish_reason) == ("so far", "cut")
    with pytest.raises(ConnectionResetError):
        penstock.consume(failing())


def test_an_exception_of_a_callback_is_raised() -> None:
    def on_message(event: StreamChunk) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError):
        penstock.consume(EVENTS, on_message=on_message, on_error=never)


def test_aconsume_awaits_async_callbacks() -> None:
    seen: list[Any] = []

    async def stream() -> Any:
        for event in EVENTS:
            yield event

    async def on_message(event: StreamChunk) -> None:
        await asyncio.sleep(0)
        seen.append(event)

    turn = asyncio.run(penstock.aconsume(stream(), on_message=on_message, on_complete=seen.append))
    assert seen == [*EVENTS, turn]


CHUNKS: list[dict[str, Any]] = [
    {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "Hi"}}]},
    {"choices": [{"index": 0, "delta": {"content": " you"}, "finish_reason": "stop"}]},
]
BODY = (
    b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n'
    b'data: {"choices":[{"delta":{"content":" you"},"finish_reason":"stop"}]}\n\n'
)


@pytest.mark.parametrize(
    "data",
    [BODY, bytearray(BODY), memoryview(BODY), BODY.decode(), [BODY[:9], BODY[9:]], CHUNKS, iter(CHUNKS), {"choices": [{
        "message": {"role": "assistant", "content": "Hi you"}, "finish_reason": "stop"}]}],
    ids=["bytes", "bytearray", "memoryview", "text", "pieces", "dicts", "iterator", "whole-dict"],
)  # fmt: skip
def test_decode_accepts_bytes_text_and_dicts(data: Any) -> None:
    turn = penstock.collect(penstock.decode(data, wire="openai-chat"))
    assert (turn.text, turn.finish_reason) == ("Hi you", "stop")


def test_decode_accepts_async_streams() -> None:
    async def chunks() -> Any:
        for chunk in CHUNKS:
            yield chunk

    async def run() -> penstock.Turn:
        return await penstock.aconsume(penstock.decode(chunks(), wire="openai-chat"))

    assert asyncio.run(run()).text == "Hi you"


def test_the_events_of_decode_can_be_read_once() -> None:
    events = penstock.decode(CHUNKS, wire="openai-chat")
    assert len(list(events)) == 3
    for again in (list, penstock.collect, penstock.consume):
        with pytest.raises(penstock.AlreadyReadError):
            again(events)
    assert next(events, None) is None


def test_the_async_events_of_decode_can_be_read_once() -> None:
    async def chunks() -> Any:
        for chunk in CHUNKS:
            yield chunk

    async def read() -> None:
        events = penstock.decode(chunks(), wire="openai-chat")
        assert len([event async for event in events]) == 3
        with pytest.raises(penstock.AlreadyReadError):
            await penstock.aconsume(events)
        assert await anext(events, None) is None

    asyncio.run(read())


def test_a_loop_over_decoded_events_can_be_continued() -> None:
    events = penstock.decode(CHUNKS, wire="openai-chat")
    seen = [next(events)]
    for event in events:
        seen.append(event)
        break
    assert [event.type for event in (*seen, *events)] == ["text", "text", "finish"]


def test_events_that_can_be_read_in_both_modes_are_read_in_one() -> None:
    class Both:
        def __iter__(self) -> Any:
            return iter(CHUNKS)

        async def __aiter__(self) -> Any:
            for chunk in CHUNKS:
                yield chunk

    async def read(events: Any) -> list[Any]:
        return [event async for event in events]

    events: Any = penstock.decode(Both(), wire="openai-chat")
    assert len(asyncio.run(read(events))) == 3
    for again in (list, lambda events: asyncio.run(read(events))):
        with pytest.raises(penstock.AlreadyReadError):
            again(events)


def test_decode_refuses_other_types_and_unknown_wires() -> None:
    with pytest.raises(penstock.UsageError, match="openai-chat"):
        penstock.decode(BODY, wire="opnai")  # type: ignore[call-overload]
    with pytest.raises(penstock.UsageError, match="int"):
        penstock.decode(7, wire="openai-chat")  # type: ignore[call-overload]
    with pytest.raises(penstock.UsageError, match="int"):
        list(penstock.decode([7], wire="openai-chat"))


def test_a_closed_decoder_returns_nothing_twice() -> None:
    decoder = penstock.Decoder("openai-chat")
    decoder.feed(BODY)
    assert [event.type for event in decoder.close()] == ["finish"]
    assert decoder.close() == []


def test_an_invalid_call_is_never_among_the_calls() -> None:
    invalid = ToolCallInvalid(0, "c", "f", '{"a":1}{"a":1}', "duplicated", repaired={"a": 1})
    turn = penstock.collect([invalid, Finish("tool_calls", "tool_calls")])
    assert (turn.tool_calls, turn.invalid_calls, turn.type) == ([], [invalid], "invalid_calls")


def test_surrogate_pairs_in_dicts_are_joined() -> None:
    chunks = [{"choices": [{"delta": {"content": half}}]} for half in ("\ud83d", "\ude00")]
    assert penstock.collect(penstock.decode(chunks, wire="openai-chat")).text == "\U0001f600"


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: penstock.collect(BODY),  # type: ignore[arg-type]
        lambda: penstock.Decoder("openai-chat", tools="weather"),
        lambda: penstock.StreamingToolCallAccumulator().add_chunk("weather"),
        lambda: penstock.StreamingToolCallAccumulator().add_chunk(7),
    ],
    ids=["bytes for events", "one name for tools", "text for deltas", "a number for deltas"],
)
def test_common_mistakes_are_usage_errors(mistake: Any) -> None:
    with pytest.raises(penstock.UsageError):
        mistake()


def test_a_closed_decoder_refuses_more_bytes() -> None:
    decoder = penstock.Decoder("openai-chat")
    decoder.close()
    with pytest.raises(penstock.UsageError, match="new one"):
        decoder.feed(BODY)


def test_lines_without_their_line_ends_are_reported() -> None:
    turn = penstock.collect(penstock.decode(BODY.splitlines(), wire="openai-chat"))
    assert turn.error is not None
    assert (turn.error.code, turn.finish_reason) == ("missing_line_ends", "error")


def test_the_stream_of_another_wire_is_reported() -> None:
    turn = penstock.collect(penstock.decode(BODY, wire="anthropic"))
    assert turn.error is not None
    assert turn.error.code == "not_understood"


def test_a_hole_in_the_text_reaches_on_error() -> None:
    def chunk(text: str, reason: str = "null") -> bytes:
        return b'data: {"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":%s}]}\n\n' % (
            text.encode(),
            reason.encode(),
        )

    body = chunk("one ") + b'data: {"choices":[{"del\n\n' + chunk("three", '"stop"') + b"data: [DONE]\n\n"
    completed: list[Any] = []
    failed: list[Any] = []
    turn = penstock.consume(penstock.decode(body, "openai-chat"), on_complete=completed.append, on_error=failed.append)
    assert (turn.text, turn.finish_reason, completed) == ("one three", "error", [])
    assert [error.code for error in failed] == ["unreadable_frame"]


def test_every_count_of_a_usage_is_a_whole_or_in_the_table_of_parts() -> None:
    parts = {part.field for part in USAGE_PARTS}
    assert {*USAGE_COUNTS} == {"input_tokens", "output_tokens"} | parts
    assert {part.whole for part in USAGE_PARTS} <= {*USAGE_COUNTS} - parts


def test_the_facts_of_a_wire_name_only_counts_that_there_are() -> None:
    derived = {"total", "plain_input", "plain_output"}
    for name in WIRES:
        table = find_wire(name).USAGE
        named = {count for row in table.written for count in (row.count, *row.unless_zero)}
        assert {*table.parts} <= {part.field for part in USAGE_PARTS}
        assert named <= {*USAGE_COUNTS} | derived

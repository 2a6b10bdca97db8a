"""`consume` and `aconsume`: callbacks for the events of a response or of a run, with the call so far."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any

import pytest

from penstock import (
    Error,
    Finish,
    Limits,
    Model,
    PartialToolCall,
    Retry,
    Text,
    ToolCall,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    Turn,
    UsageError,
    aconsume,
    consume,
    decode,
)
from penstock.testing import Reply, Scripted, call, say
from penstock.testing.reply import Drop
from tests.growth import assert_linear
from tests.scripted_runs import Bench, made, sync_and_async


def never(what: object) -> None:
    pytest.fail(f"called with {what}")


async def as_async(events: Iterable[Any]) -> AsyncIterator[Any]:
    for event in events:
        yield event


def consumed(stream: Callable[[str], Any], mode: str, *callbacks: Any, **named: Any) -> Turn:
    """The turn of `consume` or `aconsume`; `stream` makes the stream for the mode."""
    if mode == "sync":
        return consume(stream(mode), *callbacks, **named)

    async def read() -> Turn:
        return await aconsume(stream(mode), *callbacks, **named)

    return asyncio.run(read())


def events(*items: Any) -> Callable[[str], Any]:
    return lambda mode: list(items) if mode == "sync" else as_async(items)


# The end.


@sync_and_async
def test_a_response_that_broke_off_is_an_error(mode: str) -> None:
    errors: list[Any] = []
    for stream in (events(Text(0, "so f"), Finish("cut")), events(Text(0, "so f"))):
        turn = consumed(stream, mode, on_complete=never, on_error=errors.append)
        assert (turn.text, turn.finish_reason) == ("so f", "cut")
        assert turn.error is None
    assert [(type(error), error.code) for error in errors] == [(Error, "cut")] * 2


@sync_and_async
@pytest.mark.parametrize("wire", ["openai-compatible:m", "anthropic:m", "ollama:m"])
def test_a_connection_that_drops_is_an_error(wire: str, mode: str) -> None:
    errors: list[Any] = []

    def stream(mode: str) -> Any:
        model = Model(wire, via=Scripted(Reply(say("One two three."), Drop())))
        return model.stream("Hi.") if mode == "sync" else model.astream("Hi.")

    consumed(stream, mode, on_complete=never, on_error=errors.append)
    assert len(errors) == 1


CHUNK = {"choices": [{"index": 0, "delta": {"content": "one "}}]}
END = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}


@sync_and_async
@pytest.mark.parametrize("damage", [b'{"choices":[{"ind', b"<html>", b"{]"])
def test_a_malformed_chunk_is_an_error(damage: bytes, mode: str) -> None:
    body = b"".join(
        b"data: " + part + b"\n\n" for part in (json.dumps(CHUNK).encode(), damage, json.dumps(END).encode())
    )
    errors: list[Any] = []

    def stream(mode: str) -> Any:
        return decode(body, "openai-chat") if mode == "sync" else decode(as_async([body]), "openai-chat")

    turn = consumed(stream, mode, on_complete=never, on_error=errors.append)
    assert [error.code for error in errors] == ["unreadable_frame"]
    assert turn.text == "one "


@sync_and_async
@pytest.mark.parametrize("reason", ["stop", "length", "content_filter", "tool_calls", "other"])
def test_any_other_end_is_complete(reason: Any, mode: str) -> None:
    turns: list[Turn] = []
    turn = consumed(events(Text(0, "x"), Finish(reason)), mode, on_complete=turns.append, on_error=never)
    assert turns == [turn]


def test_a_stream_of_the_other_mode_is_refused_with_the_function_to_use() -> None:
    with pytest.raises(UsageError, match=r"await aconsume\(stream\)"):
        consume(as_async([]))  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"consume\(stream\)"):
        asyncio.run(aconsume([]))  # type: ignore[arg-type]


@sync_and_async
def test_the_stream_is_closed_when_a_callback_raises(mode: str) -> None:
    closed: list[str] = []

    def generated() -> Any:
        try:
            yield Text(0, "x")
        finally:
            closed.append("sync")

    async def generated_async() -> Any:
        try:
            yield Text(0, "x")
        finally:
            closed.append("async")

    def fail(event: Any) -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        consumed(lambda mode: generated() if mode == "sync" else generated_async(), mode, fail)
    assert closed == [mode]


# The call so far.


@sync_and_async
def test_on_message_can_get_the_call_so_far(mode: str) -> None:
    seen: list[Any] = []

    def on_message(event: Any, call: PartialToolCall | None) -> None:
        state = call and (call.id, call.name, copy.deepcopy(call.arguments), call.arguments_raw, call.is_complete)
        seen.append((event.type, state))

    whole = ToolCall("c", "redis", {"command": "KEYS *"}, '{"command": "KEYS *"}', block=1, sealed_by="finish")
    consumed(
        events(Text(0, "Hm."), ToolCallStart(1, "c", "redis"), ToolCallDelta(1, '{"command":'),
               ToolCallDelta(1, ' "KEYS'), ToolCallDelta(1, ' *"}'), whole, Finish("tool_calls")),
        mode, on_message,
    )  # fmt: skip
    assert seen == [
        ("text", None),
        ("tool_call_start", ("c", "redis", {}, "", False)),
        ("tool_call_delta", ("c", "redis", {}, '{"command":', False)),
        ("tool_call_delta", ("c", "redis", {"command": "KEYS"}, '{"command": "KEYS', False)),
        ("tool_call_delta", ("c", "redis", {"command": "KEYS *"}, '{"command": "KEYS *"}', False)),
        ("tool_call", ("c", "redis", {"command": "KEYS *"}, '{"command": "KEYS *"}', True)),
        ("finish", None),
    ]


def test_parallel_calls_are_apart_and_an_invalid_call_is_never_complete() -> None:
    last: dict[str, Any] = {}

    def on_message(event: Any, call: PartialToolCall | None) -> None:
        if call is not None:
            last[call.id] = call

    stream = [
        ToolCallStart(0, "a", "f"), ToolCallStart(1, "b", "g"), ToolCallDelta(0, '{"x":1'), ToolCallDelta(1, '{"y":"z'),
        ToolCallDelta(0, "}"), ToolCall("a", "f", {"x": 1}, '{"x":1}', block=0, sealed_by="call_end"),
        ToolCallInvalid(1, "b", "g", '{"y":"z', "cut"), Finish("cut"),
    ]  # fmt: skip
    consume(stream, on_message)
    assert {id: (call.arguments, call.is_complete) for id, call in last.items()} == {
        "a": ({"x": 1}, True),
        "b": ({"y": "z"}, False),
    }


def test_a_withdrawn_attempt_leaves_no_call() -> None:
    seen: list[Any] = []
    start, piece = ToolCallStart(0, "a", "f"), ToolCallDelta(0, '{"x":')
    stream = [start, piece, Retry("again"), start, piece, Finish("cut")]
    consume(stream, lambda event, call: seen.append(call and call.arguments_raw))
    assert seen == ["", '{"x":', None, "", '{"x":', None]


def test_the_call_so_far_costs_what_the_piece_costs() -> None:
    def prepare(size: int) -> Callable[[], object]:
        pieces = [ToolCallDelta(0, '{"text": "'), *[ToolCallDelta(0, "word ") for _ in range(size)]]
        lengths: list[int] = []

        def on_message(event: Any, call: PartialToolCall | None) -> None:
            lengths.append(len(call.arguments) if call else 0)

        return lambda: consume([ToolCallStart(0, "c", "f"), *pieces], on_message)

    assert_linear(prepare, 2_000)


# Runs.


def run_events(agent: Any) -> Callable[[str], Any]:
    return lambda mode: agent.stream("Go.") if mode == "sync" else agent.astream("Go.")


@sync_and_async
def test_the_same_callbacks_work_over_a_run(mode: str) -> None:
    types: list[str] = []
    turns: list[Turn] = []
    agent = made([Reply("I look.", call("write", {"text": "a"})), Reply("Done.")], *Bench().tools)
    turn = consumed(
        run_events(agent), mode, lambda event: types.append(event.type), on_complete=turns.append, on_error=never
    )
    assert turns == [turn]
    assert (turn.text, turn.finish_reason, turn.type) == ("Done.", "stop", "final_answer")
    assert {"step_start", "text", "tool_call", "tool_start", "tool_end", "step_end", "done"} <= set(types)


@sync_and_async
def test_a_run_that_ends_without_an_answer_is_an_error(mode: str) -> None:
    errors: list[Any] = []
    dropped = made([Reply("One two.", Drop())])
    limited = made([Reply(call("write", {"text": "a"})), Reply("Done.")], *Bench().tools, limits=Limits(steps=1))
    for agent in (dropped, limited):
        consumed(run_events(agent), mode, on_complete=never, on_error=errors.append)
    assert len(errors) == 2
    assert errors[1] == Error("the run reached its limit of 1 steps", "limit")


@sync_and_async
def test_the_call_so_far_of_a_run(mode: str) -> None:
    names: list[str] = []
    agent = made(
        [Reply(call("write", {"text": "a"})), Reply(call("look", {"city": "Rome"})), Reply("Done.")], *Bench().tools
    )

    def on_message(event: Any, call: PartialToolCall | None) -> None:
        if call is not None and call.is_complete:
            names.append(f"{call.name} {call.arguments}")

    consumed(run_events(agent), mode, on_message)
    assert names == ["write {'text': 'a'}", "look {'city': 'Rome'}"]

"""Call ids that repeat in every response: a client that knows an id takes the call for a copy, and does not run it."""

from __future__ import annotations

import json
from typing import Any

from penstock import Decoder, Healing, StreamChunk, ToolCall, ToolCallClosed, ToolCallInvalid, ToolCallStart
from penstock.declarations import read_declarations
from penstock.healing.decoding import HealedDecoding, response_context
from penstock.healing.report import Healed
from penstock.messages import Message, user

TOOLS = tuple(read_declarations(["look"]))
HISTORY = (
    user("hi"),
    Message("assistant", (ToolCall("call_0", "look", {}), ToolCallInvalid(1, "call_1", "look", "{", "malformed"))),
)


def healed(*frames: Any, messages: tuple[Message, ...] = HISTORY) -> tuple[list[StreamChunk], list[Healed]]:
    """The events of a response in Chat Completions, and what was healed in them."""
    context = response_context("openai-chat", TOOLS, messages, Healing())
    decoding = HealedDecoding(Decoder("openai-chat", TOOLS), context)
    events = [event for frame in frames for event in decoding.feed(b"data: %b\n\n" % json.dumps(frame).encode())]
    return events + decoding.close(), context.report.build()


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


def call(id: str, arguments: str, index: int = 0) -> dict[str, Any]:
    function = {"name": "look", "arguments": arguments}
    return delta(tool_calls=[{"index": index, "id": id, "type": "function", "function": function}])


def ids(events: list[StreamChunk]) -> list[list[str]]:
    """The ids of the events of each call."""
    by_block: dict[int, list[str]] = {}
    for event in events:
        if isinstance(event, ToolCallStart | ToolCallClosed | ToolCall | ToolCallInvalid):
            by_block.setdefault(event.block, []).append(event.id)
    return [*by_block.values()]


def test_a_call_with_the_id_of_an_earlier_one_gets_another() -> None:
    events, report = healed(call("call_0", "{}"), call("call_1", "{}", 1), delta("tool_calls"))
    assert [*map(set, ids(events))] == [{"call_0_2"}, {"call_1_2"}]
    assert [(one.quirk, one.count) for one in report] == [(22, 2)]


def test_a_damaged_call_does_so_too() -> None:
    events, _ = healed(call("call_0", '{"a": '), delta("tool_calls"))
    assert [*map(set, ids(events))] == [{"call_0_2"}]


def test_other_ids_stay() -> None:
    events, report = healed(call("call_7", "{}"), delta("tool_calls"))
    assert [*map(set, ids(events))] == [{"call_7"}]
    assert report == []


def test_the_third_response_gets_a_third_id() -> None:
    messages = (*HISTORY, Message("assistant", (ToolCall("call_0_2", "look", {}),)))
    events, _ = healed(call("call_0", "{}"), delta("tool_calls"), messages=messages)
    assert [*map(set, ids(events))] == [{"call_0_3"}]


def test_an_id_that_comes_after_the_start_counts_at_the_end() -> None:
    start = delta(tool_calls=[{"index": 0, "function": {"name": "look", "arguments": "{"}}])
    late = delta(tool_calls=[{"index": 0, "id": "slow", "function": {"arguments": "}"}}])
    events, report = healed(start, late, delta("tool_calls"))
    plain, _ = healed(start, late, delta("tool_calls"), messages=())
    assert [event.id for event in plain if isinstance(event, ToolCall)] == ["slow"]
    assert [event.id for event in events if isinstance(event, ToolCall)] == ["slow"]
    assert [one.quirk for one in report if one.quirk == 22] == [22], "its first id is that of an earlier call"

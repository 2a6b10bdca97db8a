"""Calls that hosted code makes: who may call a tool, who called it, and groups of which a part is missing."""

from __future__ import annotations

import json
from typing import Any

import pytest

import penstock
from penstock import Agent, Model, Opaque, repair
from penstock.declarations import read_declarations
from penstock.messages import assistant, result, tool_results, user
from penstock.testing import Raw, Scripted
from penstock.testing.request import ReceivedRequest
from penstock.testing.wires.judge import find_rejection
from penstock.wires import find_encoder
from penstock.wires.shared.request import Request

CALLER = {"type": "program", "caller_id": "call_p"}
PROGRAM = {"type": "program", "id": "prog_1", "call_id": "call_p", "code": "await look()", "fingerprint": "fp"}
DONE = {"type": "program_output", "id": "po_1", "call_id": "call_p", "result": "ok", "status": "completed"}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "look", "arguments": "{}",
        "caller": CALLER}  # fmt: skip
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "rain", "caller": CALLER}
GO = {"role": "user", "content": "Go."}


def sent(items: list[Any], **fields: Any) -> list[dict[str, Any]]:
    """The items of a request with this history, without messages; it must be accepted."""
    messages = tuple(penstock.as_messages({"input": items, **fields}))
    body = find_encoder("openai-responses")(Request(model="gpt-5", messages=messages, extra=fields), frozenset()).body
    assert find_rejection(ReceivedRequest("openai-responses", body)) is None
    return [item for item in body["input"] if item["type"] != "message"]


def test_a_program_goes_back_with_its_fingerprint_and_each_output_with_its_caller() -> None:
    @penstock.tool(read_only=True)
    def look() -> str:
        """Look."""
        return "rain"

    body = {"id": "resp_1", "object": "response", "status": "completed", "model": "gpt-5", "output": [PROGRAM, CALL]}
    answer = Raw(json.dumps(body).encode(), "application/json")
    script = Scripted([answer, "It rains."], strict=True)
    assert Agent(Model("openai:gpt-5", via=script), [look]).run("Go.").output == "It rains."
    items = [item for item in script.requests[1].body["input"] if item["type"] != "message"]
    assert [item["type"] for item in items] == ["program", "function_call", "function_call_output"]
    assert items[0]["fingerprint"] == "fp"
    assert items[1]["caller"] == items[2]["caller"] == CALLER


def test_a_whole_group_is_sent_as_it_is() -> None:
    assert [item["type"] for item in sent([GO, PROGRAM, CALL, OUTPUT, DONE, GO])] == [
        "program", "function_call", "function_call_output", "program_output",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "items",
    [
        [GO, CALL, OUTPUT, DONE, GO],  # a history hook dropped the program
        [GO, PROGRAM, CALL, OUTPUT, GO],  # the program never ended, and the user has spoken since
        [GO, CALL, OUTPUT, GO],
    ],
)
def test_of_a_group_without_one_of_its_ends_only_plain_calls_stay(items: list[Any]) -> None:
    written = sent(items)
    assert [item["type"] for item in written] == ["function_call", "function_call_output"]
    assert all("caller" not in item for item in written)


def test_a_program_that_waits_for_results_stays() -> None:
    assert next(item["type"] for item in sent([GO, PROGRAM, CALL, OUTPUT])) == "program"


def test_a_caller_may_be_in_a_history_that_the_provider_keeps() -> None:
    [call, output] = sent([CALL, OUTPUT], previous_response_id="resp_1")
    assert call["caller"] == output["caller"] == CALLER


def test_a_repaired_history_has_no_lost_callers() -> None:
    repaired = repair({"input": [GO, CALL, OUTPUT, DONE, GO]}, "openai")
    assert penstock.check(repaired, "openai") == []
    states = [part for message in penstock.as_messages(repaired) for part in message.parts if isinstance(part, Opaque)]
    assert "call_p" not in str(states)


@pytest.mark.parametrize(
    ("wire", "callers", "expected"),
    [
        ("openai-responses", ["direct", "programmatic"], ["direct", "programmatic"]),
        ("openai-responses", ["code_execution_20260120"], None),
        ("anthropic", ["direct", "code_execution_20260120"], ["direct", "code_execution_20260120"]),
        ("anthropic", ["programmatic"], None),
    ],
)
def test_a_tool_says_who_may_call_it_in_the_words_of_its_provider(wire: str, callers: Any, expected: Any) -> None:
    tools = tuple(read_declarations([{"name": "look", "parameters": {"type": "object"}, "allowed_callers": callers}]))
    request = Request(model="m", messages=(user("Go."),), tools=tools)
    assert find_encoder(wire)(request, frozenset()).body["tools"][0].get("allowed_callers") == expected


def test_the_output_schema_of_a_tool_goes_to_programs() -> None:
    tool = {"name": "look", "parameters": {"type": "object"}, "allowed_callers": ["programmatic"],
            "output_schema": {"type": "string"}}  # fmt: skip
    request = Request(model="gpt-5", messages=(user("Go."),), tools=tuple(read_declarations([tool])))
    assert find_encoder("openai-responses")(request, frozenset()).body["tools"][0]["output_schema"] == {
        "type": "string"
    }


def test_a_tool_of_a_toolset_is_not_taken_for_another_tool_of_its_name() -> None:
    block = {"type": "tool_use", "id": "c1", "name": "click", "input": {"x": 1}, "toolset_name": "computer"}
    body = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [block],
            "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 1}}  # fmt: skip
    turn = penstock.collect(penstock.decode(body, "anthropic"))
    [call] = turn.tool_calls
    assert call.name == "computer__click"
    history = (user("Go."), assistant(*turn.parts), tool_results(result(call, "done")))
    written = find_encoder("anthropic")(Request(model="m", messages=history), frozenset()).body["messages"]
    assert written[1]["content"] == [block]
    assert written[2]["content"][0]["toolset_name"] == "computer"
    assert penstock.as_messages({"messages": written})[1].tool_calls[0].name == "computer__click"

"""Results are matched with calls by the tool's name and the order; incomplete calls are read."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Message, ToolCall, ToolResult, UsageError, as_messages, check, export_messages, repair
from penstock.history.read import read
from penstock.providers import PROVIDERS, find_provider
from penstock.wires import WIRES
from tests.cases import each

Json = dict[str, Any]


def answers(what: Any) -> list[tuple[str, str]]:
    """Of each result the city that its call asked for, and its text."""
    messages = as_messages(what)
    cities = {call.id: call.arguments["city"] for message in messages for call in message.tool_calls}
    return [(cities[result.call_id], result.text) for message in messages for result in message.results]


# Calls without ids.


def gemini_call(*cities: str) -> Json:
    return {"role": "model", "parts": [{"functionCall": {"name": "w", "args": {"city": city}}} for city in cities]}


def gemini_result(*texts: str) -> Json:
    return {"role": "user", "parts": [{"functionResponse": {"name": "w", "response": {"result": t}}} for t in texts]}


def ollama_call(*cities: str) -> Json:
    calls = [{"function": {"name": "w", "arguments": {"city": city}}} for city in cities]
    return {"role": "assistant", "content": "", "tool_calls": calls}


def ollama_result(text: str, **named: str) -> Json:
    return {"role": "tool", "content": text, **named}


def older_call(city: str) -> Json:
    return {"role": "assistant", "content": None, "function_call": {"name": "w", "arguments": f'{{"city": "{city}"}}'}}


def older_result(text: str) -> Json:
    return {"role": "function", "name": "w", "content": text}


GEMINIS_USER = {"role": "user", "parts": [{"text": "Wait."}]}
USER = {"role": "user", "content": "Wait."}


@pytest.mark.parametrize(
    "history",
    [
        [gemini_call("Rome"), GEMINIS_USER, gemini_call("Oslo"), gemini_result("rain")],
        [ollama_call("Rome"), USER, ollama_call("Oslo"), ollama_result("rain", tool_name="w")],
        [ollama_call("Rome"), USER, ollama_call("Oslo"), ollama_result("rain")],
        [older_call("Rome"), USER, older_call("Oslo"), older_result("rain")],
    ],
    ids=["gemini", "ollama", "ollama without names", "function_call"],
)
def test_a_result_belongs_to_the_newest_turn_and_not_to_one_that_was_interrupted(history: list[Json]) -> None:
    assert answers(history) == [("Oslo", "rain")]


@pytest.mark.parametrize(
    "history",
    [
        [gemini_call("Rome", "Oslo"), gemini_result("sun", "rain")],
        [gemini_call("Rome"), gemini_call("Oslo"), gemini_result("sun"), gemini_result("rain")],
        [ollama_call("Rome", "Oslo"), ollama_result("sun", tool_name="w"), ollama_result("rain", tool_name="w")],
    ],
    ids=["gemini", "gemini in two contents", "ollama"],
)
def test_the_results_of_a_turn_come_in_its_order(history: list[Json]) -> None:
    assert answers(history) == [("Rome", "sun"), ("Oslo", "rain")]


def test_results_that_come_after_those_of_the_newest_turn_belong_to_the_one_before() -> None:
    history = [gemini_call("Rome"), GEMINIS_USER, gemini_call("Oslo"), gemini_result("rain"), gemini_result("sun")]
    assert answers(history) == [("Oslo", "rain"), ("Rome", "sun")]


def test_results_without_calls_have_ids_of_their_own() -> None:
    messages = as_messages([gemini_result("rain", "sun"), gemini_call("Oslo")])
    ids = [result.call_id for result in messages[0].results] + [call.id for call in messages[1].tool_calls]
    assert len(set(ids)) == 3


# Calls and results that lack what they need.

DAMAGED: dict[str, Any] = {
    "openai-chat": [
        {"role": "assistant", "tool_calls": [{"type": "function", "function": {"arguments": "{}"}}]},
        {"role": "tool", "content": "1"},
    ],
    "older": [{"role": "assistant", "function_call": {"arguments": "{}"}}, {"role": "function", "content": "1"}],
    "openai-responses": {"input": [{"type": "function_call"}, {"type": "function_call_output", "output": "1"}]},
    "anthropic": [
        {"role": "assistant", "content": [{"type": "tool_use", "id": "", "name": "", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "content": "1"}]},
    ],
    "bedrock": [
        {"role": "assistant", "content": [{"toolUse": {"input": {}}}]},
        {"role": "user", "content": [{"toolResult": {"content": [{"text": "1"}]}}]},
    ],
    "gemini": [
        {"role": "model", "parts": [{"functionCall": {"args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"response": {"result": "1"}}}]},
    ],
}


@pytest.mark.parametrize("damaged", DAMAGED.values(), ids=list(DAMAGED))
def test_calls_and_results_without_id_or_name_are_read_as_they_are(damaged: Any) -> None:
    reply, found = as_messages(damaged)
    [call], [result] = reply.tool_calls, found.results
    assert (call.name, result.name, result.call_id, result.text) == ("", "", call.id, "1")


@each("wire", WIRES)
@each("damaged", DAMAGED.values(), ids=list(DAMAGED))
def test_calls_without_ids_can_be_exported_and_repaired(damaged: Any, wire: Any) -> None:
    export_messages(damaged, wire)
    assert check(repair(damaged)) == []


def test_check_reports_a_missing_id() -> None:
    assert "empty_id" in {problem.kind for problem in check(DAMAGED["openai-chat"])}


ANSWERED_BY_ITSELF: dict[str, Any] = {
    "anthropic": {
        "role": "assistant",
        "content": [
            {"type": "tool_use", "id": "a", "name": "f", "input": {}},
            {"type": "tool_result", "tool_use_id": "a", "content": "1"},
        ],
    },
    "bedrock": {
        "role": "assistant",
        "content": [
            {"toolUse": {"toolUseId": "a", "name": "f", "input": {}}},
            {"toolResult": {"toolUseId": "a", "content": [{"text": "1"}]}},
        ],
    },
    "gemini": {
        "role": "model",
        "parts": [
            {"functionCall": {"id": "a", "name": "f", "args": {}}},
            {"functionResponse": {"id": "a", "name": "f", "response": {"result": "1"}}},
        ],
    },
}


@pytest.mark.parametrize("message", ANSWERED_BY_ITSELF.values(), ids=list(ANSWERED_BY_ITSELF))
def test_a_result_in_an_assistant_message_is_read_and_repaired(message: Json) -> None:
    history = [{"role": "user", "content": "Hi."}, message]
    reading = read(history)
    reply = reading.messages[1]
    assert [part for part in reply.parts if isinstance(part, ToolCall | ToolResult)] == [
        *reply.tool_calls,
        *reply.results,
    ]
    assert [(result.call_id, result.name, result.text) for result in reply.results] == [("a", "f", "1")]
    assert reading.places[1].parts[-1].endswith("[1]")
    assert "misplaced_part" in {problem.kind for problem in check(history)}
    mended = repair(history)
    assert [result.text for message in mended for result in message.results] == ["1"]
    assert all(check(mended, find_provider(name)[0]) == [] for name in PROVIDERS)
    with pytest.raises(UsageError, match="ToolResult is not allowed"):
        export_messages(history, "openai-chat")


def test_a_misplaced_part_raises_with_its_place() -> None:
    history = ["Hi.", {"role": "user", "content": "Ho."}, Message("assistant", (ToolResult("a", "f"),))]
    with pytest.raises(
        UsageError, match=r"^messages\[2\]\.parts\[0\]: ToolResult is not allowed in a message of the role assistant"
    ):
        export_messages(history, "openai-chat")

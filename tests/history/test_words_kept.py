"""Histories are read without loss: fields that would not be sent are refused, and the order of texts is kept."""

from __future__ import annotations

import json
from typing import Any

import google.genai.types
import pytest

import penstock
from penstock import Message, Opaque, Reasoning, Text, ToolCall, ToolResult, UsageError, as_messages, export_messages
from penstock.dialects.prompt import prompts, render
from penstock.messages import assistant, result, tool_results, user
from penstock.testing import Scripted
from penstock.wires import WIRES
from tests.cases import each

WORDS = "What is 2+2?"
ASKED = {"role": "user", "content": "Go."}
UNREAD: dict[str, tuple[Any, str]] = {
    "text": ([{"role": "user", "text": WORDS}], "messages[0]"),
    "blocks": ([{"role": "user", "blocks": [{"type": "text", "text": WORDS}]}], "messages[0]"),
    "beside an empty content": ([{"role": "user", "content": "", "text": WORDS}], "messages[0]"),
    "beside a null": ([{"role": "user", "content": None, "message": WORDS}], "messages[0]"),
    "system": ([{"role": "system", "text": WORDS}, ASKED], "messages[0]"),
    "developer": ([{"role": "developer", "prompt": WORDS}, ASKED], "messages[0]"),
    "assistant": ([ASKED, {"role": "assistant", "text": WORDS}], "messages[1]"),
    "tool": ([ASKED, {"role": "tool", "tool_call_id": "c1", "output": WORDS}], "messages[1]"),
    "beside an empty result": ([{"role": "tool", "tool_call_id": "c", "content": "", "output": WORDS}], "messages[0]"),
    "beside empty arguments": (
        [{"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "", "args": WORDS}}]}],
        "messages[0].tool_calls[0].function",
    ),
    "beside results": (
        [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "x"}], "text": WORDS}],
        "messages[0]",
    ),
    "a result's part": (
        [ASKED, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "text": WORDS}]}],
        "messages[1].content[0]",
    ),
    "tool_use": (
        [{"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "arguments": {"a": WORDS}}]}],
        "messages[0].content[0]",
    ),
    "tool_calls": (
        [ASKED, {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "args": {"a": WORDS}}}]}],
        "messages[1].tool_calls[0].function",
    ),
    "function_call": (
        [ASKED, {"role": "assistant", "function_call": {"name": "f", "parameters": {"a": WORDS}}}],
        "messages[1].function_call",
    ),
    "an item": ({"input": [{"type": "message", "role": "user", "text": WORDS}]}, "input[0]"),
    "an item of the assistant": ({"input": [{"type": "message", "role": "assistant", "text": WORDS}]}, "input[0]"),
    "an item's arguments": (
        {"input": [{"type": "function_call", "call_id": "c", "name": "f", "input": WORDS}]}, "input[0]",
    ),
    "an item's output": ({"input": [{"type": "function_call_output", "call_id": "c", "content": WORDS}]}, "input[0]"),
    "toolUse": (
        [{"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "f", "arguments": {"a": WORDS}}}]}],
        "messages[0].content[0].toolUse",
    ),
    "toolResult": (
        [{"role": "user", "content": [{"toolResult": {"toolUseId": "c", "output": WORDS}}]}],
        "messages[0].content[0].toolResult",
    ),
    "functionCall": (
        [{"role": "model", "parts": [{"functionCall": {"name": "f", "arguments": {"a": WORDS}}}]}],
        "messages[0].parts[0].functionCall",
    ),
    "functionResponse": (
        [{"role": "user", "parts": [{"functionResponse": {"name": "f", "output": WORDS}}]}],
        "messages[0].parts[0].functionResponse",
    ),
    "a content": ([{"role": "model", "text": WORDS}], "messages[0]"),
}  # fmt: skip


@each("name", UNREAD)
def test_words_in_an_unknown_field_are_refused_with_their_place(name: str) -> None:
    history, place = UNREAD[name]
    for read in (as_messages, penstock.check, penstock.repair):
        with pytest.raises(UsageError) as error:
            read(history)
        assert str(error.value).startswith(f"{place}: ")


def test_an_agent_refuses_words_that_it_would_not_send() -> None:
    model = penstock.Model("openai-compatible:m", via=Scripted(["Four."]))
    for run in (penstock.Agent(model).run, model.complete):
        with pytest.raises(UsageError, match="'text' is not read"):
            run(messages=[{"role": "user", "text": WORDS}])


@pytest.mark.parametrize("message", [
    {"role": "user", "content": "Hi.", "name": "bob", "text": "more"},
    {"role": "user", "content": "", "name": "bob"},
    {"role": "assistant", "content": None, "tool_calls": [], "id": "msg_1"},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "cache_control": {"type": "x"}}]},
    {"role": "model", "parts": [{"functionCall": {"name": "f", "id": "c"}}]},
])  # fmt: skip
def test_fields_that_are_kept_or_hold_no_words_are_accepted(message: Any) -> None:
    assert as_messages([ASKED, message])


def test_images_of_an_assistant_message_are_kept() -> None:
    history = [ASKED, {"role": "assistant", "content": "Here.", "images": ["iVBORw0KGgo="]}]
    assert "iVBORw0KGgo=" in json.dumps(export_messages(history, "ollama"))


# Contents of Google's chats.


def chunk(*parts: Any, role: str = "model") -> Any:
    return google.genai.types.Content(role=role, parts=[google.genai.types.Part(**part) for part in parts])


def test_the_chunks_that_googles_chats_keep_are_one_message() -> None:
    call = {"function_call": {"name": "f", "args": {"a": 1}}}
    history = [
        chunk({"text": "Hi."}, role="user"),
        chunk({"text": "Let me ", "thought": True}), chunk({"text": "think.", "thought": True}),
        chunk({"text": "The sky"}), chunk({"text": " is bl"}), chunk({"text": "ue."}, call),
        chunk({"text": "", "thought_signature": b"sig"}),
        chunk({"function_response": {"name": "f", "response": {"result": "x"}}}, role="user"),
        chunk({"text": "Do"}), chunk({"text": "ne.", "thought_signature": b"sig"}),
    ]  # fmt: skip
    _, first, _, last = as_messages(history)
    assert [type(part) for part in first.parts] == [Reasoning, Text, ToolCall, Opaque]
    assert (first.parts[0].text, first.text, last.text) == ("Let me think.", "The sky is blue.", "Done.")  # type: ignore[union-attr]
    assert [type(part) for part in last.parts] == [Text, Text, Opaque], "a signature stays on its own part"
    assert penstock.check(history) == []
    for wire in ("anthropic", "bedrock", "cohere", "ollama", "openai-chat"):
        body = json.dumps(export_messages(history, wire))
        assert "The sky is blue." in body
        assert "no answer" not in body
    assert len(export_messages(history, "gemini")["contents"]) == 4


def test_adjacent_contents_of_a_user_are_one_message() -> None:
    contents = [{"role": "user", "parts": [{"text": "One."}]}, {"role": "user", "parts": [{"text": "Two."}]}]
    [message] = as_messages({"contents": contents})
    assert [part.text for part in message.parts if isinstance(part, Text)] == ["One.", "Two."]


# Other losses.


def test_a_continued_thread_may_begin_with_results() -> None:
    content = [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"}]
    body = {"messages": [{"role": "user", "content": content}], "thread": {"type": "continue", "id": "thread_1"}}
    assert penstock.check(body) == []
    assert [problem.kind for problem in penstock.check({**body, "thread": {"type": "new"}})] == ["result_without_call"]
    assert export_messages(penstock.repair(body), "anthropic")["messages"][0]["content"][0]["type"] == "tool_result"


@pytest.mark.parametrize("wire", WIRES)
def test_a_later_error_does_not_replace_a_good_result(wire: Any) -> None:
    call = ToolCall("call_1", "f", {}, "{}")
    failed = ToolResult("call_1", "f", (Text(0, "interrupted"),), is_error=True)
    history = [user("Go."), assistant(call), tool_results(result(call, "sunny")), tool_results(failed), user("And?")]
    for messages in (history, penstock.repair(history)):
        body = json.dumps(export_messages(messages, wire))
        assert "sunny" in body
        assert "interrupted" not in body


@pytest.mark.parametrize("raw", ["null", " null\n", '"null"', ""])
def test_null_as_json_text_means_no_arguments(raw: str) -> None:
    function = {"name": "f", "arguments": raw}
    bodies: list[Any] = [
        [ASKED, {"role": "assistant", "tool_calls": [{"id": "c", "type": "function", "function": function}]}],
        {"input": [{"type": "function_call", "call_id": "c", "name": "f", "arguments": raw}]},
        [ASKED, {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f", "input": raw}]}],
        [ASKED, {"role": "assistant", "content": [{"toolUse": {"toolUseId": "c", "name": "f", "input": raw}}]}],
        [ASKED, {"role": "model", "parts": [{"functionCall": {"name": "f", "args": raw}}]}],
    ]
    for body in bodies:
        [call] = as_messages(body)[-1].tool_calls
        assert call.arguments == {}


# Calls in the text.


@each("dialect", prompts())
def test_text_after_a_call_stays_after_it(dialect: str) -> None:
    calls = [ToolCall(f"call0000{number}", "look", {"city": f"City{number}"}, block=number) for number in (1, 2, 4)]
    message = Message("assistant", (Text(0, "Before."), *calls[:2], Text(3, "Between."), calls[2], Text(5, "\nAfter.")))
    [_, rendered] = render([user("Go."), message], None, dialect)
    places = [rendered.text.index(word) for word in ("Before.", "City1", "City2", "Between.", "City4", "After.")]
    assert places == sorted(places)
    assert rendered.text.endswith("\nAfter.")


def test_white_space_between_calls_does_not_separate_them() -> None:
    calls = [ToolCall(f"call0000{number}", "look", {"city": "Rome"}, block=number) for number in (1, 3)]
    apart = Message("assistant", (calls[0], Text(2, "\n"), calls[1]))
    together = Message("assistant", tuple(calls))
    for dialect in prompts():
        assert render([apart], None, dialect) == render([together], None, dialect)

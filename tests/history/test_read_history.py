"""Strings, turns, dicts and SDK objects of OpenAI and Anthropic are read as messages."""

from __future__ import annotations

import base64
import json
from typing import Any

import anthropic.types
import openai.types.chat
import pytest

import penstock
from penstock import (
    File,
    Image,
    Message,
    Opaque,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolCallInvalid,
    ToolResult,
    UsageError,
    as_messages,
)
from penstock.messages import assistant, result, system, tool_results, user
from penstock.wires.anthropic.facts import STATE_BLOCKS
from penstock.wires.openai_chat.reasoning_fields import TEXT_FIELDS
from tests import streams

PIXEL = "data:image/png;base64,iVBORw0KGgo="
CALL = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
ROME = ToolCall("call_1", "weather", {"city": "Rome"}, '{"city": "Rome"}')


def one(what: Any) -> Message:
    [message] = as_messages(what)
    return message


def texts(content: tuple[Any, ...]) -> list[Any]:
    return [part.text if isinstance(part, Text) else part for part in content]


# Our own.


def test_a_string_is_a_user_message() -> None:
    assert as_messages("Hi.") == [user("Hi.")]
    assert as_messages(["Hi.", "Ho."]) == [user("Hi."), user("Ho.")]
    assert as_messages([]) == []


def test_messages_and_turns_are_not_changed() -> None:
    turn = penstock.collect(penstock.decode(streams.body("anthropic"), wire="anthropic"))
    assert as_messages([user("Hi."), turn]) == [user("Hi."), Message("assistant", turn.parts)]
    assert as_messages(turn) == [Message("assistant", turn.parts)]
    assert as_messages(item for item in ("Hi.",)) == [user("Hi.")]


# OpenAI's.


def test_a_chat_completions_history_is_read() -> None:
    history = [
        {"role": "developer", "content": "Be brief."},
        {"role": "system", "content": [{"type": "text", "text": "Be"}, {"type": "text", "text": "kind."}]},
        {"role": "user", "content": "Rome?", "name": "ada"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
        {"role": "assistant", "content": "Sunny.", "refusal": None},
    ]
    assert as_messages(history) == [
        system("Be brief."),
        system("Be", "kind."),
        user("Rome?", Opaque(1, "openai-chat", "message", {"name": "ada"})),
        assistant(ROME),
        tool_results(result(ROME, "sunny")),
        assistant("Sunny."),
    ]


def test_chat_completions_user_parts_are_read() -> None:
    content = [
        "plain",
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": PIXEL, "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://x.test/a.jpg?size=9"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBERg==", "filename": "a.pdf"}},
        {"type": "file", "file": {"file_data": "JVBERg==", "filename": "a.pdf"}},
        {"type": "file", "file": {"file_id": "file-abc"}},
        {"type": "input_audio", "input_audio": {"data": "YWJj", "format": "mp3"}},
        {"type": "input_text", "text": "Responses"},
        {"type": "input_image", "image_url": PIXEL, "detail": "auto"},
        {"type": "input_image", "file_id": "file-img"},
        {"type": "input_file", "file_url": "https://x.test/a.pdf"},
    ]
    pdf = File("data:application/pdf;base64,JVBERg==", "application/pdf", "a.pdf")
    assert texts(one({"role": "user", "content": content}).parts) == [
        "plain",
        "Look:",
        Image(PIXEL, "image/png", "", (Opaque(0, "openai-chat", "fields", {"image_url": {"detail": "low"}}),)),
        Image("https://x.test/a.jpg?size=9", "image/jpeg"),
        pdf,
        pdf,
        File("file-abc"),
        File("data:audio/mpeg;base64,YWJj", "audio/mpeg"),
        "Responses",
        Image(PIXEL, "image/png"),
        Image("file-img"),
        File("https://x.test/a.pdf", "application/pdf"),
    ]


def test_a_file_path_in_a_dict_is_not_opened() -> None:
    part = {"type": "image_url", "image_url": {"url": "/etc/passwd"}}
    assert one({"role": "user", "content": [part]}).parts == (Image("/etc/passwd", "image/png"),)


def test_a_chat_completions_answer_with_every_field_is_read() -> None:
    details = [{"type": "reasoning.text", "text": "Hm.", "signature": "abc"}]
    reply = one(
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "Hi."}, {"type": "refusal", "refusal": "No."}],
            "reasoning": "Hm.",
            "reasoning_details": details,
            "refusal": "Never.",
            "tool_calls": [
                {**CALL, "extra_content": {"google": {"thought_signature": "xyz"}}},
                {"id": "call_2", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}},
            ],
        }
    )
    assert reply.parts == (
        Reasoning(0, "Hm."),
        Opaque(0, "openai-chat", "reasoning_fields", ["reasoning"]),
        Opaque(0, "openai-chat", "reasoning_details", details),
        Text(1, "Hi."),
        Refusal(2, "No."),
        Refusal(3, "Never."),
        ToolCall("call_1", "weather", {"city": "Rome"}, '{"city": "Rome"}', block=4),
        Opaque(4, "openai-chat", "extra_content", {"google": {"thought_signature": "xyz"}}),
        ToolCall("call_2", "sql", {"input": "SELECT 1"}, "SELECT 1", kind="custom", block=5),
    )
    assert one({"role": "assistant", "reasoning_content": "Hm."}).parts == (
        Reasoning(0, "Hm."),
        Opaque(0, "openai-chat", "reasoning_fields", ["reasoning_content"]),
    )
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "Hm"}, {"type": "text", "text": "."}]}
    assert one({"role": "assistant", "content": [thinking]}).parts == (Reasoning(0, "Hm."),)


@pytest.mark.parametrize("field", TEXT_FIELDS)
def test_every_field_with_reasoning_reads_back_as_reasoning(field: str) -> None:
    assert Reasoning(0, "Hm.") in one({"role": "assistant", "content": "Yes.", field: "Hm."}).parts


def test_other_values_of_fields_with_reasoning_are_kept() -> None:
    message = {"role": "assistant", "content": "Yes.", "reasoning": "Hm.", "thinking": "No.", "thought": True}
    assert Reasoning(0, "Hm.") in one(message).parts
    assert one(message).parts[-1].data == {"thinking": "No.", "thought": True}  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", sorted(STATE_BLOCKS))
def test_blocks_of_an_anthropic_response_read_back_as_the_same_state(kind: str) -> None:
    message = {"type": "message", "role": "assistant", "content": [{"type": kind, "data": "x"}]}
    kinds = [part.kind for part in one(message).parts if isinstance(part, Opaque)]
    response = {**message, "id": "m", "stop_reason": "end_turn"}
    turn = penstock.collect(penstock.decode(json.dumps(response).encode(), "anthropic"))
    assert kinds == [part.kind for part in turn.parts if isinstance(part, Opaque)] == [kind]


@pytest.mark.parametrize("arguments", ["", None, "null", "{}", {}])
def test_no_arguments_are_the_empty_object(arguments: Any) -> None:
    [call] = one(
        {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": arguments}}]}
    ).parts
    assert isinstance(call, ToolCall)
    assert call.arguments == {}


def test_broken_arguments_are_an_invalid_call() -> None:
    calls = [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": raw}}
        for raw in ('{"x', '{"x":1}{"x":1}')
    ]
    cut, twice = one({"role": "assistant", "tool_calls": calls}).parts
    assert isinstance(cut, ToolCallInvalid)
    assert (cut.why, cut.arguments_raw, cut.repaired) == ("cut", '{"x', None)
    assert isinstance(twice, ToolCallInvalid)
    assert (twice.why, twice.repaired) == ("duplicated", {"x": 1})


def test_results_one_after_another_are_one_message_and_know_their_tools() -> None:
    history = [
        assistant(ROME, ToolCall("call_2", "sql", {}, block=1)),
        {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "1"}]},
        {"role": "tool", "tool_call_id": "call_1", "content": ""},
        {"role": "tool", "tool_call_id": "call_9", "content": "lost", "name": "other"},
    ]
    assert as_messages(history)[1:] == [
        tool_results(
            ToolResult("call_2", "sql", (Text(0, "1"),)),
            ToolResult("call_1", "weather"),
            ToolResult("call_9", "other", (Text(0, "lost"),)),
        )
    ]


def test_function_calls_of_the_older_api_are_read() -> None:
    turns = [
        {"role": "assistant", "content": None, "function_call": {"name": "weather", "arguments": '{"city": "Rome"}'}},
        {"role": "function", "name": "weather", "content": "sunny"},
    ]
    reply, found = as_messages(turns)
    [call] = reply.tool_calls
    assert (call.name, call.arguments) == ("weather", {"city": "Rome"})
    assert found == tool_results(result(call, "sunny"))


# Anthropic's.


def test_an_anthropic_history_is_read() -> None:
    history = [
        {"role": "user", "content": "Rome?"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm.", "signature": "abc"},
                {"type": "thinking", "thinking": "", "signature": "hidden"},
                {"type": "redacted_thinking", "data": "xyz"},
                {"type": "text", "text": "Looking.", "citations": [{"type": "char_location"}]},
                {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"},
                 "caller": {"type": "direct"}},
                {"type": "tool_use", "id": "toolu_2", "name": "roll", "input": {},
                 "caller": {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}},
                {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny"},
                {"type": "tool_result", "tool_use_id": "toolu_2", "is_error": True, "content": [
                    {"type": "text", "text": "It broke:"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "YWJj"}},
                ]},
                {"type": "text", "text": "Well?"},
            ],
        },
    ]  # fmt: skip
    asked, reply, results, again = as_messages(history)
    assert (asked, again) == (user("Rome?"), user("Well?"))
    assert reply.parts == (
        Reasoning(0, "Hm."),
        Opaque(0, "anthropic", "signature", "abc"),
        Opaque(1, "anthropic", "signature", "hidden"),
        Opaque(2, "anthropic", "redacted_thinking", {"type": "redacted_thinking", "data": "xyz"}),
        Text(3, "Looking."),
        Opaque(3, "anthropic", "citations", [{"type": "char_location"}]),
        ToolCall("toolu_1", "weather", {"city": "Rome"}, '{"city": "Rome"}', block=4),
        ToolCall("toolu_2", "roll", {}, block=5),
        Opaque(5, "anthropic", "caller", {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}),
        Opaque(6, "anthropic", "server_tool_use", history[1]["content"][6]),  # type: ignore[index]
    )
    assert results == tool_results(
        ToolResult("toolu_1", "weather", (Text(0, "sunny"),)),
        ToolResult("toolu_2", "roll", (Text(0, "It broke:"), Image("data:image/png;base64,YWJj", "image/png")), True),
    )


def test_anthropic_images_and_documents_are_read() -> None:
    sources = [
        {"type": "image", "source": {"type": "url", "url": "https://x.test/a.png"}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERg=="}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "Grüße"}, "title": "a.txt"},
        {"type": "document", "source": {"type": "url", "url": "https://x.test/a"}},
        {"type": "image", "source": {"type": "file", "file_id": "file_1"}},
    ]
    plain = base64.b64encode("Grüße".encode()).decode()
    assert one({"role": "user", "content": sources}).parts == (
        Image("https://x.test/a.png", "image/png"),
        File("data:application/pdf;base64,JVBERg==", "application/pdf"),
        File(f"data:text/plain;base64,{plain}", "text/plain", "a.txt"),
        File("https://x.test/a", "application/pdf"),
        Image("file_1"),
    )


# The objects of the SDKs.


def test_sdk_objects_are_read() -> None:
    completion = openai.types.chat.ChatCompletionMessage.model_validate(
        {"role": "assistant", "content": "Looking.", "tool_calls": [CALL]}
    )
    text = anthropic.types.TextBlock(type="text", text="Looking.")
    use = anthropic.types.ToolUseBlock(type="tool_use", id="call_1", name="weather", input={"city": "Rome"})
    message = anthropic.types.Message(
        id="msg_1", type="message", role="assistant", model="claude", content=[text, use], stop_reason="tool_use",
        stop_sequence=None, usage=anthropic.types.Usage(input_tokens=1, output_tokens=1),
    )  # fmt: skip
    expected = (Text(0, "Looking."), ToolCall("call_1", "weather", {"city": "Rome"}, '{"city": "Rome"}', block=1))
    for reply in (completion, message, {"role": "assistant", "content": message.content}):
        assert one(reply).parts == expected
    mixed = {"role": "assistant", "content": None, "tool_calls": completion.tool_calls}
    assert [call.arguments for call in one(mixed).tool_calls] == [{"city": "Rome"}]


# What cannot be read.

FILE = {"type": "file", "file": {"file_id": "file-abc"}}


@pytest.mark.parametrize(
    ("what", "complaint"),
    [
        (None, "message: expected a string, a dict or a Message, got NoneType"),
        (["Hi.", 7], r"messages\[1\]: expected .* got int"),
        ([{"content": "Hi."}], r"messages\[0\]: has no role, only: content"),
        ([{"role": "model", "content": "Hi."}], r"messages\[0\]: has Gemini's role 'model'"),
        ([{"role": "user", "content": 7}], r"messages\[0\]\.content: expected a string or a list of parts, got int"),
        (["", {"role": "user", "content": ["a", {"type": "film"}]}], r"messages\[1\]\.content\[1\]: .*'film' cannot"),
        ([{"role": "user", "content": [{"says": "Hi."}]}], r"messages\[0\]\.content\[0\]: a part with says cannot be"),
        ([{"role": "user", "content": [7]}], r"messages\[0\]\.content\[0\]: expected a dict, got int"),
        ([{"role": "user", "content": [{"type": "file", "file": {}}]}], r"content\[0\]: a file needs its file_data"),
        (
            [{"role": "user", "content": [{"type": "document", "source": {"type": "film"}}]}],
            r"content\[0\]: a source of the type 'film' is not supported",
        ),
        (
            [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": 7}]}],
            r"content\[0\]\.tool_use_id: expected a string, got int",
        ),
        (
            [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [{"type": "x"}]}]}],
            r"messages\[0\]\.content\[0\]\.content\[0\]: a part of the type 'x'",
        ),
        ([{"role": "system", "content": [{"type": "image_url"}]}], r"content\[0\]: .* not allowed in a system message"),
        ([{"role": "assistant", "content": [{"type": "audio"}]}], r"content\[0\]: .*'audio' is not a known part"),
        ([{"role": "assistant", "audio": {"id": "a"}}], r"messages\[0\]\.audio: .*transcript"),
        (
            [{"role": "assistant", "tool_calls": [{"id": 7, "function": {"name": "f"}}]}],
            r"messages\[0\]\.tool_calls\[0\]\.id: expected a string, got int",
        ),
        ([{"role": "assistant", "tool_calls": [{"id": "a"}]}], r"tool_calls\[0\]: is neither a function call nor"),
        ([{"role": "assistant", "tool_calls": ["a"]}], r"tool_calls\[0\]: expected a dict, got str"),
        (
            [{"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": ["f"]}}]}],
            r"tool_calls\[0\]\.function\.name: expected a string, got list",
        ),
        (
            [{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {"x": b""}}]}],
            r"content\[0\]: its arguments cannot be written as JSON",
        ),
        ([{"role": "tool", "tool_call_id": 1}], r"messages\[0\]\.tool_call_id: expected a string, got int"),
        (
            [{"role": "assistant", "content": [{"type": "thinking", "thinking": [FILE]}]}],
            r"content\[0\]: its thinking may contain only text",
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_read_raises_with_its_place(what: Any, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        as_messages(what)


def test_every_part_has_a_type() -> None:
    parts = (Image("https://a.example/b.png"), File("file-1"), ToolResult("c", "now"), Text(0, "Hi"))
    assert [part.type for part in parts] == ["image", "file", "tool_result", "text"]

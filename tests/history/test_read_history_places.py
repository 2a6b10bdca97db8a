"""Every message and part that is read has its place in the history, and its wire."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock import Text, ToolCall, ToolResult, Turn, as_messages
from penstock.history.read import read
from penstock.messages import assistant, encode_messages, tool_results, user
from tests.history.test_read_history_wires import BODIES

CALL = {"function": {"name": "f", "arguments": "{}"}}


def places(what: Any) -> list[tuple[str, tuple[str, ...]]]:
    return [(found.message, found.parts) for found in read(what).places]


def test_places_in_chat_completions() -> None:
    history = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Rome?"}, {"type": "text", "text": "Oslo?"}]},
        {
            "role": "assistant",
            "reasoning_content": "Hm.",
            "content": "Looking.",
            "refusal": "No.",
            "tool_calls": [{"id": "a", **CALL}, {"id": "b", **CALL}],
        },
        {"role": "tool", "tool_call_id": "a", "content": "sunny"},
        {"role": "tool", "tool_call_id": "b", "content": "rain"},
        {"role": "user", "content": "Thanks.", "name": "ada"},
    ]
    thought = "messages[2].reasoning_content"
    assert places(history) == [
        ("messages[0]", ("messages[0].content",)),
        ("messages[1]", ("messages[1].content[0]", "messages[1].content[1]")),
        (
            "messages[2]",
            (thought, thought, "messages[2].content", "messages[2].refusal", "messages[2].tool_calls[0]",
             "messages[2].tool_calls[1]"),
        ),
        ("messages[3]", ("messages[3]", "messages[4]")),
        ("messages[5]", ("messages[5].content", "messages[5]")),
    ]  # fmt: skip


def test_places_in_an_anthropic_request() -> None:
    body = {
        "system": [{"type": "text", "text": "Be brief."}],
        "messages": [
            {"role": "user", "content": "Rome?"},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": "sunny"},
                    {"type": "text", "text": "Well?"},
                ],
            },
        ],
    }
    assert places(body) == [
        ("system", ("system[0]",)),
        ("messages[0]", ("messages[0].content",)),
        ("messages[1]", ("messages[1].content[0]",)),
        ("messages[2]", ("messages[2].content[0]",)),
        ("messages[2]", ("messages[2].content[1]",)),
    ]
    assert places({**body, "system": "Be brief."})[0] == ("system", ("system",))


def test_items_of_one_message_keep_their_places() -> None:
    body = {
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Rome?"}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Looking."}]},
            {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "sunny"},
        ],
    }
    assert places(body) == [
        ("instructions", ("instructions",)),
        ("input[0]", ("input[0].content[0]",)),
        ("input[1]", ("input[1]", "input[1]", "input[2].content[0]", "input[3]")),
        ("input[4]", ("input[4]",)),
    ]


def test_places_in_contents_and_in_converse() -> None:
    contents = [
        {"role": "user", "parts": [{"text": "Rome?"}]},
        {"role": "model", "parts": [{"text": "Looking."}, {"functionCall": {"name": "f", "args": {}}}]},
        {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {}}}]},
    ]
    assert places({"contents": contents}) == [
        ("contents[0]", ("contents[0].parts[0]",)),
        ("contents[1]", ("contents[1].parts[0]", "contents[1].parts[1]")),
        ("contents[2]", ("contents[2].parts[0]",)),
    ]
    converse = [
        {"role": "assistant", "content": [{"text": "Hi."}, {"toolUse": {"toolUseId": "a", "name": "f", "input": {}}}]},
        {"role": "user", "content": [{"toolResult": {"toolUseId": "a", "content": [{"text": "1"}]}}, {"text": "So?"}]},
    ]
    assert places(converse) == [
        ("messages[0]", ("messages[0].content[0]", "messages[0].content[1]")),
        ("messages[1]", ("messages[1].content[0]",)),
        ("messages[1]", ("messages[1].content[1]",)),
    ]


def test_places_in_our_own_messages() -> None:
    ours = [user("Rome?"), assistant("Looking.", ToolCall("a", "f", {}, block=1))]
    expected = [
        ("messages[0]", ("messages[0].parts[0]",)),
        ("messages[1]", ("messages[1].parts[0]", "messages[1].parts[1]")),
    ]
    stored = json.loads(encode_messages(ours))
    for what in (ours, {"messages": ours}, stored, stored["messages"]):
        assert places(what) == expected
    assert places(["Hi.", Turn((Text(0, "Ho."),))]) == [
        ("messages[0]", ("messages[0]",)),
        ("messages[1]", ("messages[1].parts[0]",)),
    ]
    assert places("Hi.") == [("message", ("message",))]


@pytest.mark.parametrize("wire", BODIES)
def test_each_part_has_a_place(wire: str) -> None:
    reading = read(BODIES[wire])
    assert reading.messages == as_messages(BODIES[wire])
    assert [len(found.parts) for found in reading.places] == [len(message.parts) for message in reading.messages]
    assert reading.wire == wire
    assert not reading.is_ours
    assert not reading.is_continued


OURS = [user("Rome?"), assistant(ToolCall("a", "f", {})), tool_results(ToolResult("a", "f")), user()]


@pytest.mark.parametrize(
    "what",
    [
        "Hi.", [], ["Hi."], user("Hi."), OURS, iter(OURS), ["Hi.", Turn((Text(0, "Ho."),)), user("Hi.")],
        {"messages": OURS}, json.loads(encode_messages(OURS)), json.loads(encode_messages(OURS))["messages"],
        [json.loads(encode_messages([user()]))["messages"][0]],
    ],
)  # fmt: skip
def test_our_own_messages_have_no_wire(what: Any) -> None:
    reading = read(what)
    assert (reading.wire, reading.is_ours) == ("", True)


@pytest.mark.parametrize(
    ("what", "wire"),
    [
        ([{"role": "user", "content": "Hi."}], "openai-chat"),
        ([user("Hi."), {"role": "assistant", "content": "Ho."}], "openai-chat"),
        ({"input": "Hi."}, "openai-responses"),
        ({"contents": "Hi."}, "gemini"),
        ({"contents": []}, "gemini"),
        ({"system": "Be brief.", "messages": [user("Hi.")]}, "anthropic"),
        ([{"role": "user", "parts": []}, {"role": "model", "parts": [{"text": "Hi."}]}], "gemini"),
        ([{"role": "user", "content": "Hi."}, {"role": "model", "parts": [{"text": "Hi."}]}], ""),
        (
            [
                {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
                {"role": "assistant", "tool_calls": [{"id": "b", **CALL}]},
            ],
            "",
        ),
    ],
)
def test_other_histories_have_a_wire_unless_they_are_mixed(what: Any, wire: str) -> None:
    reading = read(what)
    assert (reading.wire, reading.is_ours) == (wire, False)


@pytest.mark.parametrize(
    ("beside", "is_continued"),
    [
        ({}, False), ({"previous_response_id": ""}, False), ({"previous_response_id": None}, False),
        ({"previous_response_id": "resp_1"}, True), ({"conversation": "conv_1"}, True),
        ({"conversation": {"id": "conv_1"}}, True), ({"conversation": {}}, False),
    ],
)  # fmt: skip
def test_a_history_that_continues_a_stored_one(beside: dict[str, Any], is_continued: bool) -> None:
    assert read({"input": "Hi.", **beside}).is_continued == is_continued

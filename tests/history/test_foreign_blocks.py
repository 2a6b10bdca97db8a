"""Blocks of one vendor go back to it unchanged, and become text for other vendors."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock import Image, Message, Opaque, Text, UsageError, as_messages, export_messages
from penstock.messages import assistant, decode_messages, encode_messages, result, tool_results, user
from penstock.wires import WIRES
from tests.history.test_read_history import PIXEL, ROME

Json = dict[str, Any]

FACT = "the fact is 42"
PICTURED = "(A picture was here"
FOUND = {
    "type": "search_result",
    "source": "https://x.test",
    "title": "Facts",
    "content": [{"type": "text", "text": FACT}],
}
PICTURE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
CONVERSES = {"searchResult": {"source": "https://x.test", "title": "Facts", "content": [{"text": FACT}]}}


def document(content: Any) -> Json:
    return {"type": "document", "title": "Facts", "source": {"type": "content", "content": content}}


SHOWN: dict[str, tuple[str, Json]] = {
    "search result": ("anthropic", FOUND),
    "document": ("anthropic", document(FACT)),
    "document in parts": ("anthropic", document([{"type": "text", "text": "Well,"}, {"type": "text", "text": FACT}])),
    "converse's search result": ("bedrock", CONVERSES),
    "cohere's document": ("cohere", {"type": "document", "document": {"data": FACT}}),
}
"""Blocks that the user may show, each with its wire."""


def others(wire: str) -> list[Any]:
    return [other for other in WIRES if other != wire]


def words(body: Json) -> str:
    return json.dumps(body, ensure_ascii=False)


@pytest.mark.parametrize(("wire", "block"), SHOWN.values(), ids=list(SHOWN))
def test_user_blocks_go_back_whole_and_as_text_to_others(wire: Any, block: Json) -> None:
    history = [{"role": "user", "content": [block]}]
    messages = as_messages(history)
    assert FACT in messages[0].text
    assert export_messages(messages, wire)["messages"] == history
    assert decode_messages(encode_messages(messages)) == messages
    for other in others(wire):
        assert words(export_messages(messages, other)).count(FACT) == 1


RESULTS: dict[str, tuple[str, Json, Json]] = {
    "anthropic": (
        "anthropic",
        {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f", "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [FOUND, document(FACT)]}]},
    ),
    "bedrock": (
        "bedrock",
        {"role": "assistant", "content": [{"toolUse": {"toolUseId": "a", "name": "f", "input": {}}}]},
        {
            "role": "user",
            "content": [
                {"toolResult": {"toolUseId": "a", "content": [CONVERSES, {"text": FACT}], "status": "success"}}
            ],
        },
    ),
}


@pytest.mark.parametrize(("wire", "call", "answer"), RESULTS.values(), ids=list(RESULTS))
def test_result_blocks_go_back_whole_and_as_text_to_others(wire: Any, call: Json, answer: Json) -> None:
    messages = as_messages([call, answer])
    assert messages[1].results[0].text.count(FACT) == 2
    assert export_messages(messages, wire)["messages"] == [call, answer]
    for other in others(wire):
        assert words(export_messages(messages, other)).count(FACT) == 2


def test_images_in_a_document_go_to_other_vendors() -> None:
    history = [{"role": "user", "content": [document([{"type": "text", "text": FACT}, PICTURE]), document([PICTURE])]}]
    messages = as_messages(history)
    assert [part.url for part in messages[0].parts if isinstance(part, Image)] == [PIXEL, PIXEL]
    assert export_messages(messages, "anthropic")["messages"] == history
    assert decode_messages(encode_messages(messages)) == messages
    for other in others("anthropic"):
        assert words(export_messages(messages, other)).count("iVBORw0KGgo=") == 2


def test_a_guarded_image_goes_to_other_vendors() -> None:
    guarded = {"guardContent": {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}}}
    history = [{"role": "user", "content": [{"text": "Look."}, guarded]}]
    assert export_messages(history, "bedrock")["messages"] == history
    for other in others("bedrock"):
        assert words(export_messages(history, other)).count("iVBORw0KGgo=") == 1


def test_cache_marks_of_a_system_message_stay_on_their_wire() -> None:
    body = {"system": [{"text": "Be brief."}, CONVERSES, {"cachePoint": {"type": "default"}}], "messages": []}
    assert export_messages(body, "bedrock")["system"] == body["system"]
    assert FACT in words(export_messages(body, "anthropic"))


# What providers found, ran and made themselves.

HOSTED: dict[str, tuple[str, Json, str]] = {
    "web search": (
        "anthropic",
        {"type": "web_search_tool_result", "tool_use_id": "s", "content": [
            {"type": "web_search_result", "title": FACT, "url": "https://x.test", "encrypted_content": "ENCRYPTED"}]},
        FACT,
    ),
    "web fetch": (
        "anthropic",
        {"type": "web_fetch_tool_result", "tool_use_id": "s", "content": {
            "type": "web_fetch_result", "url": "https://x.test", "content": {
                "type": "document", "source": {"type": "text", "media_type": "text/plain", "data": FACT}}}},
        FACT,
    ),
    "code": (
        "anthropic",
        {"type": "bash_code_execution_tool_result", "tool_use_id": "s", "content": {
            "type": "bash_code_execution_result", "stdout": FACT, "stderr": "", "return_code": 0, "content": []}},
        FACT,
    ),
    "a viewed file": (
        "anthropic",
        {"type": "text_editor_code_execution_tool_result", "tool_use_id": "s", "content": {
            "type": "text_editor_code_execution_view_result", "file_type": "text", "content": FACT}},
        FACT,
    ),
    "another server's tool": (
        "anthropic",
        {"type": "mcp_tool_result", "tool_use_id": "s", "is_error": False, "content": [{"type": "text", "text": FACT}]},
        FACT,
    ),
    "a summary": ("anthropic", {"type": "compaction", "content": FACT}, FACT),
    "gemini's code": ("gemini", {"executableCode": {"language": "PYTHON", "code": FACT}}, FACT),
    "what it printed": ("gemini", {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": FACT}}, FACT),
    "gemini's tool": ("gemini", {"toolResponse": {"toolType": "MAPS", "response": {"places": [FACT]}}}, FACT),
    "gemini's picture": ("gemini", {"inlineData": {"mimeType": "image/png", "data": "ENCRYPTED"}}, PICTURED),
    "gemini's file": ("gemini", {"fileData": {"mimeType": "video/mp4", "fileUri": "ENCRYPTED"}}, "(A file was here"),
    "bedrock's picture": ("bedrock", {"image": {"format": "png", "source": {"bytes": "ENCRYPTED"}}}, PICTURED),
    "bedrock's citations": (
        "bedrock",
        {"citationsContent": {"content": [{"text": "Well,"}, {"text": FACT}], "citations": [{"title": "ENCRYPTED"}]}},
        FACT,
    ),
    "files that were searched": (
        "openai-responses",
        {"type": "file_search_call", "id": "fs_1", "queries": ["?"], "results": [{"filename": "a.txt", "text": FACT}]},
        FACT,
    ),
    "the interpreter": (
        "openai-responses",
        {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "outputs": [{"type": "logs", "logs": FACT}]},
        FACT,
    ),
    "a plot": (
        "openai-responses",
        {"type": "code_interpreter_call", "id": "ci_1", "code": "1", "outputs": [
            {"type": "image", "url": "data:image/png;base64,ENCRYPTED"}]},
        PICTURED,
    ),
    "a remote tool": (
        "openai-responses",
        {"type": "mcp_call", "id": "mcp_1", "server_label": "x", "name": "f", "arguments": "{}", "output": FACT},
        FACT,
    ),
    "a picture that was made": (
        "openai-responses",
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": "ENCRYPTED"},
        PICTURED,
    ),
}  # fmt: skip


CALLS: dict[str, Json] = {
    "mcp_tool_result": {"type": "mcp_tool_use", "id": "s", "name": "f", "server_name": "x", "input": {}},
}
"""The calls of hosted results that are not `server_tool_use`. A result without its call is not sent back."""


def answer_of(wire: str, block: Json) -> Json:
    kind = str(block.get("type"))
    call = CALLS.get(kind)
    if call is None and kind.endswith("_tool_result"):
        call = {"type": "server_tool_use", "id": "s", "name": kind.removesuffix("_tool_result"), "input": {}}
    blocks = [block] if call is None else [call, block]
    match wire:
        case "gemini":
            return {"contents": [{"role": "model", "parts": [block]}]}
        case "openai-responses":
            return {"input": blocks}
        case _:
            return {"messages": [{"role": "assistant", "content": blocks}]}


@pytest.mark.parametrize(("wire", "block", "text"), HOSTED.values(), ids=list(HOSTED))
def test_hosted_blocks_go_back_whole_and_as_text_to_others(wire: Any, block: Json, text: str) -> None:
    body = answer_of(wire, block)
    history = as_messages(body)
    assert [message.text for message in history] == [""]  # it is not what the model said
    assert export_messages(history, wire) == body
    for other in others(wire):
        written = words(export_messages(history, other))
        assert written.count(text) == 1
        assert "ENCRYPTED" not in written


UNTOLD = [
    ("anthropic", "redacted_thinking", {"type": "redacted_thinking", "data": "x"}),
    ("anthropic", "container", {"id": "x", "expires_at": "x"}),
    ("anthropic", "server_tool_use", {"type": "server_tool_use", "id": "x", "name": "x", "input": {"code": "x"}}),
    ("openai-responses", "reasoning", {"type": "reasoning", "id": "x", "summary": [{"text": "x"}], "content": "x"}),
    ("openai-responses", "item_reference", {"type": "item_reference", "id": "x"}),
    ("openai-responses", "mcp_list_tools", {"type": "mcp_list_tools", "tools": [{"title": "x"}]}),
    ("bedrock", "cachePoint", {"cachePoint": {"type": "default"}}),
    ("openai-chat", "message", {"title": "x"}),
]


@pytest.mark.parametrize(("wire", "kind", "data"), UNTOLD, ids=[kind for _, kind, _ in UNTOLD])
def test_encrypted_and_technical_blocks_stay_on_their_wire(wire: Any, kind: str, data: Json) -> None:
    reply = Message("assistant", (Text(0, "Hi."), Opaque(1, wire, kind, data)))
    for other in others(wire):
        assert export_messages([reply], other) == export_messages([assistant("Hi.")], other)


# Texts stay apart.

TEXTS = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]


def result_in(wire: Any, content: Any) -> Any:
    call = {"role": "assistant", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}
    body = export_messages([call, {"role": "tool", "tool_call_id": "a", "content": content}], wire)
    match wire:
        case "gemini":
            return body["contents"][1]["parts"][0]["functionResponse"]["response"]["result"]
        case "openai-responses":
            return body["input"][1]["output"]
        case "anthropic":
            return body["messages"][1]["content"][0]["content"]
        case "bedrock":
            return body["messages"][1]["content"][0]["toolResult"]["content"]
        case _:
            return body["messages"][1]["content"]


@pytest.mark.parametrize(
    ("wire", "written"),
    [
        ("openai-chat", TEXTS),
        ("anthropic", TEXTS),
        ("openai-responses", [{"type": "input_text", "text": "one"}, {"type": "input_text", "text": "two"}]),
        ("bedrock", [{"text": "one"}, {"text": "two"}]),
        ("gemini", "one\ntwo"),
        ("ollama", "one\ntwo"),
        ("cohere", [{"type": "document", "document": {"data": {"text": text}}} for text in ("one", "two")]),
    ],
)
def test_texts_of_a_result_are_not_joined(wire: str, written: Any) -> None:
    assert result_in(wire, TEXTS) == written
    alone = [{"text": "one"}] if wire == "bedrock" else "one"
    assert result_in(wire, "one") == result_in(wire, TEXTS[:1]) == alone


def test_a_provider_with_known_fields_gets_a_string() -> None:
    messages = [assistant(ROME), tool_results(result(ROME, "one", "two"))]
    assert export_messages(messages, "openai-chat", provider="deepseek")["messages"][1]["content"] == "one\ntwo"


@pytest.mark.parametrize(
    ("wire", "content"),
    [("openai-chat", TEXTS), ("cohere", TEXTS), ("anthropic", TEXTS), ("ollama", "one\ntwo")],
)
def test_texts_of_a_user_message_are_not_joined(wire: Any, content: Any) -> None:
    assert export_messages([user("one", "two")], wire)["messages"][0]["content"] == content


def test_texts_of_an_answer_are_joined() -> None:
    reply = [user("Hi."), assistant("o", "ne")]
    assert [export_messages(reply, wire)["messages"][1]["content"] for wire in ("openai-chat", "ollama")] == ["one"] * 2


# Where things stood, and what to give instead.

ZIP = {"type": "file", "file": {"file_data": "data:application/zip;base64,AAAA", "filename": "a.zip"}}


@pytest.mark.parametrize("wire", ["anthropic", "bedrock", "gemini", "ollama", "cohere"])
def test_a_file_that_cannot_be_exported_raises_with_its_place(wire: Any) -> None:
    history = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi."},
        {"role": "user", "content": [{"type": "text", "text": "Look."}, ZIP]},
    ]
    with pytest.raises(UsageError, match=r"^messages\[2\]\.content\[1\]: File"):
        export_messages(history, wire)


@pytest.mark.parametrize("what", [{}, {"choices": []}, {"candidates": []}])
def test_an_object_that_is_not_a_message_raises_with_advice(what: Any) -> None:
    with pytest.raises(UsageError, match=r"send messages with a role .* request body .* response body"):
        as_messages(what)


@pytest.mark.parametrize("what", [b"[]", bytearray(b"[]"), [b"Hi."]])
def test_bytes_raise_and_name_read_history(what: Any) -> None:
    with pytest.raises(UsageError, match="read the bytes of a file with read_history"):
        as_messages(what)

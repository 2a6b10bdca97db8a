"""Requests to Anthropic, Bedrock, Gemini, Ollama and Cohere, validated by the vendors' own types."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

import penstock
from penstock import Message, Opaque, Reasoning, Text, ToolCall, ToolCallInvalid, UsageError
from penstock.declarations import ToolDeclaration
from penstock.messages import assistant, file, image, result, tool_results, user
from penstock.wires import all_facts, find_encoder
from penstock.wires.shared.encode_request.hosted_calls import HostedCalls
from penstock.wires.shared.request import Request
from tests.cases import each
from tests.judges import (
    CITY,
    HISTORY,
    MODELS,
    PICTURE,
    ROME,
    WEATHER,
    WIRES,
    answer,
    assistant_content,
    body,
    sent,
)
from tests.support import NO_CORPUS, SHARED, decode_pieces, vectors

SETTINGS = {"max_tokens": 900, "temperature": 0.5, "top_p": 0.9, "top_k": 7, "stop": "END"}

# The main shapes.

BODIES: dict[str, dict[str, Any]] = {
    "anthropic": {
        "model": "claude-haiku-4-5",
        "max_tokens": 900,
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": [
                {"type": "text", "text": "Where is this?"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw=="}},
            ]},
            {"role": "assistant", "content": [
                {"type": "text", "text": "Let me look."},
                {"type": "tool_use", "id": "call_1", "name": "weather", "input": {"city": "Rome"}},
                {"type": "tool_use", "id": "call_2", "name": "weather", "input": {"city": "Oslo"}},
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "call_1", "content": "sunny"},
                {"type": "tool_result", "tool_use_id": "call_2", "content": "no such city", "is_error": True},
                {"type": "text", "text": "And now?"},
            ]},
        ],
        "tools": [{"name": "weather", "description": "The weather in a city.", "input_schema": CITY}],
        "tool_choice": {"type": "any"},
        "temperature": 0.5, "top_p": 0.9, "top_k": 7, "stop_sequences": ["END"], "stream": True,
    },
    "bedrock": {
        "system": [{"text": "Be brief."}],
        "messages": [
            {"role": "user", "content": [
                {"text": "Where is this?"}, {"image": {"format": "png", "source": {"bytes": "iVBORw=="}}},
            ]},
            {"role": "assistant", "content": [
                {"text": "Let me look."},
                {"toolUse": {"toolUseId": "call_1", "name": "weather", "input": {"city": "Rome"}}},
                {"toolUse": {"toolUseId": "call_2", "name": "weather", "input": {"city": "Oslo"}}},
            ]},
            {"role": "user", "content": [
                {"toolResult": {"toolUseId": "call_1", "content": [{"text": "sunny"}], "status": "success"}},
                {"toolResult": {"toolUseId": "call_2", "content": [{"text": "no such city"}], "status": "error"}},
                {"text": "And now?"},
            ]},
        ],
        "toolConfig": {
            "tools": [{"toolSpec": {
                "name": "weather", "description": "The weather in a city.", "inputSchema": {"json": CITY}}}],
            "toolChoice": {"any": {}},
        },
        "inferenceConfig": {"maxTokens": 900, "temperature": 0.5, "topP": 0.9, "stopSequences": ["END"]},
        "additionalModelRequestFields": {"top_k": 7},
    },
    "gemini": {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "user", "parts": [
                {"text": "Where is this?"}, {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}]},
            {"role": "model", "parts": [
                {"text": "Let me look."},
                {"functionCall": {"name": "weather", "args": {"city": "Rome"}}},
                {"functionCall": {"name": "weather", "args": {"city": "Oslo"}}},
            ]},
            {"role": "user", "parts": [
                {"functionResponse": {"name": "weather", "response": {"result": "sunny"}}},
                {"functionResponse": {"name": "weather", "response": {"error": "no such city"}}},
            ]},
            {"role": "user", "parts": [{"text": "And now?"}]},
        ],
        "tools": [{"functionDeclarations": [
            {"name": "weather", "description": "The weather in a city.", "parametersJsonSchema": CITY}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY"}},
        "generationConfig": {
            "maxOutputTokens": 900, "temperature": 0.5, "topP": 0.9, "topK": 7, "stopSequences": ["END"]},
    },
    "ollama": {
        "model": "qwen3",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Where is this?", "images": ["iVBORw=="]},
            {"role": "assistant", "content": "Let me look.", "tool_calls": [
                {"id": "call_1", "function": {"name": "weather", "arguments": {"city": "Rome"}}},
                {"id": "call_2", "function": {"name": "weather", "arguments": {"city": "Oslo"}}},
            ]},
            {"role": "tool", "content": "sunny", "tool_name": "weather", "tool_call_id": "call_1"},
            {"role": "tool", "content": "no such city", "tool_name": "weather", "tool_call_id": "call_2"},
            {"role": "user", "content": "And now?"},
        ],
        "tools": [{"type": "function", "function": {
            "name": "weather", "description": "The weather in a city.", "parameters": CITY}}],
        "options": {"num_predict": 900, "temperature": 0.5, "top_p": 0.9, "top_k": 7, "stop": ["END"]},
        "stream": True,
    },
    "cohere": {
        "model": "command-a-03-2025",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": [
                {"type": "text", "text": "Where is this?"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
            ]},
            {"role": "assistant", "tool_plan": "Let me look.", "tool_calls": [
                {"id": "call_1", "type": "function", "function": {
                    "name": "weather", "arguments": '{"city":"Rome"}'}},
                {"id": "call_2", "type": "function", "function": {
                    "name": "weather", "arguments": '{"city":"Oslo"}'}},
            ]},
            {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
            {"role": "tool", "tool_call_id": "call_2", "content": "no such city"},
            {"role": "user", "content": "And now?"},
        ],
        "tools": [{"type": "function", "function": {
            "name": "weather", "description": "The weather in a city.", "parameters": CITY}}],
        "tool_choice": "REQUIRED",
        "max_tokens": 900, "temperature": 0.5, "p": 0.9, "k": 7, "stop_sequences": ["END"], "stream": True,
    },
}  # fmt: skip


@pytest.mark.parametrize("wire", WIRES)
def test_a_history_with_calls_is_encoded_for_every_wire(wire: str) -> None:
    assert body(wire, *HISTORY, tools=(WEATHER,), tool_choice="required", options=SETTINGS) == BODIES[wire]


@pytest.mark.parametrize(
    ("wire", "model", "streamed", "whole"),
    [
        ("anthropic", "claude-x", "/messages", "/messages"),
        ("bedrock", "a.b:0/c", "/model/a.b%3A0%2Fc/converse-stream", "/model/a.b%3A0%2Fc/converse"),
        ("gemini", "g", "/models/g:streamGenerateContent?alt=sse", "/models/g:generateContent"),
        ("gemini", "tunedModels/t", "/tunedModels/t:streamGenerateContent?alt=sse", "/tunedModels/t:generateContent"),
        ("ollama", "q:8b", "/api/chat", "/api/chat"),
        ("cohere", "command-x", "/v2/chat", "/v2/chat"),
    ],
)
def test_the_path_depends_on_model_and_streaming(wire: str, model: str, streamed: str, whole: str) -> None:
    assert sent(wire, model=model).path == streamed
    written = sent(wire, model=model, is_streaming=False)
    assert written.path == whole
    assert not written.body.get("stream")


# A response is sent back to its vendor unchanged.


def turn_of(vector: Any) -> penstock.Turn:
    return penstock.collect(decode_pieces(vector.wire, [vector.body()]))


def hosted_orphans(turn: penstock.Turn) -> list[Opaque]:
    """The hosted results without their call, which are left out: of abbreviated vectors and redacted recordings."""
    return list(HostedCalls([Message("assistant", turn.parts)], all_facts()).orphans.values())


def can_go_back(vector: Any) -> bool:
    """Whether the response is complete and has no unknown parts."""
    turn = turn_of(vector)
    return bool(turn.parts) and not turn.unknown and not turn.invalid_calls and not hosted_orphans(turn)


ANSWERS = [vector for vector in vectors() if vector.wire in WIRES and vector.whole and can_go_back(vector)]


@each("vector", ANSWERS, ids=lambda vector: vector.name)
def test_a_response_goes_back_unchanged(vector: Any) -> None:
    turn = turn_of(vector)
    model = "command-a-reasoning" if vector.wire == "cohere" else ""
    request = Request(model=model, messages=(user("Hi"), Message("assistant", turn.parts)))
    written = find_encoder(vector.wire)(request, frozenset()).body  # not validated: vectors are abbreviated
    skipped = {"gemini": ("id",), "ollama": ("id", "index")}.get(vector.wire, ())  # QUIRKS 144, 157: generated ids
    assert alike(assistant_content(vector.wire, written), skipped) == alike(
        content_of(vector.wire, vector.whole), skipped
    )


def content_of(wire: str, whole: dict[str, Any]) -> Any:
    """The message of a response, without what need not be sent back."""
    match wire:
        case "anthropic":
            return whole["content"]
        case "bedrock":
            return whole["output"]["message"]["content"]
        case "gemini":
            parts = whole["candidates"][0]["content"]["parts"]
            return [part for part in parts if not part.get("thought") or "thoughtSignature" in part]
        case _:
            return whole["message"]


def alike(value: Any, skipped: tuple[str, ...]) -> Any:
    """The value without nulls and without some fields; Cohere's `null` for no arguments is an object (QUIRKS 34)."""
    if isinstance(value, list):
        return [alike(item, skipped) for item in value]
    if not isinstance(value, dict):
        return "{}" if value == "null" else value
    return {key: alike(item, skipped) for key, item in value.items() if item is not None and key not in skipped}


def recordings() -> Iterator[Any]:
    names = {"bedrock-converse": "bedrock", "bedrock-invoke-anthropic": "anthropic"}
    for meta in sorted((SHARED / "corpus" / "cases").glob("*/meta.json")):
        wire = json.loads(meta.read_text())["wire"]
        if names.get(wire, wire) in WIRES:
            yield pytest.param(names.get(wire, wire), meta.parent, id=meta.parent.name)


@pytest.mark.skipif(not (SHARED / "corpus").is_dir(), reason=NO_CORPUS)
@each(("wire", "case"), list(recordings()))
def test_state_of_a_recorded_response_goes_back_in_its_place(wire: str, case: Any) -> None:
    turn = penstock.collect(decode_pieces(wire, [(case / "body").read_bytes()]))
    results = tool_results(*(result(call, "done") for call in turn.tool_calls))
    written = body(wire, user("Hi"), Message("assistant", turn.parts), results)
    places = list(states_in(wire, assistant_content(wire, written)))
    orphans = hosted_orphans(turn)
    for part in turn.parts:
        if isinstance(part, Opaque) and part.kind != "container" and part not in orphans:
            owner = next((other for other in turn.parts if other.block == part.block and other is not part), None)
            assert (part.data, content_of_part(owner)) in places
            places.remove((part.data, content_of_part(owner)))
    assert places == []


def content_of_part(part: Any) -> Any:
    match part:
        case Text() | Reasoning():
            return part.text
        case ToolCall():
            return part.name, part.arguments
        case Opaque():
            return part.data
        case _:
            return ""


def states_in(wire: str, written: Any) -> Iterator[tuple[Any, Any]]:
    """The states in an assistant message as it is sent, each with the content of its part."""
    for part in [written] if isinstance(written, dict) else written:
        match part:
            case {"type": "thinking", "thinking": text, "signature": signature}:
                yield signature, text
            case {"type": "text", "text": text, "citations": citations}:
                yield citations, text
            case {"text": _} if "thoughtSignature" not in part:
                pass
            case {"type": "tool_use", "name": name, "input": input, **rest}:
                yield from ((rest[key], (name, input)) for key in ("caller", "toolset_name") if key in rest)
            case {"type": str()}:
                yield part, ""
            case {"reasoningContent": {"reasoningText": {"text": text, "signature": signature}}}:
                yield signature, text
            case {"reasoningContent": {"redactedContent": data}}:
                yield data, ""
            case {"functionCall": call, "thoughtSignature": signature}:
                yield signature, (call["name"], call["args"])
            case {"text": text, "thoughtSignature": signature}:
                yield signature, text
            case {"tool_plan": plan}:
                yield plan, ""
            case {"thoughtSignature": signature, **rest}:
                yield from ((signature, rest), (rest, signature))
            case {"functionCall": _} | {"toolUse": _} | {"role": _}:
                pass
            case _:
                yield part, ""


@pytest.mark.parametrize("wire", WIRES)
def test_state_and_reasoning_of_other_vendors_are_left_out(wire: str) -> None:
    other = "openai-responses"
    parts = [Reasoning(0, "Hm."), Opaque(0, other, "signature", "c2ln"), Opaque(1, other, "tool_plan", "c2xu")]
    written = answer(wire, *parts, Text(2, "So."))
    assert "c2ln" not in json.dumps(written)
    assert "c2xu" not in json.dumps(written)
    assert ("Hm." in json.dumps(written)) == (wire == "ollama")  # whose thoughts are not signed


# Ollama and Cohere.


def test_ollama_gets_its_thinking_back() -> None:
    assert answer("ollama", Reasoning(0, "Hm."), Text(1, "So.")) == {
        "role": "assistant", "content": "So.", "thinking": "Hm.",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("reasoning", "think"),
    [("high", "high"), ("minimal", "low"), ("xhigh", "max"), (True, True), (900, True), (0, False)],
)
def test_ollama_thinking_is_a_level_or_a_switch(reasoning: Any, think: Any) -> None:
    assert body("ollama", options={"reasoning": reasoning})["think"] == think


def test_ollama_declares_only_the_tools_that_may_be_used() -> None:
    tools = (WEATHER, ToolDeclaration("other"))
    assert "tools" not in body("ollama", tools=tools, tool_choice="none")
    [only] = body("ollama", tools=tools, tool_choice="other")["tools"]
    assert only["function"] == {"name": "other", "parameters": {"type": "object", "properties": {}}}


def test_cohere_plans_go_back_and_thinking_to_reasoning_models() -> None:
    parts = (Reasoning(0, "Hm."), Opaque(1, "cohere", "tool_plan", "I look."), ROME)
    plain, thinking = answer("cohere", *parts), answer("cohere", *parts, options={"reasoning": "low"})
    assert plain["tool_plan"] == "I look."
    assert "content" not in plain
    assert thinking["content"] == [{"type": "thinking", "thinking": "Hm."}]
    assert answer("cohere", Reasoning(0, "Hm.")) == {}


def test_cohere_results_of_several_texts_are_documents() -> None:
    done = tool_results(result(ROME, "one", "two"))
    assert body("cohere", user("Hi"), assistant(ROME), done)["messages"][-1]["content"] == [
        {"type": "document", "document": {"data": {"text": "one"}}},
        {"type": "document", "document": {"data": {"text": "two"}}},
    ]


@pytest.mark.parametrize(
    ("choice", "expected", "names"),
    [("auto", None, ["weather", "other"]), ("none", "NONE", ["weather", "other"]), ("other", "REQUIRED", ["other"])],
)
def test_cohere_requires_a_tool_by_declaring_only_it(choice: str, expected: str | None, names: list[str]) -> None:
    written = body("cohere", tools=(WEATHER, ToolDeclaration("other")), tool_choice=choice)
    assert written.get("tool_choice") == expected
    assert [tool["function"]["name"] for tool in written["tools"]] == names


@pytest.mark.parametrize(
    ("reasoning", "thinking"),
    [("low", {"type": "enabled", "token_budget": 2_048}), ("high", {"type": "enabled"}), ("off", {"type": "disabled"})],
)
def test_cohere_thinking_has_a_budget(reasoning: str, thinking: Any) -> None:
    assert body("cohere", options={"reasoning": reasoning})["thinking"] == thinking


def test_cohere_is_strict_if_all_tools_are() -> None:
    strict = ToolDeclaration("a", extra={"strict": True})
    assert body("cohere", tools=(strict,))["strict_tools"] is True
    assert "strict_tools" not in body("cohere", tools=(strict, WEATHER))


# All of them.


@pytest.mark.parametrize("wire", WIRES)
def test_free_text_becomes_an_argument_without_custom_tools(wire: str) -> None:
    call = ToolCall("1", "sql", {"input": "SELECT 1"}, "SELECT 1", kind="custom")
    written = json.dumps(body(wire, user("Hi"), assistant(call), tool_results(result(call, "1"))))
    assert '"input": "SELECT 1"' in written or '{\\"input\\":\\"SELECT 1\\"}' in written


@pytest.mark.parametrize("wire", WIRES)
def test_an_invalid_call_goes_back_only_with_a_result(wire: str) -> None:
    cut = ToolCallInvalid(0, "1", "weather", '{"city": "Ro', "cut")
    assert "weather" not in json.dumps(answer(wire, cut, Text(1, "So.")))
    written = body(wire, user("Hi"), assistant(cut), tool_results(result(cut, "cut off", is_error=True)))
    assert "weather" in json.dumps(assistant_content(wire, written))


@pytest.mark.parametrize("wire", WIRES)
def test_extra_is_merged_into_the_body(wire: str) -> None:
    request = Request(model=MODELS[wire], messages=(user("Hi"),), extra={"service_tier": "auto"})
    assert find_encoder(wire)(request, frozenset()).body["service_tier"] == "auto"


@pytest.mark.parametrize("wire", WIRES)
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"options": {"reasoning": "a lot"}}, "one of none, minimal, low"),
        ({"options": {"reasoning": -1}}, "a number of tokens"),
        ({"options": {"temprature": 1}}, "unknown option 'temprature'"),
        ({"tools": (WEATHER,), "tool_choice": "wether"}, "weather"),
    ],
)
def test_a_wrong_option_raises_with_the_valid_ones(wire: str, fields: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        body(wire, **fields)


@pytest.mark.parametrize(
    ("wire", "part"),
    [
        ("anthropic", file(b"x", "application/zip")),
        ("anthropic", image("s3://bucket/a.png")),
        ("bedrock", image("https://example.org/a.png")),
        ("gemini", file("file-011x")),
        ("ollama", image("https://example.org/a.png")),
        ("ollama", file(b"x", "application/pdf")),
        ("cohere", file(b"x", "application/pdf")),
    ],
)
def test_media_that_a_provider_does_not_accept_raise_before_anything_is_sent(wire: str, part: Any) -> None:
    with pytest.raises(UsageError, match=r"accepts|pass its bytes"):
        body(wire, user(part))


@pytest.mark.parametrize("wire", ["anthropic", "bedrock", "cohere"])
def test_images_in_an_assistant_message_raise(wire: str) -> None:
    with pytest.raises(UsageError, match="put it into a user message"):
        body(wire, user("Hi"), assistant(PICTURE))

"""Requests to Gemini: signatures on their parts, responses in order, the rules of Gemini 3."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Message, Opaque, Reasoning, Text, ToolCall
from penstock.declarations import ToolDeclaration, read_declarations
from penstock.messages import assistant, file, image, result, tool_results, user
from tests.judges import OSLO, PICTURE, ROME, WEATHER, answer, body

SIGNED = Opaque(1, "gemini", "thought_signature", "c2ln")


def test_gemini_signatures_stay_on_their_parts() -> None:
    code = {"executableCode": {"code": "1", "language": "PYTHON"}}
    parts = [
        Reasoning(0, "Hm."), Opaque(0, "gemini", "thought_signature", "MA=="), ROME, SIGNED, OSLO,
        Opaque(3, "gemini", "executableCode", code), Opaque(3, "gemini", "thought_signature", "Mw=="),
        Text(4, "So."), Opaque(4, "gemini", "thought_signature", "NA=="),
        Opaque(5, "gemini", "thought_signature", "NQ=="), Reasoning(6, "unsigned"),
    ]  # fmt: skip
    assert answer("gemini", *parts) == [
        {"text": "Hm.", "thought": True, "thoughtSignature": "MA=="},
        {"functionCall": {"name": "weather", "args": {"city": "Rome"}}, "thoughtSignature": "c2ln"},
        {"functionCall": {"name": "weather", "args": {"city": "Oslo"}}},
        {**code, "thoughtSignature": "Mw=="},
        {"text": "So.", "thoughtSignature": "NA=="},
        {"text": "", "thoughtSignature": "NQ=="},
    ]


@pytest.mark.parametrize("model", ["gemini-3-pro-preview", "gemini-flash-latest", "models/gemini-3.5-flash"])
def test_gemini_3_gets_a_placeholder_signature_for_calls_of_others(model: str) -> None:
    again = Message("assistant", (ROME, OSLO))
    done = tool_results(result(ROME, "a"), result(OSLO, "b"))
    contents = body("gemini", user("Hi"), again, done, user("And?"), again, done, model=model)["contents"]
    calls = [content["parts"] for content in contents if content["role"] == "model"]
    signatures = [[part.get("thoughtSignature") for part in parts] for parts in calls]
    assert signatures == [[None, None], ["skip_thought_signature_validator", None]]


def test_gemini_before_3_needs_no_signature() -> None:
    assert answer("gemini", ROME, model="gemini-2.5-pro")[0].keys() == {"functionCall"}
    assert answer("gemini", ROME, SIGNED, OSLO, model="gemini-3-pro-preview")[0]["thoughtSignature"] == "c2ln"


def test_gemini_ids_go_back_if_gemini_sent_them() -> None:
    answered = Message("assistant", (ROME, Opaque(1, "gemini", "id", "fc-1"), OSLO))
    done = tool_results(result(OSLO, "b"), result(ROME, "a"))
    contents = body("gemini", user("Hi"), answered, done)["contents"]
    assert [part["functionCall"].get("id") for part in contents[1]["parts"]] == ["fc-1", None]
    assert [part["functionResponse"].get("id") for part in contents[2]["parts"]] == ["fc-1", None]


def test_gemini_responses_are_objects() -> None:
    calls = [ToolCall(str(at), "f", {}, block=at) for at in range(4)]
    done = [
        result(calls[0], '{"a": 1}'),
        result(calls[1], "[1]"),
        result(calls[2]),
        result(calls[3], "{}", is_error=True),
    ]
    contents = body("gemini", user("Hi"), assistant(*calls), tool_results(*done))["contents"]
    assert [part["functionResponse"]["response"] for part in contents[-1]["parts"]] == [
        {"a": 1}, {"result": "[1]"}, {"result": ""}, {"error": "{}"},
    ]  # fmt: skip


def test_gemini_images_of_results_are_inside_or_after_the_response() -> None:
    done = tool_results(result(ROME, "a", PICTURE), result(OSLO, "b"))
    picture = {"inlineData": {"mimeType": "image/png", "data": "iVBORw=="}}
    new = body("gemini", user("Hi"), assistant(ROME, OSLO), done, model="gemini-3-flash")["contents"][-1]["parts"]
    assert [part["functionResponse"].get("parts") for part in new] == [[picture], None]
    old = body("gemini", user("Hi"), assistant(ROME, OSLO), done)["contents"][-1]["parts"]
    assert [list(part) for part in old] == [["functionResponse"], ["functionResponse"], ["inlineData"]]


def test_gemini_media_with_a_url_are_file_data() -> None:
    [content] = body("gemini", user(file("gs://bucket/a.pdf"), image("https://example.org/a")))["contents"]
    assert content["parts"] == [
        {"fileData": {"mimeType": "application/pdf", "fileUri": "gs://bucket/a.pdf"}},
        {"fileData": {"mimeType": "image/png", "fileUri": "https://example.org/a"}},
    ]


def test_gemini_continues_a_response_by_its_token() -> None:
    parts = (Text(0, "half an"), Opaque(1, "gemini", "continuationToken", "dG9rZW4="))
    written = body("gemini", user("Hi"), Message("assistant", parts))
    assert written["continuationToken"] == "dG9rZW4="
    assert written["contents"] == [{"role": "user", "parts": [{"text": "Hi"}]}]
    later = body("gemini", user("Hi"), Message("assistant", parts), user("Go on"))
    assert "continuationToken" not in later
    assert len(later["contents"]) == 3


def test_gemini_tools_and_choices() -> None:
    google = {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}}
    tools = (ToolDeclaration("a"), ToolDeclaration("b", parameters=google), ToolDeclaration("c", is_custom=True))
    written = body("gemini", tools=(*tools, *read_declarations([{"googleSearch": {}}])), tool_choice="b")
    free = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}
    functions = [{"name": "a"}, {"name": "b", "parameters": google}, {"name": "c", "parametersJsonSchema": free}]
    assert written["tools"] == [{"functionDeclarations": functions}, {"googleSearch": {}}]
    assert written["toolConfig"] == {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["b"]}}
    none = body("gemini", tools=(WEATHER,), tool_choice="none")
    assert none["toolConfig"] == {"functionCallingConfig": {"mode": "NONE"}}


@pytest.mark.parametrize(
    ("model", "reasoning", "expected"),
    [
        ("gemini-2.5-flash", "low", {"includeThoughts": True, "thinkingBudget": 1_024}),
        ("gemini-2.5-flash", 700, {"includeThoughts": True, "thinkingBudget": 700}),
        ("gemini-2.5-flash", False, {"thinkingBudget": 0}),
        ("gemini-3-flash", "minimal", {"includeThoughts": True, "thinkingLevel": "MINIMAL"}),
        ("gemini-3-pro", "max", {"includeThoughts": True, "thinkingLevel": "HIGH"}),
        ("gemini-3-pro", 6_000, {"includeThoughts": True, "thinkingLevel": "MEDIUM"}),
        ("gemini-3-pro", "none", {"thinkingLevel": "LOW"}),
    ],
)
def test_gemini_thinking_is_a_budget_or_a_level(model: str, reasoning: Any, expected: Any) -> None:
    written = body("gemini", model=model, options={"reasoning": reasoning})
    assert written["generationConfig"] == {"thinkingConfig": expected}


def test_gemini_settings_are_merged_with_the_callers() -> None:
    extra = {"generationConfig": {"responseMimeType": "application/json"}}
    written = body("gemini", options={"seed": 4}, extra=extra)
    assert written["generationConfig"] == {"seed": 4, "responseMimeType": "application/json"}

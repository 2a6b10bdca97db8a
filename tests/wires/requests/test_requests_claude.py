"""Requests to Anthropic and Bedrock: vendor state, tools, thinking."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock import Message, Opaque, Reasoning, Refusal, Text, ToolCall, ToolResult, UsageError, check
from penstock.declarations import ToolDeclaration, read_declarations
from penstock.messages import assistant, file, image, result, tool_results, user
from tests.judges import HISTORY, OSLO, PICTURE, ROME, WEATHER, answer, assistant_content, body

# Anthropic.


def test_anthropic_thinking_goes_back_signed_and_in_order() -> None:
    redacted = {"type": "redacted_thinking", "data": "abc"}
    parts = [
        Reasoning(0, "Hm."), Opaque(0, "anthropic", "signature", "one"), Opaque(1, "anthropic", "signature", "two"),
        Opaque(2, "anthropic", "redacted_thinking", redacted), Text(3, " "), ToolCall("t", "weather", {}, block=4),
    ]  # fmt: skip
    assert answer("anthropic", *parts) == [
        {"type": "thinking", "thinking": "Hm.", "signature": "one"},
        {"type": "thinking", "thinking": "", "signature": "two"},
        redacted,
        {"type": "tool_use", "id": "t", "name": "weather", "input": {}},
    ]


def test_anthropic_hosted_calls_go_back_and_their_container_is_used_again() -> None:
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    parts = [Opaque(0, "anthropic", "server_tool_use", use), Opaque(1, "anthropic", "web_search_tool_result", found)]
    container = Opaque(3, "anthropic", "container", {"id": "container_1", "expires_at": "2031-01-01T00:00:00Z"})
    written = body("anthropic", user("Hi"), Message("assistant", (*parts, Text(2, "So."), container)))
    assert assistant_content("anthropic", written) == [use, found, {"type": "text", "text": "So."}]
    assert written["container"] == "container_1"


USE = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "code_execution", "input": {}}
RUNS = Opaque(0, "anthropic", "server_tool_use", USE)
ASKED_BY_IT = {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}
CALL = ToolCall("t1", "weather", {}, block=1)
CALLING = Message("assistant", (RUNS, CALL, Opaque(1, "anthropic", "caller", ASKED_BY_IT)))


def test_an_unfinished_hosted_call_is_left_out_after_the_next_user_message() -> None:
    [_, reply, _] = body("anthropic", user("Hi"), CALLING, tool_results(result(CALL, "sunny")), user("?"))["messages"]
    assert reply["content"] == [{"type": "tool_use", "id": "t1", "name": "weather", "input": {}}], "nor is it named"
    bedrocks = Opaque(0, "bedrock", "toolUse", {"toolUse": {"toolUseId": "s", "name": "nova_grounding", "input": {}}})
    [only] = body("bedrock", user("Hi"), Message("assistant", (bedrocks,)), user("?"))["messages"]
    assert only["content"] == [{"text": "Hi"}, {"text": "?"}]


@pytest.mark.parametrize(
    ("wire", "parts", "lost"),
    [
        ("anthropic", [Text(0, "So."), Opaque(0, "anthropic", "signature", "sig")], "signature"),
        ("anthropic", [Text(1, "So."), Reasoning(0, "Hm."), Opaque(0, "anthropic", "caller", {})], "caller"),
        ("bedrock", [Text(0, "So."), ToolCall("t", "weather", {}, block=1), Opaque(1, "bedrock", "signature", "sig")],
         "signature"),
    ],
)  # fmt: skip
def test_state_on_a_part_of_another_kind_is_left_out(wire: str, parts: list[Any], lost: str) -> None:
    """As a damaged stream may leave it: the provider would refuse it."""
    calls = [part for part in parts if isinstance(part, ToolCall)]
    results = [tool_results(*(result(call, "sunny") for call in calls))] if calls else []
    history = user("Hi"), Message("assistant", tuple(parts)), *results
    assert check([*history]) == []
    written = json.dumps(body(wire, *history))
    assert "So." in written
    assert lost not in written


FOUND = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_9", "content": []}
GROUNDED = {"toolResult": {"toolUseId": "s", "content": [], "status": "success"}}


@pytest.mark.parametrize(
    ("wire", "kind", "block"),
    [
        ("anthropic", "web_search_tool_result", FOUND),
        ("bedrock", "toolResult", GROUNDED),
    ],
)
def test_a_hosted_result_of_a_response_without_its_call_is_left_out(wire: str, kind: str, block: Any) -> None:
    """The call was lost with a part of the stream, and the provider refuses the result alone."""
    history = user("Hi"), Message("assistant", (Opaque(0, wire, kind, block), Text(1, "So."))), user("?")
    assert check([*history]) == []
    written = body(wire, *history)
    assert "So." in json.dumps(written)
    assert kind not in json.dumps(written)


def test_a_hosted_call_that_paused_or_waits_for_results_continues() -> None:
    [_, paused] = body("anthropic", user("Hi"), Message("assistant", (RUNS,)))["messages"]
    assert paused["content"] == [USE]
    [_, waiting, _] = body("anthropic", user("Hi"), CALLING, tool_results(result(CALL, "sunny")))["messages"]
    assert waiting["content"][0] == USE
    assert waiting["content"][1]["caller"] == ASKED_BY_IT
    printed = {"type": "code_execution_result", "stdout": "1", "stderr": "", "return_code": 0, "content": []}
    done = {"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_1", "content": printed}
    later = Message("assistant", (Opaque(0, "anthropic", "code_execution_tool_result", done), Text(1, "So.")))
    history = (user("Hi"), CALLING, tool_results(result(CALL, "sunny")), later, user("?"))
    written = [message["content"] for message in body("anthropic", *history)["messages"]]
    assert (written[1][0], written[3][0]) == (USE, done)


def test_blank_text_in_a_results_content_is_left_out() -> None:
    call = ToolCall("t1", "weather", {})
    for wire, kept, blank in (
        (
            "anthropic",
            {"type": "search_result", "source": "a", "title": "b", "content": []},
            {"type": "text", "text": " "},
        ),
        ("bedrock", {"json": {"a": 1}}, {"text": "\n"}),
    ):
        content = Opaque(0, wire, "content", [kept, blank])
        answer = ToolResult("t1", "weather", (Text(0, " "),), state=(content,))
        [block] = body(wire, user("Hi"), assistant(call), tool_results(answer))["messages"][-1]["content"]
        assert block.get("toolResult", block)["content"] == [kept]


def test_anthropic_calls_of_a_toolset_and_their_results_name_it() -> None:
    caller = {"type": "code_execution_20250825", "tool_id": "srvtoolu_1"}
    call = ToolCall("t1", "click", {"x": 1}, block=0)
    state = [Opaque(0, "anthropic", "caller", caller), Opaque(0, "anthropic", "toolset_name", "browser")]
    written = body("anthropic", user("Hi"), Message("assistant", (call, *state)), tool_results(result(call)))
    assert (
        assistant_content("anthropic", written)[0] | {"caller": caller, "toolset_name": "browser"}
        == assistant_content("anthropic", written)[0]
    )
    assert written["messages"][-1]["content"] == [
        {"type": "tool_result", "tool_use_id": "t1", "toolset_name": "browser"}
    ]


def test_anthropic_accepts_long_names() -> None:
    call = ToolCall("t1", "mcp__server__" + "x" * 80, {})
    assert assistant_content("anthropic", body("anthropic", user("Hi"), assistant(call)))[0]["name"] == call.name


def test_anthropic_ids_fit_its_alphabet_and_still_match() -> None:
    call = ToolCall("functions.weather:0", "weather", {})
    written = body("anthropic", user("Hi"), assistant(call), tool_results(result(call, "sunny")))
    [[use], [back]] = (message["content"] for message in written["messages"][1:])
    assert use["id"] == back["tool_use_id"]
    assert use["id"].isalnum()


def test_anthropic_results_may_be_empty_unless_they_are_errors() -> None:
    written = body("anthropic", *HISTORY[1:3], tool_results(result(ROME, " "), result(OSLO, is_error=True)))
    assert written["messages"][-1]["content"] == [
        {"type": "tool_result", "tool_use_id": "call_1"},
        {"type": "tool_result", "tool_use_id": "call_2", "content": "The tool failed and did not say why.",
         "is_error": True},
    ]  # fmt: skip


def test_anthropic_results_contain_images_and_documents() -> None:
    content = result(ROME, "Here:", PICTURE, file(b"%PDF", "application/pdf", "map.pdf"))
    written = body("anthropic", user("Hi"), assistant(ROME), tool_results(content))
    assert [part["type"] for part in written["messages"][-1]["content"][0]["content"]] == ["text", "image", "document"]


def test_anthropic_files_are_documents() -> None:
    parts: list[Any] = [
        file("https://example.org/a.pdf"), file(b"a,b", "text/csv", "a.csv"), image("https://example.org/a.png"),
        file("file-011x"),
    ]  # fmt: skip
    [message] = body("anthropic", user(*parts))["messages"]
    assert message["content"] == [
        {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a,b"}, "title": "a.csv"},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
        {"type": "document", "source": {"type": "file", "file_id": "file-011x"}},
    ]


@pytest.mark.parametrize(
    ("choice", "is_parallel", "expected"),
    [
        ("", None, None),
        ("auto", None, {"type": "auto"}),
        ("none", False, {"type": "none"}),
        ("weather", True, {"type": "tool", "name": "weather"}),
        ("", False, {"type": "auto", "disable_parallel_tool_use": True}),
        ("required", False, {"type": "any", "disable_parallel_tool_use": True}),
    ],
)
def test_anthropic_tool_choices(choice: str, is_parallel: bool | None, expected: Any) -> None:
    written = body("anthropic", tools=(WEATHER,), tool_choice=choice, is_parallel=is_parallel)
    assert written.get("tool_choice") == expected


def test_anthropic_tools_keep_their_own_fields() -> None:
    hosted = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    extra = {"strict": True, "eager_input_streaming": True, "cache_control": {"type": "ephemeral"}, "annotations": {}}
    tools = (ToolDeclaration("a", extra=extra), ToolDeclaration("b", is_custom=True), *read_declarations([hosted]))
    assert body("anthropic", tools=tools)["tools"] == [
        {"name": "a", "input_schema": {"type": "object", "properties": {}}, "strict": True,
         "eager_input_streaming": True, "cache_control": {"type": "ephemeral"}},
        {"name": "b", "input_schema": {
            "type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}},
        hosted,
    ]  # fmt: skip


ENABLED, ADAPTIVE = "claude-sonnet-4-5", "claude-opus-4-6"


@pytest.mark.parametrize(
    ("model", "options", "expected"),
    [
        (ENABLED, {}, {"max_tokens": 16_000}),
        ("claude-3-5-haiku-latest", {}, {"max_tokens": 4_096}),
        ("MiniMax-M2", {}, {"max_tokens": 16_000}),
        (ENABLED, {"reasoning": "none"}, {"max_tokens": 16_000, "thinking": {"type": "disabled"}}),
        (ENABLED, {"reasoning": "medium"},
         {"max_tokens": 24_192, "thinking": {"type": "enabled", "budget_tokens": 8_192}}),
        (ENABLED, {"reasoning": "high", "max_tokens": 5_000},
         {"max_tokens": 5_000, "thinking": {"type": "enabled", "budget_tokens": 4_000}}),
        (ENABLED, {"reasoning": 3_000, "temperature": 0.2, "top_p": 0.97, "top_k": 3},
         {"max_tokens": 19_000, "thinking": {"type": "enabled", "budget_tokens": 3_000}, "top_p": 0.97}),
        (ADAPTIVE, {"reasoning": "minimal", "top_p": 0.5},
         {"max_tokens": 32_000, "thinking": {"type": "adaptive", "display": "summarized"},
          "output_config": {"effort": "low"}}),
        ("claude-mythos-preview", {"reasoning": 20_000, "max_tokens": 9_000},
         {"max_tokens": 9_000, "thinking": {"type": "adaptive", "display": "summarized"},
          "output_config": {"effort": "high"}}),
        (ADAPTIVE, {"temperature": 0.2}, {"max_tokens": 16_000, "temperature": 0.2}),
        ("claude-opus-4-7", {"temperature": 0.2, "top_p": 1, "top_k": 2}, {"max_tokens": 16_000}),
        ("claude-sonnet-5", {"temperature": 0.2, "seed": 1}, {"max_tokens": 16_000}),
    ],
)  # fmt: skip
def test_thinking_settings_follow_the_version_of_claude(model: str, options: Any, expected: Any) -> None:
    written = body("anthropic", model=model, options=options)
    assert {key: written[key] for key in written if key not in ("model", "messages", "stream")} == expected


def test_a_thinking_budget_is_below_max_tokens() -> None:
    for options in ({"reasoning": 5_000, "max_tokens": 5_000}, {"reasoning": "low", "max_tokens": 1_000}):
        with pytest.raises(UsageError, match="max_tokens"):
            body("anthropic", options=options)


# Bedrock.


def test_bedrock_reasoning_and_citations_go_back_unchanged() -> None:
    citation = {"title": "a", "location": {"documentChar": {"documentIndex": 0, "start": 0, "end": 1}}}
    use = {"toolUse": {"toolUseId": "s", "name": "nova_grounding", "input": {}, "type": "server_tool_use"}}
    parts = [
        Reasoning(0, "Hm."), Opaque(0, "bedrock", "signature", "one"), Opaque(1, "bedrock", "signature", "two"),
        Opaque(2, "bedrock", "redactedContent", "cmVk"), Text(3, "So."), Opaque(3, "bedrock", "citations", [citation]),
        Opaque(4, "bedrock", "toolUse", use), Reasoning(5, "unsigned"), Refusal(6, "No."),
    ]  # fmt: skip
    assert answer("bedrock", *parts) == [
        {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "one"}}},
        {"reasoningContent": {"reasoningText": {"text": "", "signature": "two"}}},
        {"reasoningContent": {"redactedContent": "cmVk"}},
        {"citationsContent": {"content": [{"text": "So."}], "citations": [citation]}},
        use,
        {"text": "No."},
    ]


def test_bedrock_declares_tools_if_the_history_has_calls() -> None:
    schema = {"json": {"type": "object", "properties": {}}}
    expected = {"tools": [{"toolSpec": {"name": "weather", "inputSchema": schema}}]}
    assert body("bedrock", *HISTORY)["toolConfig"] == expected
    assert "toolChoice" not in body("bedrock", *HISTORY, tools=(WEATHER,), tool_choice="none")["toolConfig"]
    assert "toolConfig" not in body("bedrock", tools=(WEATHER,), tool_choice="none")


def test_bedrock_tools_keep_their_own_fields() -> None:
    hosted = {"systemTool": {"name": "nova_grounding"}}
    tools = (ToolDeclaration("a", extra={"strict": True, "cache_control": {}}), *read_declarations([hosted]))
    schema = {"json": {"type": "object", "properties": {}}}
    assert body("bedrock", tools=tools, tool_choice="a")["toolConfig"] == {
        "tools": [{"toolSpec": {"name": "a", "inputSchema": schema, "strict": True}}, hosted],
        "toolChoice": {"tool": {"name": "a"}},
    }


def test_bedrock_media_have_formats_and_documents_have_unique_names() -> None:
    parts: list[Any] = [
        image("s3://bucket/a.jpg"), file(b"x", "video/quicktime"), file(b"x", "audio/mpeg"),
        file(b"x", "application/pdf", "Ann's  map.pdf"), file(b"x", "text/plain"), file(b"x", "text/markdown"),
    ]  # fmt: skip
    [message] = body("bedrock", user(*parts))["messages"]
    data = {"bytes": "eA=="}
    assert message["content"] == [
        {"image": {"format": "jpeg", "source": {"s3Location": {"uri": "s3://bucket/a.jpg"}}}},
        {"video": {"format": "mov", "source": data}},
        {"audio": {"format": "mp3", "source": data}},
        {"document": {"format": "pdf", "source": data, "name": "Ann-s map-pdf"}},
        {"document": {"format": "txt", "source": data, "name": "document"}},
        {"document": {"format": "md", "source": data, "name": "document-2"}},
        {"text": "(See the document.)"},  # without words, a document is refused
    ]


def test_bedrock_results_are_never_blank() -> None:
    written = body("bedrock", user("Hi"), assistant(ROME), tool_results(result(ROME, " ", PICTURE)), user("And?"))
    picture = {"image": {"format": "png", "source": {"bytes": "iVBORw=="}}}
    assert written["messages"][-1]["content"][0]["toolResult"]["content"] == [picture]
    written = body("bedrock", user("Hi"), assistant(ROME), tool_results(result(ROME)))
    assert written["messages"][-1]["content"][0]["toolResult"]["content"] == [{"text": "(no output)"}]


@pytest.mark.parametrize(
    ("model", "fields", "inference", "additional"),
    [
        ("us.anthropic.claude-opus-4-6-v1", {"options": {"reasoning": "max", "temperature": 0.1}}, {},
         {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": "max"}}),
        ("anthropic.claude-opus-4-1-20250805-v1:0", {"options": {"reasoning": "low", "top_k": 4}},
         {"maxTokens": 18_048}, {"thinking": {"type": "enabled", "budget_tokens": 2_048}}),
        ("anthropic.claude-haiku-4-5-v1", {"tools": (WEATHER,), "is_parallel": False}, {},
         {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
        ("anthropic.claude-haiku-4-5-v1", {"tools": (WEATHER,), "is_parallel": False, "tool_choice": "required"}, {},
         {"tool_choice": {"disable_parallel_tool_use": True}}),
        ("amazon.nova-2-lite-v1:0", {"options": {"reasoning": "xhigh", "top_k": 4}}, {},
         {"inferenceConfig": {"topK": 4}, "reasoningConfig": {"type": "enabled", "maxReasoningEffort": "high"}}),
        ("amazon.nova-2-lite-v1:0", {"options": {"reasoning": 0}}, {}, {"reasoningConfig": {"type": "disabled"}}),
        ("openai.gpt-oss-120b-1:0", {"options": {"reasoning": 3_000, "seed": 5, "top_p": 1}}, {"topP": 1},
         {"seed": 5, "reasoning_effort": "low"}),
        ("openai.gpt-oss-120b-1:0", {"options": {"reasoning": "none"}, "is_parallel": False}, {}, {}),
    ],
)  # fmt: skip
def test_bedrock_settings_of_some_models_are_additional_fields(
    model: str, fields: Any, inference: Any, additional: Any
) -> None:
    written = body("bedrock", model=model, **fields)
    assert written.get("inferenceConfig", {}) == inference
    assert written.get("additionalModelRequestFields", {}) == additional

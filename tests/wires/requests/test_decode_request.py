"""Requests as a server receives them: settings of every wire, bad bodies, and law 9 over every recorded request."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import msgspec
import pytest

from penstock import Message, Text, ToolCall, UsageError
from penstock.declarations import ToolDeclaration
from penstock.history.client_request import ClientRequest, decode_request
from penstock.wires import SERVED_WIRES, WIRES, find_encoder, find_left_out
from penstock.wires.shared.decode_request.request_settings import KEPT_SETS, MAX_KEPT_TOOLS, kept_tools
from penstock.wires.shared.encode_response.response_head import ToolPath
from penstock.wires.shared.request import OutputFormat, Request
from tests.cases import each
from tests.wires.test_corpus import ALL, NOT_SPOKEN

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
WEATHER = ToolDeclaration("weather", "The weather.", SCHEMA)
USER = [{"role": "user", "content": "Hi"}]
FUNCTION = {"name": "weather", "description": "The weather.", "parameters": SCHEMA}

BODIES: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "model": "m", "messages": USER, "stream": True, "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": FUNCTION}], "parallel_tool_calls": False,
        "tool_choice": {"type": "function", "function": {"name": "weather"}}, "max_completion_tokens": 9,
        "temperature": 0.5, "top_p": 0.9, "stop": ["X"], "reasoning_effort": "low", "logit_bias": {"1": 2},
        "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": SCHEMA}},
    },
    "openai-responses": {
        "model": "m", "input": USER, "stream": True, "tools": [{"type": "function", **FUNCTION}],
        "tool_choice": {"type": "function", "name": "weather"}, "parallel_tool_calls": False, "max_output_tokens": 9,
        "temperature": 0.5, "top_p": 0.9, "reasoning": {"effort": "low", "summary": "auto"}, "store": False,
        "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}},
    },
    "anthropic": {
        "model": "m", "messages": USER, "stream": True, "max_tokens": 9, "temperature": 0.5, "top_p": 0.9,
        "tools": [{"name": "weather", "description": "The weather.", "input_schema": SCHEMA}],
        "tool_choice": {"type": "tool", "name": "weather", "disable_parallel_tool_use": True},
        "stop_sequences": ["X"], "metadata": {"user_id": "1"},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
    },
    "gemini": {
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        "tools": [{"functionDeclarations": [{**FUNCTION, "parametersJsonSchema": SCHEMA, "parameters": None}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["weather"]}},
        "generationConfig": {
            "maxOutputTokens": 9, "temperature": 0.5, "topP": 0.9, "stopSequences": ["X"],
            "thinkingConfig": {"thinkingLevel": "LOW"}, "responseMimeType": "application/json",
            "responseJsonSchema": SCHEMA,
        },
        "safetySettings": [{"category": "X"}],
    },
    "gemini-interactions": {
        "model": "m", "input": "Hi", "stream": True, "tools": [{"type": "function", **FUNCTION}], "store": False,
        "generation_config": {
            "max_output_tokens": 9, "temperature": 0.5, "top_p": 0.9, "stop_sequences": ["X"], "thinking_level": "low",
            "tool_choice": {"allowed_tools": {"mode": "any", "tools": ["weather"]}},
        },
        "response_format": {"type": "text", "mime_type": "application/json", "schema": SCHEMA},
        "labels": {"team": "a"},
    },
    "ollama": {
        "model": "m", "messages": USER, "tools": [{"type": "function", "function": FUNCTION}], "think": "low",
        "options": {"num_predict": 9, "temperature": 0.5, "top_p": 0.9, "stop": ["X"], "mirostat": 1},
        "format": SCHEMA, "keep_alive": "5m",
    },
}  # fmt: skip


def read(wire: str, body: dict[str, Any] | bytes) -> ClientRequest:
    in_path: dict[str, Any] = {"model": "m", "is_streaming": True} if wire == "gemini" else {}
    return decode_request(body, wire, **in_path)


@pytest.mark.parametrize("wire", SERVED_WIRES)
def test_the_settings_of_every_wire_are_read_in_one_form(wire: str) -> None:
    request = read(wire, msgspec.json.encode(BODIES[wire]))
    settings = request.settings
    assert request.messages == (Message("user", (Text(0, "Hi"),)),)
    assert settings.model == "m"
    assert settings.is_streaming
    assert [(tool.name, tool.description, tool.parameters) for tool in settings.tools] == [
        ("weather", "The weather.", SCHEMA)
    ]
    options = {"max_tokens": 9, "temperature": 0.5, "top_p": 0.9, "reasoning": "low"}
    assert settings.options == options | ({} if wire == "openai-responses" else {"stop": ["X"]})
    assert settings.output is not None
    assert settings.output.schema == SCHEMA
    assert settings.tool_choice == ("" if wire == "ollama" else "weather")
    assert settings.is_parallel is (None if wire.startswith("gemini") or wire == "ollama" else False)


EXTRA: dict[str, Any] = {
    "openai-chat": {"logit_bias": {"1": 2}},
    "openai-responses": {"reasoning": {"summary": "auto"}, "store": False},
    "anthropic": {"metadata": {"user_id": "1"}},
    "gemini": {"safetySettings": [{"category": "X"}]},
    "gemini-interactions": {"store": False, "labels": {"team": "a"}},
    "ollama": {"options": {"mirostat": 1}, "keep_alive": "5m"},
}


@pytest.mark.parametrize("wire", SERVED_WIRES)
def test_fields_of_one_protocol_are_passed_on_to_it_alone(wire: str) -> None:
    client = read(wire, BODIES[wire])
    assert client.settings.extra == EXTRA[wire]
    other = "cohere"
    _, dropped = client.request_for(other)
    partly = {"reasoning": "reasoning.summary", "options": "options.mirostat"}
    assert {loss.place for loss in dropped} == {partly.get(name, name) for name in EXTRA[wire]}
    same, dropped = client.request_for(wire)
    assert dropped == ()
    assert same.extra.items() >= {key: same.extra[key] for key in EXTRA[wire]}.items()


def test_tools_in_a_namespace_have_flat_names_in_the_request_and_in_the_history() -> None:
    tool = {"type": "namespace", "name": "files", "tools": [{"type": "function", "name": "open", "parameters": SCHEMA}]}
    call = {"type": "function_call", "call_id": "c", "name": "open", "namespace": "files", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c", "output": "ok"}
    body = {"model": "m", "input": [*USER, call, result], "tools": [tool]}
    request = decode_request(body, "openai-responses")
    assert [tool.name for tool in request.settings.tools] == ["files__open"]
    assert request.settings.namespaces == {"files__open": ToolPath("files", "open")}
    calls = [part.name for message in request.messages for part in message.parts if isinstance(part, ToolCall)]
    assert calls == ["files__open"]
    assert request.head("1", 2, has_custom_tools=True).namespaces == request.settings.namespaces


def test_hosted_tools_are_dropped_for_another_wire() -> None:
    body = {"model": "m", "input": "Hi", "tools": [{"type": "web_search"}], "tool_choice": {"type": "web_search"}}
    client = decode_request(body, "openai-responses")
    request, dropped = client.request_for("openai-chat")
    assert (request.tools, request.tool_choice) == ((), "")
    assert [loss.place for loss in dropped] == ["tools"]
    assert client.request_for("openai-responses")[0].tools[0].hosted == {"type": "web_search"}


def test_custom_tools_are_known_to_the_head_of_the_response() -> None:
    body = {"model": "m", "input": "Hi", "tools": [{"type": "custom", "name": "patch"}]}
    client = decode_request(body, "openai-responses")
    assert client.head("1", 2, has_custom_tools=True).custom_tools == {"patch"}
    assert client.head("1", 2, has_custom_tools=False).unwrapped_tools == {"patch"}


def test_json_without_a_schema_is_an_output_format_too() -> None:
    body = {"model": "m", "messages": USER, "response_format": {"type": "json_object"}}
    assert decode_request(body, "openai-chat").settings.output == OutputFormat()


BAD: list[tuple[str, Any, str]] = [
    ("openai-chat", b"{", "not JSON"),
    ("openai-chat", b"[]", "must be a JSON object"),
    ("openai-chat", {"messages": USER}, "model: is missing"),
    ("openai-chat", {"model": "m"}, "messages: is missing"),
    ("openai-responses", {"model": "m"}, "input: is missing"),
    ("gemini", {}, "contents: is missing"),
    ("openai-chat", {"model": 7, "messages": USER}, "model: must be text, not"),
    ("openai-chat", {"model": "m", "messages": 7}, "messages: "),
    ("openai-chat", {"model": "m", "messages": [{"role": "user", "content": [{}]}]}, "messages[0].content[0]"),
    ("openai-chat", {"model": "m", "messages": USER, "tools": {}}, "tools: must be a list"),
    ("openai-chat", {"model": "m", "messages": USER, "tools": [7]}, "tools[0]: must be an object"),
    ("openai-chat", {"model": "m", "messages": USER, "tools": [{"function": {}}]}, "tools[0]: "),
    ("openai-chat", {"model": "m", "messages": USER, "tools": [{"type": "custom", "custom": {}}]}, "tools[0]: "),
    ("openai-chat", {"model": "m", "messages": USER, "tools": [{"custom": {"name": [1]}}]}, "tools[0]: "),
    ("openai-chat", {"model": "m", "messages": USER, "tool_choice": "x"}, "tool_choice: 'x' is not a declared tool"),
    ("openai-chat", {"model": "m", "messages": USER, "tool_choice": 7}, "tool_choice: send auto"),
    ("openai-chat", {"model": "m", "messages": USER, "stream": "yes"}, "stream: must be true or false"),
    ("openai-chat", {"model": "m", "messages": USER, "temperature": "hot"}, "temperature: must be a number"),
    ("openai-chat", {"model": "m", "messages": USER, "max_tokens": 1.5}, "max_tokens: must be a whole number"),
    ("openai-chat", {"model": "m", "messages": USER, "stop": [7]}, "stop: must be text or a list"),
    ("openai-chat", {"model": "m", "messages": USER, "response_format": {"type": "x"}}, "response_format.type"),
    ("anthropic", {"model": "m", "messages": USER, "tool_choice": {"type": "x"}}, "tool_choice.type: 'x'"),
    ("anthropic", {"model": "m", "messages": USER, "thinking": {"type": "x"}}, "thinking.type: 'x'"),
    ("gemini", {"contents": [], "toolConfig": {"functionCallingConfig": {"mode": "x"}}}, "functionCallingConfig.mode"),
    ("gemini-interactions", {"model": "m"}, "input: is missing"),
    ("gemini-interactions", {"model": "m", "input": [{"type": 7}]}, "input[0]: needs a 'type'"),
    ("gemini-interactions", {"model": "m", "input": [{"type": "user_input", "content": [{"type": "smell"}]}]},
     "input[0].content[0]: a part of the type 'smell'"),
    ("gemini-interactions", {"model": "m", "input": "Hi", "generation_config": {"tool_choice": 7}},
     "generation_config.tool_choice: send auto"),
    ("gemini-interactions", {"model": "m", "input": "Hi", "response_format": {"type": "text", "schema": 7}},
     "response_format.schema: must be"),
    ("ollama", {"model": "m", "messages": USER, "format": 7}, 'format: must be "json"'),
    ("ollama", {"model": "m", "messages": USER, "think": 7}, "think: must be"),
]  # fmt: skip


@each(("wire", "body", "message"), BAD, ids=[case[2] for case in BAD])
def test_a_bad_body_is_refused_with_its_place(wire: str, body: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        read(wire, body)
    assert message in str(caught.value)


def test_two_tools_of_one_name_are_refused() -> None:
    tool = {"type": "function", "function": FUNCTION}
    with pytest.raises(UsageError, match=r"tools\[1\]: another tool is called 'weather' too"):
        decode_request({"model": "m", "messages": USER, "tools": [tool, tool]}, "openai-chat")


def test_a_body_that_is_nested_too_deeply_is_refused() -> None:
    deep: Any = {}
    for _ in range(2000):
        deep = {"x": deep}
    with pytest.raises(UsageError, match="nested"):
        decode_request({"model": "m", "messages": USER, "metadata": deep}, "openai-chat")


# Law 9 over recorded requests.


def recorded() -> Iterator[tuple[str, str, dict[str, Any], str]]:
    for case in ALL:
        body, wire = case.meta.get("request"), case.wire
        is_spoken = case.meta["wire"] not in NOT_SPOKEN | {"openai-completions"}
        if isinstance(body, dict) and is_spoken and wire in SERVED_WIRES:
            yield case.meta["id"], wire, body, body.get("model") or case.meta.get("model") or "m"


RECORDED = list(recorded())
every_request = each(
    ("wire", "body", "model"), [entry[1:] for entry in RECORDED], ids=[entry[0] for entry in RECORDED], parts=2
)


@every_request
def test_an_encoded_request_decodes_to_the_request(wire: str, body: dict[str, Any], model: str) -> None:
    """A body that we encoded is settled for its wire: decoded and encoded once more, it is the same."""
    client = decode_request(body, wire, model, is_streaming=True)
    request, dropped = client.request_for(wire)
    assert dropped == client.settings.dropped
    encode = find_encoder(wire)
    first = encode(request, frozenset())
    again, _ = decode_request(first.body, wire, model, is_streaming=True).request_for(wire)
    assert encode(again, frozenset()) == first
    assert (again.model, again.tool_choice) == (model, request.tool_choice)
    assert again.is_parallel in (None, request.is_parallel)  # without tools, or if it is the default, it is left out
    assert [tool.name for tool in again.tools] == [tool.name for tool in request.tools]


@every_request
def test_a_request_can_be_sent_on_every_wire(wire: str, body: dict[str, Any], model: str) -> None:
    client = decode_request(body, wire, model, is_streaming=True)
    for other in WIRES:
        request, _ = client.request_for(other)
        options = {name: value for name, value in request.options.items() if name != "reasoning"}
        assert find_encoder(other)(msgspec.structs.replace(request, options=options), frozenset()).body


# What is lost is known.


@pytest.mark.parametrize(
    ("wire", "fields", "place"),
    [
        ("openai-chat", {"stream_options": {"include_obfuscation": False}}, "stream_options.include_obfuscation"),
        ("openai-chat", {"logprobs": True}, "logprobs"),
        ("openai-responses", {"top_logprobs": 2}, "top_logprobs"),
        ("openai-responses", {"include": ["message.output_text.logprobs"]}, "include"),
        ("gemini", {"generationConfig": {"responseLogprobs": True}}, "generationConfig.responseLogprobs"),
        ("ollama", {"logprobs": True}, "logprobs"),
    ],
)
def test_settings_that_no_provider_gets_are_reported(wire: str, fields: dict[str, Any], place: str) -> None:
    request = read(wire, {**BODIES[wire], **fields})
    assert [dropped.place for dropped in request.request_for(wire)[1]] == [place]


@pytest.mark.parametrize("wire", ["openai-chat", "openai-responses"])
def test_the_description_of_an_output_format_is_passed_on(wire: str) -> None:
    format = {"type": "json_schema", "name": "a", "description": "An answer.", "schema": SCHEMA}
    nested = {"type": "json_schema", "json_schema": format}
    fields = {"response_format": nested} if wire == "openai-chat" else {"text": {"format": format}}
    request, _ = decode_request({**BODIES[wire], **fields}, wire).request_for(wire)
    assert '"description":"An answer."' in msgspec.json.encode(request.extra).decode()


def test_a_hosted_tool_without_a_name_is_reported_by_its_field() -> None:
    body = {**BODIES["gemini"], "tools": [*BODIES["gemini"]["tools"], {"googleSearch": {}}]}
    dropped = decode_request(body, "gemini", "m", True).request_for("openai-chat")[1]
    assert any(one.why.startswith("googleSearch runs") for one in dropped)


# What one protocol says more exactly than the others.


def encoded(wire: str, fields: dict[str, Any], to: str, model: str = "m") -> dict[str, Any]:
    """The body for a provider, of a request with these fields."""
    request, _ = read(wire, {**BODIES[wire], "reasoning_effort": None, "reasoning": None, **fields}).request_for(to)
    return find_encoder(to)(msgspec.structs.replace(request, model=model), frozenset()).body


OTHER = {"name": "other", "parameters": {"type": "object", "properties": {}}}
ALLOWED: dict[str, dict[str, Any]] = {
    "openai-chat": {
        "tools": [{"type": "function", "function": FUNCTION}, {"type": "function", "function": OTHER}],
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "weather"}}]},
        },
    },
    "openai-responses": {
        "tools": [{"type": "function", **FUNCTION}, {"type": "function", **OTHER}],
        "tool_choice": {
            "type": "allowed_tools",
            "mode": "required",
            "tools": [{"type": "function", "name": "weather"}],
        },
    },
    "gemini-interactions": {
        "tools": [
            {"type": "function", **FUNCTION},
            {"type": "function", **OTHER},
            {"type": "function", "name": "third"},
        ],
        "generation_config": {"tool_choice": {"allowed_tools": {"mode": "any", "tools": ["weather", "third"]}}},
    },
    "gemini": {
        "generationConfig": {},
        "tools": [{"functionDeclarations": [FUNCTION, OTHER, {"name": "third"}]}],
        "toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["weather", "third"]}},
    },
}


@pytest.mark.parametrize("wire", ALLOWED)
def test_other_providers_get_only_the_tools_that_may_be_called(wire: str) -> None:
    same, other = encoded(wire, ALLOWED[wire], wire), encoded(wire, ALLOWED[wire], "anthropic")
    name = {"gemini": "toolConfig", "gemini-interactions": "generation_config"}.get(wire, "tool_choice")
    assert same[name] == ALLOWED[wire][name], "its own protocol has the list"
    assert "other" not in [tool["name"] for tool in other["tools"]]
    assert other["tools"][0]["name"] == "weather"
    request, dropped = read(wire, {**BODIES[wire], **ALLOWED[wire]}).request_for("anthropic")
    assert request.tool_choice == "required"
    assert not any("choice" in one.place or "Config" in one.place for one in dropped)


@pytest.mark.parametrize("choice", [{"type": "allowed_tools"}, {"type": "allowed_tools", "allowed_tools": {"mode": 1}}])
def test_a_list_of_allowed_tools_that_cannot_be_read_is_refused(choice: Any) -> None:
    with pytest.raises(UsageError, match="tool_choice: send auto"):
        read("openai-chat", {**BODIES["openai-chat"], "tool_choice": choice})


@pytest.mark.parametrize(
    ("config", "to", "expected"),
    [
        ({"thinkingBudget": -1}, "gemini", {"thinkingBudget": -1}),
        ({"thinkingBudget": -1, "includeThoughts": True}, "gemini", {"thinkingBudget": -1, "includeThoughts": True}),
        ({"includeThoughts": True}, "gemini", {"includeThoughts": True}),
        ({"thinkingBudget": 99, "includeThoughts": True}, "gemini", {"thinkingBudget": 99, "includeThoughts": True}),
        ({"thinkingBudget": 99, "includeThoughts": False}, "gemini", {"thinkingBudget": 99, "includeThoughts": False}),
        ({"thinkingBudget": 0, "includeThoughts": False}, "gemini", {"thinkingBudget": 0}),
        ({"thinkingBudget": -1}, "openai-chat", "medium"),
    ],
)
def test_whether_gemini_shows_its_thoughts_and_decides_their_length_is_passed_on(
    config: Any, to: str, expected: Any
) -> None:
    body = encoded("gemini", {"generationConfig": {"thinkingConfig": config}}, to, "gemini-2.5-flash")
    found = body["generationConfig"]["thinkingConfig"] if to == "gemini" else body["reasoning_effort"]
    assert found == expected


def test_a_format_that_is_not_json_is_passed_on_to_gemini() -> None:
    config = {"responseMimeType": "text/x.enum", "responseSchema": {"type": "STRING", "enum": ["a", "b"]}}
    assert encoded("gemini", {"generationConfig": config}, "gemini")["generationConfig"] == config


@pytest.mark.parametrize(("display", "expected"), [("omitted", "omitted"), ("summarized", "summarized")])
def test_how_thinking_is_shown_is_passed_on_to_the_same_protocol(display: str, expected: str) -> None:
    fields = {"max_tokens": 9000, "thinking": {"type": "adaptive", "display": display}, "output_config": {}}
    assert encoded("anthropic", fields, "anthropic", "claude-opus-4-7")["thinking"]["display"] == expected
    _, dropped = read("anthropic", {**BODIES["anthropic"], **fields}).request_for("openai-chat")
    assert ("thinking.display" in [one.place for one in dropped]) == (display == "omitted")


@pytest.mark.parametrize(("think", "expected"), [(True, True), (False, False), ("high", "high")])
def test_a_switch_for_thinking_stays_a_switch(think: Any, expected: Any) -> None:
    assert encoded("ollama", {"think": think}, "ollama")["think"] == expected
    effort = {True: "medium", False: "none", "high": "high"}[think]
    assert encoded("ollama", {"think": think}, "openai-chat")["reasoning_effort"] == effort


def test_whole_numbers_may_be_written_with_a_point() -> None:
    body = b'{"contents": [{"parts": [{"text": "Hi"}]}], "generationConfig": {"topK": 40.0, "maxOutputTokens": 9.0}}'
    assert read("gemini", body).settings.options == {"max_tokens": 9, "top_k": 40}


def test_json_with_a_schema_has_two_spellings() -> None:
    format = {"type": "json_object", "schema": SCHEMA}
    output = read("openai-chat", {**BODIES["openai-chat"], "response_format": format}).settings.output
    assert output == OutputFormat(SCHEMA)


# What another provider does not have.


CAPITALS = {
    "type": "OBJECT",
    "propertyOrdering": ["city", "days"],
    "required": ["city"],
    "properties": {
        "city": {"type": "STRING", "nullable": True, "format": "enum", "enum": ["Rome"], "maxLength": "9"},
        "days": {"type": "ARRAY", "items": {"type": "INTEGER", "format": "int32"}, "maxItems": "3"},
        "type": {"type": "OBJECT", "properties": {"type": {"type": "NUMBER"}}},
        "any": {"anyOf": [{"type": "STRING"}, {"type": "TYPE_UNSPECIFIED"}], "nullable": True},
    },
}
LOWER = {
    "type": "object",
    "required": ["city"],
    "properties": {
        "city": {"type": ["string", "null"], "enum": ["Rome", None], "maxLength": 9},
        "days": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
        "type": {"type": "object", "properties": {"type": {"type": "number"}}},
        "any": {"anyOf": [{"type": "string"}, {}, {"type": "null"}]},
    },
}


@pytest.mark.parametrize("wire", WIRES)
def test_a_schema_with_types_in_capitals_is_a_json_schema_for_all_other_providers(wire: str) -> None:
    fields = {
        "tools": [{"functionDeclarations": [{"name": "weather", "parameters": CAPITALS}]}],
        "generationConfig": {"responseMimeType": "application/json", "responseSchema": CAPITALS},
    }
    request, _ = read("gemini", {**BODIES["gemini"], **fields}).request_for(wire)
    expected = CAPITALS if wire == "gemini" else LOWER
    assert request.tools[0].parameters == expected
    body = msgspec.json.encode(find_encoder(wire)(request, frozenset()).body).decode()
    assert ("OBJECT" in body) == (wire == "gemini")
    direct = msgspec.structs.replace(request, tools=(ToolDeclaration("weather", parameters=CAPITALS),))
    assert ("OBJECT" in msgspec.json.encode(find_encoder(wire)(direct, frozenset()).body).decode()) == (
        wire == "gemini"
    )


@pytest.mark.parametrize(
    ("wire", "fields", "name"),
    [
        ("openai-responses", {"conversation": "conv_1"}, "conversation"),
        ("openai-responses", {"prompt": {"id": "pmpt_1"}}, "prompt"),
        ("openai-responses", {"input": [{"type": "item_reference", "id": "msg_1"}, *USER]}, "item_reference 'msg_1'"),
        ("gemini", {"cachedContent": "cachedContents/1"}, "cachedContent"),
    ],
)
def test_what_another_provider_keeps_of_the_prompt_is_refused(wire: str, fields: dict[str, Any], name: str) -> None:
    request = read(wire, {**BODIES[wire], **fields})
    assert request.request_for(wire)
    with pytest.raises(UsageError, match=f"{name}: it refers to something that another provider keeps"):
        request.request_for("anthropic")


GRAMMAR = {"syntax": "lark", "definition": "start: WORD"}
CUSTOM: dict[str, Any] = {
    "openai-chat": {"type": "custom", "custom": {"name": "p", "format": {"type": "grammar", "grammar": GRAMMAR}}},
    "openai-responses": {"type": "custom", "name": "p", "format": {"type": "grammar", **GRAMMAR}},
}


@pytest.mark.parametrize("to", WIRES)
@pytest.mark.parametrize("wire", CUSTOM)
def test_a_grammar_has_the_form_of_its_wire_or_is_described(wire: str, to: str) -> None:
    fields = {"tools": [CUSTOM[wire]], "tool_choice": None}
    body = encoded(wire, fields, to)
    if to in CUSTOM:
        assert body["tools"] == [CUSTOM[to]]
    else:
        text = msgspec.json.encode(body).decode()
        assert "It must match this lark grammar:" in text
        assert "start: WORD" in text


def test_more_can_be_included_than_reasoning() -> None:
    body = encoded("openai-responses", {"include": ["web_search_call.results"]}, "openai-responses", "gpt-5")
    assert body["include"] == ["web_search_call.results", "reasoning.encrypted_content"]
    body = encoded("openai-responses", {"include": [{}]}, "openai-responses", "gpt-5")
    assert body["include"] == [{}, "reasoning.encrypted_content"]  # the provider refuses it


SETTINGS: Any = {
    "temperature": 0.5, "top_p": 0.9, "top_k": 3, "stop": ["X"], "seed": 1, "presence_penalty": 0.1,
    "frequency_penalty": 0.2, "max_tokens": 9000,
}  # fmt: skip
PENALTIES = {"presence_penalty", "frequency_penalty"}


@pytest.mark.parametrize(
    ("wire", "model", "quirks", "expected"),
    [
        ("openai-chat", "m", {"known-fields"}, {"top_k"}),
        ("openai-chat", "m", {"no-parallel-switch"}, {"parallel_tool_calls"}),
        ("openai-chat", "m", set(), set()),
        ("openai-responses", "m", set(), {"top_k", "stop", "seed", *PENALTIES}),
        ("anthropic", "m", set(), {"seed", *PENALTIES}),
        ("anthropic", "claude-opus-4-7", set(), {"seed", "temperature", "top_p", "top_k", *PENALTIES}),
        ("bedrock", "claude-sonnet-4-5", set(), {"seed", *PENALTIES}),
        ("bedrock", "nova", set(), {"parallel_tool_calls"}),
        ("gemini", "m", set(), {"parallel_tool_calls"}),
        ("cohere", "m", set(), {"parallel_tool_calls"}),
        ("ollama", "m", set(), {"parallel_tool_calls", "tool_choice"}),
    ],
)
def test_settings_that_a_provider_does_not_take_are_named(
    wire: str, model: str, quirks: set[str], expected: set[str]
) -> None:
    request = Request(
        model=model, messages=(Message("user", (Text(0, "Hi"),)),), tools=(WEATHER,), tool_choice="required",
        is_parallel=False, options=SETTINGS,
    )  # fmt: skip
    assert set(find_left_out(wire)(request, frozenset(quirks))) == expected
    body = msgspec.json.encode(find_encoder(wire)(request, frozenset(quirks)).body).decode()
    assert ('"seed"' in body) == ("seed" not in expected)
    assert ('"X"' in body) == ("stop" not in expected)


def test_a_call_that_a_thinking_model_cannot_be_forced_to_make_is_named() -> None:
    request = Request(
        model="claude-sonnet-4-5", messages=(Message("user", (Text(0, "Hi"),)),), tools=(WEATHER,),
        tool_choice="required", options={"reasoning": 2000},
    )  # fmt: skip
    assert find_left_out("anthropic")(request, frozenset()) == ["tool_choice"]


EPHEMERAL = {"cache_control": {"type": "ephemeral"}}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "x", **EPHEMERAL}


@pytest.mark.parametrize(
    ("wire", "messages", "names"),
    [
        ("openai-chat", [{"role": "user", "name": "bob", "content": "Hi"}], "name"),
        ("anthropic", [{"role": "user", "content": [{"type": "text", "text": "Hi", **EPHEMERAL}]}], "cache_control"),
        ("anthropic", [{"role": "user", "content": [RESULT]}], "cache_control"),
        ("openai-responses", [*USER, {"type": "compaction", "id": "c", "encrypted_content": "x"}, *USER], "compaction"),
        ("openai-responses", [{"type": "message", "id": "m", "status": "completed", **USER[0]}], ""),
        ("openai-responses", [*USER, {"type": "reasoning", "id": "r", "summary": [], "encrypted_content": "x"}], ""),
    ],
)
def test_what_only_one_protocol_has_in_messages_is_named_once(wire: str, messages: Any, names: str) -> None:
    field = "input" if wire == "openai-responses" else "messages"
    request = read(wire, {**BODIES[wire], field: [*messages, *messages]})
    found = [one.why for one in request.request_for("cohere")[1] if one.place == "messages"]
    assert found == ([f"only the protocol of the request has {names}"] if names else [])
    assert "messages" not in [one.place for one in request.request_for(wire)[1]]


@pytest.mark.parametrize(
    ("wire", "fields", "place", "path"),
    [
        ("openai-chat", {"reasoning_effort": "default"}, "reasoning_effort", ["reasoning_effort"]),
        ("openai-responses", {"reasoning": {"effort": "ultra"}}, "reasoning.effort", ["reasoning", "effort"]),
        ("anthropic", {"output_config": {"effort": "ultra"}}, "output_config.effort", ["output_config", "effort"]),
        (
            "gemini",
            {"generationConfig": {"thinkingConfig": {"thinkingLevel": "ULTRA"}}},
            "generationConfig.thinkingConfig",
            ["generationConfig", "thinkingConfig", "thinkingLevel"],
        ),
        ("ollama", {"think": "ultra"}, "think", ["think"]),
    ],
)
def test_an_effort_that_we_do_not_know_reaches_its_own_protocol(
    wire: str, fields: Any, place: str, path: list[str]
) -> None:
    sent: Any = encoded(wire, fields, wire, "claude-opus-4-7")
    given: Any = fields
    for name in path:
        sent, given = sent[name], given[name]
    assert sent == given
    request, dropped = read(wire, {**BODIES[wire], **fields}).request_for("cohere")
    assert "reasoning" not in request.options
    assert place in [one.place for one in dropped]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "video_url", "video_url": {"url": "https://example.org/a.mp4", "fps": 2}},
        {"type": "video_url", "video_url": {"url": "data:video/mp4;base64,AAAA"}},
        {"type": "audio_url", "audio_url": {"url": "https://example.org/a.mp3"}},
    ],
)
def test_videos_and_sounds_of_local_servers_are_read_and_sent(part: dict[str, Any]) -> None:
    fields = {"messages": [{"role": "user", "content": [{"type": "text", "text": "Look."}, part]}]}
    assert encoded("openai-chat", fields, "openai-chat")["messages"][0]["content"][1] == part
    [_, other] = encoded("openai-chat", fields, "gemini")["contents"][0]["parts"]
    kind = "video/mp4" if part["type"] == "video_url" else "audio/mpeg"
    assert next(iter(other.values()))["mimeType"] == kind


# Tools that clients send with every request.


def declaring(*names: str, description: str = "") -> bytes:
    tools = [{"type": "function", "function": {"name": name, "description": description}} for name in names]
    return msgspec.json.encode({"model": "m", "messages": USER, "tools": tools})


def tools_of(body: bytes) -> tuple[ToolDeclaration, ...]:
    return decode_request(body, "openai-chat").settings.tools


def test_requests_with_the_same_tools_share_their_declarations() -> None:
    assert tools_of(declaring("a", "b")) is tools_of(declaring("a", "b"))
    assert [tool.name for tool in tools_of(declaring("b", "a"))] == ["b", "a"]


def test_a_limited_number_of_sets_of_tools_is_kept() -> None:
    for number in range(2 * KEPT_SETS):
        assert [tool.name for tool in tools_of(declaring(f"tool_{number}"))] == [f"tool_{number}"]
    assert kept_tools.cache_info().currsize == KEPT_SETS


def test_a_large_set_of_tools_is_not_kept() -> None:
    large = declaring("a", description="x" * MAX_KEPT_TOOLS)
    assert tools_of(large) == tools_of(large)
    assert tools_of(large) is not tools_of(large)


def test_a_set_of_tools_that_cannot_be_read_is_refused_each_time() -> None:
    for _ in range(2):
        with pytest.raises(UsageError, match=r"^tools\[1\]: another tool is called 'a' too"):
            tools_of(declaring("a", "a"))


SHARED: list[dict[str, Any]] = [
    {"name": "plain", "description": "d", "parameters": SCHEMA, "strict": True},
    {"name": "none"},
    {"name": "root", "parameters": {"oneOf": [SCHEMA, {"type": "object", "properties": {"x": {"enum": [1, None]}}}]}},
    {"name": "limits", "parameters": {"type": "object", "properties": {
        "a b": {"type": "string", "pattern": "^(?=a)", "maxLength": 100_000, "format": "x", "default": "y"},
        "c": {"type": ["array", "null"], "items": {"$ref": "#/$defs/d"}, "minItems": 2, "additionalItems": False}},
        "$defs": {"d": {"type": "object", "properties": {"e": {"const": 1}}}}, "$schema": "s", "required": ["a b"]}},
]  # fmt: skip


@pytest.mark.parametrize("quirks", ["none", "all"])
@pytest.mark.parametrize("wire", WIRES)
def test_encoders_do_not_change_declarations_that_requests_share(wire: str, quirks: str) -> None:
    tools = [{"type": "function", "function": one} for one in SHARED]
    request = decode_request(msgspec.json.encode({"model": "m", "messages": USER, "tools": tools}), "openai-chat")
    before = msgspec.json.encode(request.settings.tools)
    known: Any = getattr(import_module(find_encoder(wire).__module__), "QUIRKS", ()) if quirks == "all" else ()
    msgspec.json.encode(find_encoder(wire)(request.request_for(wire)[0], frozenset(known)).body)
    assert msgspec.json.encode(request.settings.tools) == before

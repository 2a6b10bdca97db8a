"""The history format of each provider: read, exported unchanged, and moved to every other provider."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from copy import deepcopy
from typing import Any

import google.genai.types
import openai.types.responses
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
    UnknownProviderError,
    UnknownWireError,
    UsageError,
    as_messages,
    export_messages,
)
from penstock.history.file import read_history
from penstock.messages import (
    MARK,
    VERSION,
    assistant,
    decode_messages,
    encode_messages,
    result,
    system,
    tool_results,
    user,
)
from penstock.wires import WIRES, wire_name
from tests.budget import sample
from tests.cases import each

Json = dict[str, Any]

PIXEL = "iVBORw0KGgo="
PICTURE = Image(f"data:image/png;base64,{PIXEL}", "image/png")
CACHED = {"cache_control": {"type": "ephemeral"}}
ROME = '{"city":"Rome"}'

RESPONSES: Json = {
    "instructions": "Be brief.",
    "input": [
        {"type": "message", "role": "user", "content": [
            {"type": "input_text", "text": "Rome?"},
            {"type": "input_image", "detail": "low", "image_url": f"data:image/png;base64,{PIXEL}"},
        ]},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}],
         "encrypted_content": "gAAA"},
        {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "phase": "commentary",
         "content": [
            {"type": "output_text", "text": "Looking.", "annotations": [{"type": "url_citation", "url": "u:x"}]},
            {"type": "refusal", "refusal": "Not there."},
        ]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": "Rome"}},
        {"type": "function_call", "id": "fc_1", "status": "completed", "call_id": "call_1", "name": "weather",
         "arguments": ROME},
        {"type": "custom_tool_call", "call_id": "call_2", "name": "sql", "input": "SELECT 1"},
        {"type": "function_call_output", "call_id": "call_1", "status": "completed", "output": [
            {"type": "input_text", "text": "sunny"},
            {"type": "input_image", "detail": "auto", "image_url": f"data:image/png;base64,{PIXEL}"},
        ]},
        {"type": "custom_tool_call_output", "call_id": "call_2", "output": "1"},
        {"type": "item_reference", "id": "msg_9"},
        {"type": "message", "role": "assistant", "content": "Sunny."},
        {"type": "message", "role": "user", "content": "And Oslo?"},
    ],
}  # fmt: skip

ANTHROPIC: Json = {
    "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind.", **CACHED}],
    "messages": [
        {"role": "user", "content": [
            {"type": "text", "text": "Rome?", **CACHED},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}, **CACHED},
            {"type": "search_result", "title": "Rome", "source": "https://x.test",
             "content": [{"type": "text", "text": "A city."}]},
        ]},
        {"role": "assistant", "content": [
            {"type": "thinking", "thinking": "Hm.", "signature": "abc"},
            {"type": "redacted_thinking", "data": "xyz"},
            {"type": "text", "text": "Looking.", "citations": [{"type": "char_location"}], **CACHED},
            {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}},
            {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []},
            {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Rome"}, **CACHED},
            {"type": "tool_use", "id": "toolu_2", "name": "roll", "input": {}},
        ]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "text", "text": "sunny", **CACHED}]},
            {"type": "tool_result", "tool_use_id": "toolu_2", "content": "It broke.", "is_error": True, **CACHED},
            {"type": "text", "text": "Well?"},
        ]},
    ],
}  # fmt: skip

GEMINI: Json = {
    "systemInstruction": {"parts": [{"text": "Be brief."}]},
    "contents": [
        {"role": "user", "parts": [
            {"text": "Rome?"},
            {"inlineData": {"mimeType": "image/png", "data": PIXEL}},
            {"fileData": {"mimeType": "video/mp4", "fileUri": "https://x.test/a.mp4"},
             "videoMetadata": {"startOffset": "1s"}},
        ]},
        {"role": "model", "parts": [
            {"text": "Hm.", "thought": True, "thoughtSignature": "sig0"},
            {"text": "Looking.", "thoughtSignature": "sig1"},
            {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "sig2"},
            {"functionCall": {"name": "weather", "args": {"city": "Rome"}}, "thoughtSignature": "sig3"},
            {"functionCall": {"name": "weather", "args": {"city": "Oslo"}}},
            {"functionCall": {"id": "given", "name": "roll", "args": {}}},
            {"text": "", "thoughtSignature": "sig4"},
        ]},
        {"role": "user", "parts": [
            {"functionResponse": {"name": "weather", "response": {"result": "sunny"}}},
            {"functionResponse": {"name": "weather", "response": {"sky": "grey", "wind": 3}}},
            {"functionResponse": {"id": "given", "name": "roll", "response": {"error": "It broke."}}},
        ]},
        {"role": "model", "parts": [{"text": "Sunny."}]},
    ],
}  # fmt: skip

BEDROCK: Json = {
    "system": [{"text": "Be brief."}, {"cachePoint": {"type": "default"}}],
    "messages": [
        {"role": "user", "content": [
            {"text": "Rome?"},
            {"guardContent": {"text": {"text": "Look at this.", "qualifiers": ["query"]}}},
            {"image": {"format": "png", "source": {"bytes": PIXEL}}},
            {"document": {"format": "pdf", "name": "a", "source": {"bytes": "JVBERg=="},
                          "citations": {"enabled": True}}},
            {"cachePoint": {"type": "default"}},
        ]},
        {"role": "assistant", "content": [
            {"reasoningContent": {"reasoningText": {"text": "Hm.", "signature": "abc"}}},
            {"reasoningContent": {"redactedContent": "eHl6"}},
            {"citationsContent": {"content": [{"text": "Looking."}], "citations": [{"title": "Rome"}]}},
            {"toolUse": {"toolUseId": "tooluse_1", "name": "weather", "input": {"city": "Rome"}}},
            {"toolUse": {"toolUseId": "tooluse_2", "name": "roll", "input": {}, "type": "server_tool_use"}},
        ]},
        {"role": "user", "content": [
            {"toolResult": {"toolUseId": "tooluse_1", "content": [{"json": {"sky": "blue"}}], "status": "success"}},
            {"toolResult": {"toolUseId": "tooluse_2", "content": [{"text": "It broke."}], "status": "error"}},
        ]},
    ],
}  # fmt: skip

CHAT: Json = {
    "messages": [
        {"role": "system", "content": "Be brief.", **CACHED},
        {"role": "system", "content": [{"type": "text", "text": "Be kind.", **CACHED}]},
        {"role": "user", "name": "ada", "content": [
            {"type": "text", "text": "Rome?", **CACHED},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}", "detail": "low"}},
        ]},
        {"role": "assistant", "content": [{"type": "text", "text": "Looking.", **CACHED}], "reasoning": "Hm.",
         "reasoning_details": [{"type": "reasoning.text", "text": "Hm."}],
         "tool_calls": [
            {"id": "call_1", "type": "function", "index": 0, "function": {"name": "weather", "arguments": ROME},
             "extra_content": {"google": {"thought_signature": "xyz"}}},
            {"id": "call_2", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}},
        ]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny", **CACHED},
        {"role": "tool", "tool_call_id": "call_2", "content": [{"type": "text", "text": "1", **CACHED}]},
        {"role": "assistant", "content": None, "refusal": "No."},
    ],
}  # fmt: skip

OLLAMA: Json = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Rome?", "images": [PIXEL]},
        {"role": "assistant", "content": "Looking.", "thinking": "Hm.", "tool_calls": [
            {"function": {"name": "weather", "arguments": {"city": "Rome"}}},
            {"function": {"name": "weather", "arguments": {"city": "Oslo"}}},
        ]},
        {"role": "tool", "content": "sunny", "tool_name": "weather"},
        {"role": "tool", "content": "grey", "tool_name": "weather"},
    ],
}  # fmt: skip

COHERE: Json = {
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [
            {"type": "text", "text": "Rome?"},
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
        ]},
        {"role": "assistant", "tool_plan": "I will look.", "tool_calls": [
            {"id": "weather_1", "type": "function", "function": {"name": "weather", "arguments": ROME}},
        ]},
        {"role": "tool", "tool_call_id": "weather_1", "content": [
            {"type": "document", "document": {"id": "1", "data": {"sky": "blue"}}},
        ]},
        {"role": "assistant", "content": [{"type": "text", "text": "Sunny."}], "citations": [{"start": 0, "end": 5}]},
    ],
}  # fmt: skip

INTERACTIONS: Json = {
    "system_instruction": "Be brief.",
    "input": [
        {"type": "user_input", "content": [
            {"type": "text", "text": "Rome?"},
            {"type": "image", "mime_type": "image/png", "data": PIXEL, "resolution": "low"},
            {"type": "document", "mime_type": "application/pdf", "uri": "https://files.example/1"},
        ]},
        {"type": "thought", "signature": "sig0", "summary": [{"type": "text", "text": "Hm."}]},
        {"type": "function_call", "id": "fc_1", "name": "weather", "arguments": {"city": "Rome"}},
        {"type": "function_result", "call_id": "fc_1", "name": "weather", "result": {"sky": "blue"}},
        {"type": "thought", "signature": "sig1"},
        {"type": "google_search_call", "id": "s_1", "arguments": {"queries": ["Rome"]}, "signature": "sig2"},
        {"type": "google_search_result", "call_id": "s_1", "result": [{"title": "Rome"}], "signature": "sig3"},
        {"type": "function_call", "id": "fc_2", "name": "weather", "arguments": {"city": "Oslo"}, "signature": "sig4"},
        {"type": "function_result", "call_id": "fc_2", "name": "weather", "result": "no", "is_error": True},
        {"type": "model_output", "content": [
            {"type": "text", "text": "Sunny.", "annotations": [{"type": "url_citation", "start_index": 0}]},
        ]},
    ],
}  # fmt: skip

BODIES: dict[str, Json] = {
    "openai-chat": CHAT,
    "gemini-interactions": INTERACTIONS,
    "openai-responses": RESPONSES,
    "anthropic": ANTHROPIC,
    "gemini": GEMINI,
    "bedrock": BEDROCK,
    "ollama": OLLAMA,
    "cohere": COHERE,
}
every_wire = pytest.mark.parametrize("wire", WIRES)


# Laws.


@every_wire
def test_a_body_is_exported_as_it_was_read(wire: Any) -> None:
    again = export_messages(BODIES[wire], wire)
    assert (without_ids(again) if wire == "ollama" else again) == BODIES[wire]


def without_ids(body: Json) -> Json:
    """A body of Ollama without the generated ids: Ollama matches results by the name of the tool."""
    for message in body["messages"]:
        message.pop("tool_call_id", None)
        for call in message.get("tool_calls", []):
            del call["id"]
    return body


@every_wire
@each("to", WIRES)
def test_a_body_moves_to_every_wire_without_its_vendor_state(wire: Any, to: Any) -> None:
    taken = [without_media(message) for message in as_messages(BODIES[wire])]
    body = export_messages(taken, to)
    moved = as_messages(body)
    assert [call.arguments for call in calls(moved)] == [call.arguments for call in calls(taken)]
    assert [as_value(result.text) for result in results(moved)] == [as_value(result.text) for result in results(taken)]
    if wire != to:
        assert [mark for mark in STATES[wire] if mark in json.dumps(body)] == []


STATES = {
    "openai-chat": ["ephemeral", "xyz", "reasoning.text", "ada"],
    "openai-responses": ["gAAA", "rs_1", "msg_1", "commentary", "url_citation", "ws_1", "fc_1", "msg_9"],
    "anthropic": ["ephemeral", "abc", "xyz", "char_location", "srvtoolu_1", "search_result"],
    "gemini": ["sig0", "sig1", "sig2", "sig3", "sig4", "PYTHON"],
    "gemini-interactions": ["sig0", "sig1", "sig2", "sig3", "sig4", "url_citation"],
    "bedrock": ["cachePoint", "guardContent", "abc", "eHl6", "citations", "server_tool_use"],
    "ollama": [],
    "cohere": ["I will look.", "citations"],
}
"""The strings in each body that only its own vendor understands."""


def as_value(text: str) -> Any:
    """The JSON value of a text, or the text: some providers convert one to the other."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def calls(messages: list[Message]) -> list[ToolCall]:
    return [call for message in messages for call in message.tool_calls]


def results(messages: list[Message]) -> list[ToolResult]:
    return [result for message in messages for result in message.results]


def without_media(message: Message) -> Message:
    return Message(message.role, tuple(bare(part) for part in message.parts if not isinstance(part, Image | File)))


def bare(part: Any) -> Any:
    if not isinstance(part, ToolResult):
        return part
    content = tuple(shown for shown in part.content if isinstance(shown, Text))
    return ToolResult(part.call_id, part.name, content, part.is_error)


@every_wire
def test_a_body_is_stored_and_read_from_a_file(wire: str) -> None:
    body = BODIES[wire]
    messages = as_messages(body)
    assert decode_messages(encode_messages(messages)) == messages
    assert read_history(encode_messages(messages)) == messages
    assert read_history(json.dumps(body, indent=1).encode()) == messages
    assert as_messages(json.loads(encode_messages(messages))["messages"]) == messages


@pytest.mark.parametrize("wire", ["openai-chat", "ollama", "cohere"])
def test_a_list_and_json_lines_are_histories(wire: str) -> None:
    history = BODIES[wire]["messages"]
    lines = "\n".join(json.dumps(message) for message in history)
    assert as_messages(history) == read_history(lines.encode()) == as_messages(BODIES[wire])


def places(value: Any, place: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in a value."""
    items: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place, *(found for key, inner in items for found in places(inner, (*place, key)))]


def at(value: Any, place: tuple[Any, ...]) -> Any:
    for key in place:
        value = value[key]
    return value


@every_wire
def test_nothing_is_dropped_silently(wire: Any) -> None:
    """An additional field at any place is kept and exported again where the wire allows it, or it raises."""
    for place in places(BODIES[wire])[1:]:
        body = deepcopy(BODIES[wire])
        if not isinstance(at(body, place), dict):
            continue
        at(body, place)["surprise"] = "kept"
        try:
            messages = as_messages(body)
        except UsageError as refusal:
            is_kept = "surprise" in str(refusal)
        else:
            is_kept = b"surprise" in encode_messages(messages)
            is_plain = wire == "anthropic" and place[:-1] == ("messages",)  # its messages have no other fields
            is_kept &= is_plain or "surprise" in str(export_messages(messages, wire))
        assert is_kept, place


JUNK: list[Any] = [
    None,
    "",
    0,
    7,
    True,
    [],
    {},
    "x",
    [None],
    [7],
    ["x"],
    {"type": "x"},
    {"text": None},
    3.5,
    [[]],
    b"z",
]


@every_wire
@each("seed", sample(range(40), few=5))
def test_a_broken_body_is_read_or_raises_a_usage_error(wire: Any, seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(20):
        body = deepcopy(BODIES[wire])
        *path, last = rng.choice(places(body)[1:])
        if rng.random() < 0.3:
            del at(body, tuple(path))[last]
        else:
            at(body, tuple(path))[last] = deepcopy(rng.choice(JUNK))
        with suppress(UsageError):
            messages = as_messages(body)
            assert decode_messages(encode_messages(messages)) == messages
            for to in WIRES:
                with suppress(UsageError):
                    export_messages(messages, wire_name(to))


# What is read from each part.


def test_the_items_of_a_turn_are_one_message() -> None:
    instructions, asked, reply, found, again, last = as_messages(RESPONSES)
    assert instructions == system("Be brief.")
    assert [message.role for message in (asked, reply, found, again, last)] == [
        "user", "assistant", "tool", "assistant", "user",
    ]  # fmt: skip
    assert [(type(part), part.block) for part in reply.parts] == [  # type: ignore[union-attr]
        (Reasoning, 0), (Opaque, 0), (Text, 1), (Opaque, 1), (Opaque, 1), (Refusal, 2), (Opaque, 2), (Opaque, 3),
        (ToolCall, 4), (Opaque, 4), (ToolCall, 5),
    ]  # fmt: skip
    assert [(call.id, call.name, call.kind) for call in reply.tool_calls] == [
        ("call_1", "weather", "function"),
        ("call_2", "sql", "custom"),
    ]
    assert [(one.call_id, one.name, one.text) for one in found.results] == [
        ("call_1", "weather", "sunny"),
        ("call_2", "sql", "1"),
    ]
    assert again.parts == (
        Opaque(0, "openai-responses", "item_reference", {"type": "item_reference", "id": "msg_9"}),
        Text(1, "Sunny."),
    )


def test_an_item_of_an_unknown_type_is_kept_whole() -> None:
    item = {"type": "dream_call", "id": "dr_1", "sheep": [1, 2]}
    reference = {"type": "item_reference", "id": "rs_1"}
    kept = Opaque(0, "openai-responses", "dream_call", item)
    assert as_messages({"input": [item]}) == [assistant(kept)], "what stands in an input is an item"
    assert as_messages([item, reference])[0].parts[0] == kept, "and so is what stands among items"
    assert export_messages({"input": [item]}, "openai-responses") == {"input": [item]}


def test_an_unknown_part_of_a_model_is_kept_whole() -> None:
    gemini = {"contents": [{"role": "model", "parts": [{"dream": {"sheep": 1}, "thoughtSignature": "abc"}]}]}
    bedrock = {"messages": [{"role": "assistant", "content": [{"dream": {"sheep": 1}}, {"text": "Hi."}]}]}
    assert export_messages(gemini, "gemini") == gemini
    assert export_messages(bedrock, "bedrock") == bedrock


def test_broken_arguments_of_an_item_are_an_invalid_call() -> None:
    [message] = as_messages([{"type": "function_call", "call_id": "a", "name": "f", "arguments": '{"x'}])
    assert isinstance(message.parts[0], ToolCallInvalid)


def test_responses_without_ids_belong_to_the_calls_by_name_and_order() -> None:
    _, _, reply, found, _ = as_messages(GEMINI)
    assert [call.id for call in reply.tool_calls] == ["call_weather", "call_weather_2", "given"]
    assert [(one.call_id, one.name, one.text, one.is_error) for one in found.results] == [
        ("call_weather", "weather", "sunny", False),
        ("call_weather_2", "weather", '{"sky": "grey", "wind": 3}', False),
        ("given", "roll", "It broke.", True),
    ]


def test_a_response_without_a_call_has_an_id_of_its_own() -> None:
    response = {"role": "function", "parts": [{"functionResponse": {"name": "f", "response": {}}}]}
    [found] = as_messages([response])
    assert [one.call_id for one in found.results] == ["call_f"]


def test_new_ids_are_unique() -> None:
    call = {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]}
    answer = {"role": "user", "parts": [{"functionResponse": {"name": "f", "response": {"result": "1"}}}]}
    messages = as_messages([call, answer, call, answer])
    assert [call.id for call in calls(messages)] == ["call_f", "call_f_2"]
    assert [one.call_id for one in results(messages)] == ["call_f", "call_f_2"]


def test_the_spelling_of_googles_sdk_is_read() -> None:
    snake = [
        {"role": "user", "parts": ["Rome?", {"inline_data": {"mime_type": "image/png", "data": PIXEL}}]},
        {"role": "model", "parts": [
            {"thought_signature": "c2ln", "function_call": {"name": "get_it", "args": {"a_b": 1}}},
        ]},
        {"role": "user", "parts": [{"function_response": {"name": "get_it", "response": {"result": "1"}}}]},
    ]  # fmt: skip
    types = google.genai.types
    objects = [
        types.Content(
            role="user",
            parts=[types.Part(text="Rome?"), types.Part.from_bytes(data=b"\x89PNG\r\n\x1a\n", mime_type="image/png")],
        ),
        types.Content(
            role="model",
            parts=[
                types.Part(function_call=types.FunctionCall(name="get_it", args={"a_b": 1}), thought_signature=b"sig")
            ],
        ),
        types.Content(role="user", parts=[types.Part.from_function_response(name="get_it", response={"result": "1"})]),
    ]
    call = ToolCall("call_get_it", "get_it", {"a_b": 1}, '{"a_b": 1}')
    expected = [
        user("Rome?", PICTURE),
        assistant(call, Opaque(0, "gemini", "thought_signature", "c2ln")),
        tool_results(result(call, "1")),
    ]
    assert as_messages(snake) == as_messages(objects) == expected
    assert as_messages({"contents": "Rome?", "system_instruction": "Be brief."}) == [system("Be brief."), user("Rome?")]


def test_objects_of_openais_sdk_are_read() -> None:
    call = openai.types.responses.ResponseFunctionToolCall(
        type="function_call", call_id="call_1", name="weather", arguments=ROME, id="fc_1"
    )
    answer = {"type": "function_call_output", "call_id": "call_1", "output": "sunny"}
    reply, found = as_messages([call, answer])
    assert [one.name for one in found.results] == ["weather"]
    assert export_messages([reply], "openai-responses")["input"][0]["id"] == "fc_1"


def test_bytes_of_boto3_are_read() -> None:
    content = [
        {"image": {"format": "png", "source": {"bytes": b"\x89PNG\r\n\x1a\n"}}},
        {"document": {"format": "txt", "name": "a", "source": {"text": "Hi."}}},
        {"video": {"format": "mp4", "source": {"s3Location": {"uri": "s3://b/a.mp4"}}}},
    ]
    assert as_messages([{"role": "user", "content": content}]) == [
        user(
            PICTURE,
            File("data:text/plain;base64,SGku", "text/plain", "a"),
            File("s3://b/a.mp4", "video/mp4"),
        )
    ]


def test_the_type_of_an_ollama_image_is_found_in_its_data() -> None:
    [message] = as_messages([{"role": "user", "content": "", "images": ["/9j/4AAQ", b"GIF89a"]}])
    assert [part.media_type for part in message.parts if isinstance(part, Image)] == ["image/jpeg", "image/gif"]


def test_repeated_function_calls_of_the_older_api_have_their_own_results() -> None:
    call = {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}
    messages = as_messages([call, {"role": "function", "name": "f", "content": "1"}] * 2)
    assert [(one.call_id, one.text) for one in results(messages)] == [("call_f", "1"), ("call_f_2", "1")]


# What is not joined, and in which order.


def test_results_in_user_messages_are_exported_unchanged() -> None:
    anthropic = [{"type": "tool_result", "tool_use_id": id, "content": id} for id in ("a", "b")]
    bedrock = [{"toolResult": {"toolUseId": id, "content": [{"text": id}]}} for id in ("a", "b")]
    for one, other in (anthropic, bedrock):
        split = as_messages([{"role": "user", "content": [one]}, {"role": "user", "content": [other]}])
        assert [[result.call_id for result in message.results] for message in split] == [["a"], ["b"]]
    gemini = [{"role": "user", "parts": [{"functionResponse": {"name": id, "response": {}}}]} for id in ("a", "b")]
    assert [message.role for message in as_messages(gemini)] == ["tool", "tool"]
    ours = [tool_results(ToolResult("a", "f")), tool_results(ToolResult("b", "f"))]
    assert as_messages(ours) == ours


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ({"type": "text", "text": "Well?"}, {"type": "tool_result", "tool_use_id": "a", "content": "1"}),
        ({"text": "Well?"}, {"toolResult": {"toolUseId": "a", "content": [{"text": "1"}]}}),
    ],
)
def test_text_and_results_of_a_user_message_keep_their_order(text: Json, answer: Json) -> None:
    text_message, found = user("Well?"), tool_results(ToolResult("a", "", (Text(0, "1"),)))
    assert as_messages([{"role": "user", "content": [answer, text]}]) == [found, text_message]
    assert as_messages([{"role": "user", "content": [text, answer]}]) == [text_message, found]
    assert as_messages([{"role": "user", "content": [text, answer, text]}]) == [text_message, found, text_message]


# The owner of a text.


def test_a_cache_mark_belongs_to_the_wire_of_its_history() -> None:
    marked = {"role": "user", "content": [{"type": "text", "text": "Hi.", **CACHED}]}
    assert export_messages([marked], "anthropic")["messages"] == [marked]
    assert export_messages([marked], "openai-chat") == {"messages": [{"role": "user", "content": "Hi."}]}
    chat = [{"role": "system", "content": "Be brief."}, marked]
    assert export_messages(chat, "openai-chat") == {"messages": chat}
    assert "cache_control" not in str(export_messages(chat, "anthropic"))
    assert "cache_control" not in str(export_messages(chat, "openai-chat", provider="openai"))


def test_fields_of_an_empty_message_are_not_sent() -> None:
    assert export_messages([{"role": "user", "content": "", "name": "ada"}, "Hi."], "openai-chat") == {
        "messages": [{"role": "user", "content": "Hi."}]
    }


def test_cohere_thinking_parts_are_not_taken_for_anthropic() -> None:
    thought = {"role": "assistant", "citations": [{"start": 0}], "content": [
        {"type": "thinking", "thinking": "Hm."}, {"type": "text", "text": "Hi."},
    ]}  # fmt: skip
    plan = {"role": "assistant", "tool_plan": "P", "tool_calls": [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}},
    ]}  # fmt: skip
    history = [{"role": "user", "content": "Hi."}, thought, {"role": "user", "content": "Ho."}, plan]
    assert export_messages(history, "cohere", "command-a-reasoning") == {"messages": history}


# Export.


def test_an_export_equals_what_a_model_sends() -> None:
    history = ["Rome?", assistant(ToolCall("call_1", "weather", {"city": "Rome"}))]
    [_, reply] = export_messages(history, "mistral", provider="mistral")["messages"]
    assert len(reply["tool_calls"][0]["id"]) == 9
    assert export_messages("Hi.", "openai-responses") == {
        "input": [{"type": "message", "role": "user", "content": "Hi."}]
    }
    with pytest.raises(UnknownWireError, match="smoke"):
        export_messages("Hi.", "smoke")  # type: ignore[arg-type]
    with pytest.raises(UnknownProviderError, match="nobody"):
        export_messages("Hi.", "anthropic", provider="nobody")  # type: ignore[arg-type]
    assert penstock.export_messages is export_messages


def test_container_and_fields_of_an_anthropic_response() -> None:
    answer = {
        "id": "msg_1", "type": "message", "role": "assistant", "model": "claude", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "Done."}], "container": {"id": "container_1"}, "usage": {},
    }  # fmt: skip
    assert export_messages(["Hi.", answer], "anthropic") == {
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Hi."}]},
            {"role": "assistant", "content": [{"type": "text", "text": "Done."}]},
        ],
        "container": "container_1",
    }


# What cannot be read.


@pytest.mark.parametrize(
    ("what", "complaint"),
    [
        ([{"role": "boss", "parts": []}], r"messages\[0\]: has the role 'boss'; expected user or model"),
        ({"contents": [{"parts": [{"type": "text"}]}]}, r"contents\[0\]\.parts\[0\]: a part of the type 'text' cannot"),
        ({"contents": [{"parts": [{"smell": 1}]}]}, r"contents\[0\]\.parts\[0\]: a part with smell cannot"),
        (
            [{"role": "user", "content": [{"text": "Hi."}, {"smell": {}}]}],
            r"messages\[0\]\.content\[1\]: a part with smell cannot be sent",
        ),
        (
            [{"role": "model", "parts": [{"functionCall": {"name": 7}}]}],
            r"messages\[0\]\.parts\[0\]\.functionCall\.name: expected a string, got int",
        ),
        ({"input": [{"type": "function_call", "call_id": 7}]}, r"input\[0\]\.call_id: expected a string, got int"),
        (
            {"input": [{"type": "user_input", "content": [{"type": "film"}]}]},
            r"input\[0\]\.content\[0\]: .*'film' cannot be sent",
        ),
        (
            {"input": [{"type": "message", "role": "user", "content": [{"type": "film"}]}]},
            r"input\[0\]\.content\[0\]: .*'film' cannot be sent",
        ),
        (
            {"input": [{"type": "message", "role": "assistant", "content": [{"type": "film"}]}]},
            r"input\[0\]\.content\[0\]: .*'film' is not a known part",
        ),
        ({"input": [{"type": "message", "role": "boss"}]}, r"input\[0\]: has the role 'boss'"),
        (
            {"messages": [{"role": "assistant", "content": [{"toolUse": {"toolUseId": 7}}]}]},
            r"messages\[0\]\.content\[0\]\.toolUse\.toolUseId: expected a string, got int",
        ),
        (
            {"messages": [{"role": "user", "content": [{"image": {"format": "png"}}]}]},
            r"messages\[0\]\.content\[0\]\.image: needs a source",
        ),
        ({"system": [{"image": {}}], "messages": []}, r"system\[0\]: .* not allowed in a system message"),
        ({"system": [{"type": "image"}], "messages": []}, r"system\[0\]: .* not allowed in a system message"),
        ([{"role": "user", "images": [7]}], r"messages\[0\]\.images\[0\]: expected base64 text or bytes, got int"),
        ({"prompt": "Hi."}, "message: has no role, only: prompt"),
        ([{"type": "text", "text": "Hi."}], r"messages\[0\]: .*'text' is not a message; put it into the content"),
        ([{"type": "tool_use", "id": "a"}], r"messages\[0\]: .*'tool_use' is not a message; put it into the content"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_raises_with_its_place(what: Any, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        as_messages(what)


# Files.


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"", "this is not a history: it is empty; expected JSON"),
        (b"\xff\xfe", "this is not a history: byte 0 is not UTF-8"),
        (b"Hello.", r"line 1, column 1: this is not JSON"),
        (b'[{"role": "user", "content": "Hi', r"line 1, column 30: the JSON is truncated"),
        (b'[{"role": "user",\n "content": "Hi."},', r"line 2, column 20: the JSON is truncated"),
        (b'{"role": "user", "content": "Hi."}\n{"role": ', r"line 2, column 10: the JSON is truncated"),
        (b'{"role": "user", "content": "Hi."}\n{"role": "user"} x', r"line 2, column 18: this is not JSON"),
        (b'{"role": "user", "content": "Hi."}\n7\n', r"line 2 is an int, not a message"),
        (b"7", "it is an int"),
        (b'"Hi."', "it is a str"),
        (b"[7]", r"messages\[0\]: expected .* got int"),
        (b'{"some": "thing"}', "has no role, only: some"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"penstock_history": 2, "messages": []}', r"this history has format 2, .* reads up to 1; update"),
        (b'{"penstock_history": "x", "messages": []}', "it has no 'penstock_history' number"),
        (b'{"penstock_history": 1}', r"messages: Expected `array`, got `null`"),
        (
            b'{"penstock_history": 1, "messages": [{"role": "user", "parts": [{"type": "film"}]}]}',
            r"messages\[0\]\.parts\[0\]\.type: Invalid value 'film'; this version cannot read such a message",
        ),
        (
            b'[{"role": "user", "parts": [{"type": "text", "text": "Hi."}]}]',
            r"messages\[0\]\.parts\[0\]: Object missing required field `block`",
        ),
        (b'[{"role": "tool", "parts": [{"type": "film"}]}]', r"messages\[0\]\.parts\[0\]\.type: Invalid value 'film'"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_a_history_raises_with_the_place(data: bytes, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        read_history(data)


def test_a_stored_history_has_a_version_and_older_ones_are_read() -> None:
    history = [user("Hi."), assistant("Ho.")]
    stored = json.loads(encode_messages(history))
    assert stored[MARK] == VERSION
    older = json.dumps(stored["messages"]).encode()
    assert decode_messages(older) == read_history(older) == history
    with pytest.raises(UsageError, match="has format 2"):
        decode_messages(json.dumps({**stored, MARK: VERSION + 1}))
    with pytest.raises(UsageError, match="this is not a history"):
        decode_messages(b"{")
    with pytest.raises(UsageError, match="this is not a history: it has no 'penstock_history'"):
        decode_messages(b"7")
    assert read_history(b"\xef\xbb\xbf[]") == []

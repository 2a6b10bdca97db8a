"""Requests for Chat Completions and Responses: exact bodies, which OpenAI's own types accept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from hypothesis import given, strategies
from mistralai.client import models as mistral
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)
from pydantic import TypeAdapter

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
)
from penstock.declarations import read_declarations
from penstock.messages import assistant, file, image, result, system, tool_results, user
from penstock.wires import find_encoder, find_facts
from penstock.wires.openai_chat import encode_request as openai_chat
from penstock.wires.openai_chat.reasoning_fields import STATE_FIELDS
from penstock.wires.shared.encode_request.ids import Ids, fit_id, fit_name
from penstock.wires.shared.encode_request.message_writing import split_system
from penstock.wires.shared.encode_request.settle import NO_ANSWER
from penstock.wires.shared.encode_request.settle import settle as settle_request
from penstock.wires.shared.facts import LETTERS_AND_DIGITS, WORD, IdRules, StateFacts, WireFacts
from penstock.wires.shared.request import Request
from tests.cases import each
from tests.support import NO_CORPUS, SHARED, decode_pieces, vectors

PIXEL = "data:image/png;base64,iVBORw0KGgo="
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}
SQL = {"type": "custom", "custom": {"name": "sql", "description": "Runs SQL.", "format": {"type": "text"}}}
ROME = ToolCall("call_1", "weather", {"city": "Rome"}, '{"city": "Rome"}', block=1)
OSLO = ToolCall("call_2", "weather", {"city": "Oslo"}, block=2)
SELECT = ToolCall("call_3", "sql", {"input": "SELECT 1"}, "SELECT 1", kind="custom", block=3)


def request(*messages: Message, tools: Any = (), **settings: Any) -> Request:
    return Request(model="gpt-5", messages=messages, tools=tuple(read_declarations(tools)), **settings)


def chat(*messages: Message, quirks: Any = (), **settings: Any) -> dict[str, Any]:
    return find_encoder("openai-chat")(request(*messages, **settings), frozenset(quirks)).body


def responses(*messages: Message, **settings: Any) -> dict[str, Any]:
    return find_encoder("openai-responses")(request(*messages, **settings), frozenset()).body


def items(*messages: Message, **settings: Any) -> list[Any]:
    body = responses(*messages, **settings)
    assert_openai_takes("openai-responses", body)
    return body["input"]


def written(*messages: Message, quirks: Any = (), **settings: Any) -> list[Any]:
    return chat(*messages, quirks=quirks, **settings)["messages"]


TYPES = {
    ("openai-chat", True): TypeAdapter(CompletionCreateParamsStreaming),
    ("openai-chat", False): TypeAdapter(CompletionCreateParamsNonStreaming),
    ("openai-responses", True): TypeAdapter(ResponseCreateParamsStreaming),
    ("openai-responses", False): TypeAdapter(ResponseCreateParamsNonStreaming),
}


def assert_openai_takes(wire: str, body: dict[str, Any]) -> None:
    """OpenAI's own types accept the body and know all its fields: they drop unknown fields silently."""
    read: Any = TYPES[wire, body.get("stream", False)].validate_python(body)
    assert whole(read) == body


def whole(value: Any) -> Any:
    match value:
        case dict():
            return {key: whole(inner) for key, inner in value.items()}
        case str() | int() | float() | None:
            return value
        case _:
            return [whole(inner) for inner in value]


# Ids.


def test_an_id_that_fits_is_not_changed() -> None:
    assert fit_id("call_1", IdRules()) == "call_1"
    assert fit_id("a1B2c3D4e", IdRules(alphabet=LETTERS_AND_DIGITS, length=9)) == "a1B2c3D4e"
    assert fit_id("toolu_01-x", IdRules(alphabet=WORD, max_length=64)) == "toolu_01-x"


@pytest.mark.parametrize("id", ["", "call_1", "functions.weather:0", "é", "\ud83d", "x" * 500])
def test_an_id_that_does_not_fit_is_rewritten_deterministically(id: str) -> None:
    nine = fit_id(id, IdRules(alphabet=LETTERS_AND_DIGITS, length=9))
    assert len(nine) == 9
    assert set(nine) <= set(LETTERS_AND_DIGITS)
    assert nine == fit_id(id, IdRules(alphabet=LETTERS_AND_DIGITS, length=9))
    assert 0 < len(fit_id(id, IdRules(max_length=40))) <= 40
    assert fit_id(id, IdRules(alphabet=WORD))


def test_call_ids_of_a_request_are_unique() -> None:
    ids = Ids(IdRules(alphabet=LETTERS_AND_DIGITS, length=9))
    taken = [ids.take(id) for id in ["call_0", "call_0", "call_0", "abcdefghi", "abcdefghi", "", ""]]
    assert len(set(taken)) == len(taken)
    assert [Ids(IdRules()).take("call_0"), *map(Ids(IdRules()).take, ["a", "a"])] == ["call_0", "a", "a_2"]


def test_a_name_that_a_model_made_up_is_cleaned() -> None:
    assert fit_name("query<|channel|>commentary") == "query_channel_commentary"
    assert fit_name("x" * 100) == "x" * 64
    assert fit_name("") == "unnamed"
    assert fit_name("calendar.find", find_facts("gemini")) == "calendar.find"
    assert fit_name("x" * 200, find_facts("anthropic")) == "x" * 128


# Histories.


def settle(*messages: Message, wire: str = "w", tools: Any = (), takes_blank: bool = True) -> list[Message]:
    states = StateFacts("signature", data="text"), StateFacts("other", data="any")
    facts = WireFacts(wire=wire, takes_blank=takes_blank, states=states)
    return settle_request(request(*messages, tools=tools), facts, frozenset())


def test_results_follow_their_turn_together_and_in_the_order_of_the_calls() -> None:
    hurry = user("Hurry.")
    early, late = result(ROME, "sunny"), result(OSLO, "rain")
    settled = settle(assistant(ROME, OSLO), tool_results(late), hurry, tool_results(early))
    assert settled == [assistant(ROME, OSLO), tool_results(early, late), hurry]


def test_results_in_a_user_message_are_accepted() -> None:
    settled = settle(assistant(ROME), Message("user", (result(ROME, "sunny"), *user("And Oslo?").parts)))
    assert settled == [assistant(ROME), tool_results(result(ROME, "sunny")), user("And Oslo?")]


def test_an_id_used_in_every_turn_is_matched_within_its_turn() -> None:
    first, second = ToolCall("call_0", "weather", {"city": "Rome"}), ToolCall("call_0", "weather", {"city": "Oslo"})
    turns = [
        assistant(first),
        tool_results(result(first, "sunny")),
        assistant(second),
        tool_results(result(second, "rain")),
    ]
    settled = settle(*turns)
    assert [message.results[0].text for message in settled if message.results] == ["sunny", "rain"]
    ids = [(message.tool_calls or message.results)[0] for message in settled]
    assert [getattr(part, "id", getattr(part, "call_id", "")) for part in ids] == [
        "call_0", "call_0", "call_0_2", "call_0_2",
    ]  # fmt: skip


def test_two_calls_with_one_id_get_their_results_in_turn() -> None:
    twins = [ToolCall("grep:3", "grep", {"for": word}, block=at) for at, word in enumerate("ab")]
    settled = settle(assistant(*twins), tool_results(*(result(twin, str(twin.arguments)) for twin in twins)))
    assert [found.text for found in settled[1].results] == ["{'for': 'a'}", "{'for': 'b'}"]
    assert [found.call_id for found in settled[1].results] == [call.id for call in settled[0].tool_calls]


def test_a_second_result_replaces_the_first() -> None:
    settled = settle(assistant(ROME), tool_results(result(ROME, "waiting"), result(ROME, "sunny")))
    assert settled[1].results == [result(ROME, "sunny")]


def test_an_invalid_call_is_sent_only_with_a_result() -> None:
    cut = ToolCallInvalid(1, "call_1", "weather", '{"city": "Ro', "cut")
    twice = ToolCallInvalid(2, "call_2", "weather", '{"a":1}{"a":1}', "duplicated", repaired={"a": 1})
    text = ToolCallInvalid(3, "call_3", "sql", "SELECT", "cut", kind="custom")
    state = Opaque(1, "w", "signature", "abc")
    assert settle(assistant("Hm.", cut, state)) == [assistant("Hm.")]
    answered = tool_results(*(result(call, "It was cut.", is_error=True) for call in (cut, twice, text)))
    sent = settle(assistant(cut, state, twice, text), answered)
    assert [call.arguments for call in sent[0].tool_calls] == [
        {"invalid_json": '{"city": "Ro'}, {"a": 1}, {"input": "SELECT"},
    ]  # fmt: skip
    assert sent[0].state_of(1, "w") == {"signature": "abc"}
    assert sent[1] == answered


def test_state_of_other_wires_and_empty_parts_are_left_out() -> None:
    reply = assistant(Reasoning(0, ""), Opaque(0, "w", "signature", "abc"), Opaque(5, "v", "other", 1), "", "Hi.")
    assert settle(reply) == [assistant(Reasoning(0, ""), Opaque(0, "w", "signature", "abc"), reply.parts[-1])]
    assert settle(reply, wire="v")[0].parts == (reply.parts[2], reply.parts[-1])
    assert settle(user(""), assistant()) == []
    assert settle(user(" "), takes_blank=False) == []


def test_names_are_those_of_the_calls_and_only_undeclared_ones_are_cleaned() -> None:
    dotted, odd = ToolCall("a", "maps.search", {}), ToolCall("b", "maps.find<|x|>", {}, block=1)
    sent = settle(assistant(dotted, odd), tool_results(ToolResult("a", ""), ToolResult("b", "")), tools=["maps.search"])
    assert [call.name for call in sent[0].tool_calls] == ["maps.search", "maps_find_x_"]
    assert [found.name for found in sent[1].results] == ["maps.search", "maps_find_x_"]


def test_a_result_without_a_call_is_sent_in_its_place() -> None:
    orphan = ToolResult("call_9", "weather")
    assert settle(user("Hi."), tool_results(orphan)) == [user("Hi."), tool_results(orphan)]


IDS = strategies.sampled_from(["a", "b", "call_0", "x" * 70, "ü"])
SAID = strategies.builds(
    lambda ids: assistant(*(ToolCall(id, "weather", {}, block=at) for at, id in enumerate(ids))), strategies.lists(IDS)
)
FOUND = strategies.builds(lambda ids: tool_results(*(ToolResult(id, "") for id in ids)), strategies.lists(IDS))


@given(strategies.lists(SAID | FOUND | strategies.just(user("Hi."))))
def test_calls_are_unique_and_results_follow_them_in_any_history(messages: list[Message]) -> None:
    facts = WireFacts(wire="w", ids=IdRules(alphabet=WORD, max_length=64))
    sent = settle_request(request(*messages), facts, frozenset())
    calls = [call.id for message in sent for call in message.tool_calls]
    assert len(set(calls)) == len(calls)
    for before, message in zip([user(""), *sent], sent, strict=False):
        answered = [found.call_id for found in message.results]
        if set(answered) & set(calls):
            assert before.role == "assistant"
            assert answered == [call.id for call in before.tool_calls if call.id in answered]


def test_a_misplaced_part_raises_with_its_place() -> None:
    with pytest.raises(UsageError, match=r"messages\[1\]: Image is not allowed in a message of the role system"):
        settle(user("Hi."), system(Image(PIXEL)))


def test_split_system_joins_system_messages() -> None:
    assert split_system([system("a", "b"), user("Hi."), system("c")]) == ("a\n\nb\n\nc", [user("Hi.")])


# Chat Completions.

CALLING = (system("Be brief."), user("Rome and Oslo?"), assistant("Let me look.", ROME, OSLO))
ANSWERED = (*CALLING, tool_results(result(OSLO, "rain"), result(ROME, "sunny")))


def test_a_plain_question() -> None:
    assert chat(user("Hi.")) == {
        "model": "gpt-5",
        "messages": [{"role": "user", "content": "Hi."}],
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    whole = find_encoder("openai-chat")(request(user("Hi."), is_streaming=False), frozenset())
    assert whole.path == "/chat/completions"
    assert whole.body == {"model": "gpt-5", "messages": [{"role": "user", "content": "Hi."}]}


def test_calls_and_their_results() -> None:
    assert chat(*ANSWERED, tools=[WEATHER], tool_choice="auto", is_parallel=True) == {
        "model": "gpt-5",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Rome and Oslo?"},
            {
                "role": "assistant",
                "content": "Let me look.",
                "tool_calls": [
                    {"id": "call_1", "type": "function",
                     "function": {"name": "weather", "arguments": '{"city": "Rome"}'}},
                    {"id": "call_2", "type": "function",
                     "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}},
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "sunny"},
            {"role": "tool", "tool_call_id": "call_2", "content": "rain"},
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [WEATHER],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
    }  # fmt: skip


def test_tools_of_every_kind() -> None:
    search = {"type": "web_search_preview"}
    strict = {**WEATHER, "function": {**WEATHER["function"], "strict": True}}  # type: ignore[dict-item]
    tools = [strict, SQL, search, "plain"]
    sent = chat(user("Hi."), tools=tools, tool_choice="sql")
    plain = {"type": "function", "function": {"name": "plain", "parameters": {"type": "object", "properties": {}}}}
    assert sent["tools"] == [strict, SQL, search, plain]
    assert sent["tool_choice"] == {"type": "custom", "custom": {"name": "sql"}}
    named = chat(user("Hi."), tools=tools, tool_choice="weather")
    assert named["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    assert "tool_choice" not in chat(user("Hi."), tool_choice="auto", is_parallel=False)


def test_an_unknown_tool_choice_raises() -> None:
    for encode in (chat, responses):
        with pytest.raises(UsageError, match=r"'wether' is neither .* nor a declared tool \(weather\)"):
            encode(user("Hi."), tools=[WEATHER], tool_choice="wether")


def test_a_custom_call_goes_back_as_its_text() -> None:
    reply = written(assistant(SELECT), tool_results(result(SELECT, "1")))
    assert reply == [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_3", "type": "custom", "custom": {"name": "sql", "input": "SELECT 1"}}],
        },
        {"role": "tool", "tool_call_id": "call_3", "content": "1"},
    ]


def test_a_custom_tool_becomes_a_function_with_no_custom_tools() -> None:
    sent = chat(assistant(SELECT), tools=[SQL], tool_choice="sql", quirks=["no-custom-tools"])
    call = sent["messages"][0]["tool_calls"][0]
    assert call["function"] == {"name": "sql", "arguments": '{"input": "SELECT 1"}'}
    assert sent["tools"][0]["function"]["parameters"]["required"] == ["input"]
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "sql"}}


def test_images_files_and_audio() -> None:
    [message] = written(
        user("Look:", image("https://x.test/a.png"), image(b"abc"), file(b"%PDF", "application/pdf", "a.pdf")),
    )
    assert message["content"] == [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "https://x.test/a.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,YWJj"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBERg=="}},
    ]
    [message] = written(user(File("file-abc"), file(b"abc", "audio/mpeg"), File("data:audio/wav;base64,YWJj")))
    assert message["content"] == [
        {"type": "file", "file": {"file_id": "file-abc"}},
        {"type": "input_audio", "input_audio": {"data": "YWJj", "format": "mp3"}},
        {"type": "input_audio", "input_audio": {"data": "YWJj", "format": "wav"}},
    ]
    with pytest.raises(UsageError, match="download it"):
        written(user(file("https://x.test/a.pdf")))
    with pytest.raises(UsageError, match="assistant"):
        written(assistant("Here:", Image(PIXEL)))


def test_images_of_results_follow_in_a_user_message() -> None:
    shot = result(ROME, Image(PIXEL))
    both = result(OSLO, "A chart:", Image("https://x.test/b.png"))
    assert written(assistant(ROME, OSLO), tool_results(shot, both), user("Well?"))[1:] == [
        {"role": "tool", "tool_call_id": "call_1", "content": "The result is in the next message."},
        {"role": "tool", "tool_call_id": "call_2", "content": "A chart:"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "From weather (call_1):"},
                {"type": "image_url", "image_url": {"url": PIXEL}},
                {"type": "text", "text": "From weather (call_2):"},
                {"type": "image_url", "image_url": {"url": "https://x.test/b.png"}},
            ],
        },
        {"role": "user", "content": "Well?"},
    ]
    assert written(assistant(OSLO), tool_results(both), quirks=["media-in-results"])[1]["content"] == [
        {"type": "text", "text": "A chart:"},
        {"type": "image_url", "image_url": {"url": "https://x.test/b.png"}},
    ]


def test_a_refusal_is_a_field_or_text() -> None:
    reply = assistant(Refusal(0, "I cannot."))
    assert written(reply) == [{"role": "assistant", "content": None, "refusal": "I cannot."}]
    assert written(reply, quirks=["refusal-as-text"]) == [{"role": "assistant", "content": "I cannot."}]


def test_reasoning_goes_back_only_with_an_echo_quirk() -> None:
    reply = assistant(Reasoning(0, "Hm."), ROME)
    assert not {"reasoning_content", "reasoning"} & written(reply)[0].keys()
    assert written(reply, quirks=["echo-reasoning"])[0]["reasoning_content"] == "Hm."
    assert written(reply, quirks=["echo-as-reasoning"])[0]["reasoning"] == "Hm."
    # A message with calls needs the field even if there was no thought; one without does not.
    assert written(assistant(ROME), quirks=["echo-reasoning"])[0]["reasoning_content"] == ""
    assert "reasoning_content" not in written(assistant("Hi."), quirks=["echo-reasoning"])[0]
    assert written(user("Hi."), assistant(Reasoning(0, "Hm."))) == [{"role": "user", "content": "Hi."}]


@pytest.mark.parametrize(
    "reply",
    [
        assistant(Reasoning(0, "Hm.")),
        assistant(""),
        Message("assistant", (Opaque(0, "anthropic", "signature", "abc"),)),
        Message("assistant", (Opaque(0, "anthropic", "server_tool_use", {"type": "server_tool_use", "id": "s"}),)),
        assistant(ToolCallInvalid(0, "c", "weather", "{", "cut")),
    ],
)
def test_an_empty_answer_between_user_messages_gets_a_placeholder(reply: Message) -> None:
    first, second = {"role": "user", "content": "Hi."}, {"role": "user", "content": "Hello?"}
    assert written(user("Hi."), reply, user("Hello?")) == [first, {"role": "assistant", "content": NO_ANSWER}, second]
    for provider in ("vllm", "sglang", "llamacpp", "lmstudio"):
        sent = penstock.export_messages([user("Hi."), reply, user("Hello?")], "openai-chat", provider=provider)
        assert penstock.check(sent, provider) == []
    assert written(user("Hi."), reply) == [first]
    assert written(user("Hi."), user("Hello?")) == [first, second], "a message without a response gets no text"


def test_vendor_state_goes_back_on_its_message_and_call() -> None:
    details = [{"type": "reasoning.text", "text": "Hm.", "signature": "abc", "index": 0}]
    signature = {"google": {"thought_signature": "xyz"}}
    reply = assistant(
        Reasoning(0, "Hm."),
        Opaque(0, "openai-chat", "reasoning_details", details),
        ROME,
        Opaque(1, "openai-chat", "extra_content", signature),
        OSLO,
        Opaque(2, "anthropic", "signature", "not for here"),
    )
    [message] = written(reply)
    assert message["reasoning_details"] == details
    assert [call.get("extra_content") for call in message["tool_calls"]] == [signature, None]
    [strict] = written(reply, quirks=["known-fields"])
    assert strict.keys() == {"role", "content", "tool_calls"}
    assert strict["tool_calls"][0].keys() == {"id", "type", "function"}


def test_options_have_the_names_of_the_provider() -> None:
    options = {"max_tokens": 9, "temperature": 0.5, "stop": "END", "seed": 7, "reasoning": "low", "top_p": None}
    sent = chat(user("Hi."), options=options, extra={"user": "u1", "stream_options": {"include_obfuscation": False}})
    assert_openai_takes("openai-chat", sent)
    assert {key: sent[key] for key in sent if key not in ("model", "messages", "stream")} == {
        "max_completion_tokens": 9,
        "temperature": 0.5,
        "stop": ["END"],
        "seed": 7,
        "reasoning_effort": "low",
        "user": "u1",
        "stream_options": {"include_usage": True, "include_obfuscation": False},
    }
    quirks = ["max-tokens", "random-seed", "reasoning-object", "no-stream-options"]
    sent = chat(user("Hi."), options=options, quirks=quirks)
    assert {key: sent[key] for key in sent if key not in ("model", "messages", "stream")} == {
        "max_tokens": 9,
        "temperature": 0.5,
        "stop": ["END"],
        "random_seed": 7,
        "reasoning": {"effort": "low"},
    }


@pytest.mark.parametrize(
    ("reasoning", "effort", "nested"),
    [
        ("high", "high", {"effort": "high"}),
        (2000, "low", {"max_tokens": 2000}),
        (False, "none", {"effort": "none"}),
    ],
)
def test_reasoning_is_an_effort_or_a_budget(reasoning: Any, effort: str, nested: Any) -> None:
    assert chat(user("Hi."), options={"reasoning": reasoning})["reasoning_effort"] == effort
    assert chat(user("Hi."), options={"reasoning": reasoning}, quirks=["reasoning-object"])["reasoning"] == nested
    assert responses(user("Hi."), options={"reasoning": reasoning})["reasoning"] == {"effort": effort}


def test_ids_of_calls_and_results_are_rewritten_together() -> None:
    long = ToolCall("call_" + "x" * 60, "weather", {})
    for quirks, length in ([], 24), (["nine-letter-ids"], 9):
        reply, answered = written(assistant(long), tool_results(result(long, "sunny")), quirks=quirks)
        [call] = reply["tool_calls"]
        assert call["id"] == answered["tool_call_id"]
        assert len(call["id"]) == length
    nine = ToolCall("gSIMJiOkT", "weather", {})
    assert written(assistant(nine), quirks=["nine-letter-ids"])[0]["tool_calls"][0]["id"] == "gSIMJiOkT"


def test_other_quirks() -> None:
    named = written(*ANSWERED, quirks=["name-in-results"])
    assert [message.get("name") for message in named[-2:]] == ["weather", "weather"]
    first = written(system("a"), user("Hi."), system("b"), quirks=["system-only-first"])
    assert first == [{"role": "system", "content": "a\n\nb"}, {"role": "user", "content": "Hi."}]
    assert written(system("a"), user("Hi."), system("b"))[2] == {"role": "system", "content": "b"}
    silent = chat(user("Hi."), tools=[WEATHER], is_parallel=False, quirks=["no-parallel-switch"])
    assert "parallel_tool_calls" not in silent


def test_every_quirk_has_a_name_and_is_listed() -> None:
    constants = {value for name, value in vars(openai_chat).items() if name.isupper() and isinstance(value, str)}
    assert constants - {openai_chat.WIRE, openai_chat.PATH, NO_ANSWER, LETTERS_AND_DIGITS} == openai_chat.QUIRKS


def test_arguments_that_are_not_json_are_sent_as_json() -> None:
    xml = ToolCall("a", "weather", {"city": "Rom"}, "<city>Rom</city>", origin="text:xml", sealed_by="whole")
    none = ToolCall("b", "weather", {}, "", sealed_by="finish", block=1)
    calls = written(assistant(xml, none))[0]["tool_calls"]
    assert [call["function"]["arguments"] for call in calls] == ['{"city":"Rom"}', "{}"]


# Responses.


def test_a_plain_question_for_responses() -> None:
    sent = find_encoder("openai-responses")(request(system("Be brief."), user("Hi.")), frozenset())
    assert sent.path == "/responses"
    assert sent.body == {
        "model": "gpt-5",
        "instructions": "Be brief.",
        "input": [{"type": "message", "role": "user", "content": "Hi."}],
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "stream": True,
    }


@pytest.mark.parametrize(
    "model", ["gpt-4o-mini", "gpt-4.1", "ft:gpt-4o:acme::1", "gpt-5-chat-latest", "chatgpt-4o-latest"]
)
def test_a_model_without_reasoning_is_not_asked_for_it(model: str) -> None:
    encode = find_encoder("openai-responses")
    assert "include" not in encode(Request(model=model, messages=(user("Hi."),)), frozenset()).body
    assert "include" in encode(Request(model="o4-mini", messages=(user("Hi."),)), frozenset()).body


def test_calls_results_and_tools_for_responses() -> None:
    picture = result(SELECT, "A chart:", Image(PIXEL))
    messages = (*ANSWERED, assistant(SELECT), tool_results(picture), system("Now be long."))
    body = responses(*messages, tools=[WEATHER, SQL, {"type": "web_search"}], tool_choice="weather", is_parallel=False)
    assert_openai_takes("openai-responses", body)
    assert body["input"] == [
        {"type": "message", "role": "user", "content": "Rome and Oslo?"},
        {"type": "message", "role": "assistant", "content": "Let me look."},
        {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city": "Rome"}'},
        {"type": "function_call", "call_id": "call_2", "name": "weather", "arguments": '{"city":"Oslo"}'},
        {"type": "function_call_output", "call_id": "call_1", "output": "sunny"},
        {"type": "function_call_output", "call_id": "call_2", "output": "rain"},
        {"type": "custom_tool_call", "call_id": "call_3", "name": "sql", "input": "SELECT 1"},
        {
            "type": "custom_tool_call_output",
            "call_id": "call_3",
            "output": [
                {"type": "input_text", "text": "A chart:"},
                {"type": "input_image", "detail": "auto", "image_url": PIXEL},
            ],
        },
        {"type": "message", "role": "system", "content": "Now be long."},
    ]
    assert body["tools"] == [
        {"type": "function", **WEATHER["function"], "strict": False},  # type: ignore[dict-item]
        {"type": "custom", **SQL["custom"]},  # type: ignore[dict-item]
        {"type": "web_search"},
    ]
    assert body["tool_choice"] == {"type": "function", "name": "weather"}
    assert body["parallel_tool_calls"] is False
    named = {name: responses(user("Hi."), tools=[SQL, {"type": "web_search"}], tool_choice=name) for name in
             ("sql", "web_search")}  # fmt: skip
    assert named["sql"]["tool_choice"] == {"type": "custom", "name": "sql"}
    assert named["web_search"]["tool_choice"] == {"type": "web_search"}


def test_images_and_files_for_responses() -> None:
    [message] = items(
        user("Look:", image("https://x.test/a.png"), Image("file-img"), file(b"%PDF", "application/pdf"),
             file("https://x.test/a.pdf"), File("file-abc"))
    )  # fmt: skip
    assert message["content"] == [
        {"type": "input_text", "text": "Look:"},
        {"type": "input_image", "detail": "auto", "image_url": "https://x.test/a.png"},
        {"type": "input_image", "detail": "auto", "file_id": "file-img"},
        {"type": "input_file", "filename": "file.pdf", "file_data": "data:application/pdf;base64,JVBERg=="},
        {"type": "input_file", "file_url": "https://x.test/a.pdf"},
        {"type": "input_file", "file_id": "file-abc"},
    ]
    with pytest.raises(UsageError, match="openai-chat"):
        items(user(file(b"abc", "audio/wav")))


THOUGHT = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}],
           "encrypted_content": "gAAA", "content": None, "status": None}  # fmt: skip
SENT_THOUGHT = {key: value for key, value in THOUGHT.items() if value is not None}


def test_vendor_state_for_responses_goes_back_in_its_place() -> None:
    phase = {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant", "phase": "commentary"}
    search = {"id": "ws_1", "type": "web_search_call", "status": "completed",
              "action": {"type": "search", "query": "Rome", "queries": ["Rome"]}}  # fmt: skip
    call = {"id": "fc_1", "type": "function_call", "status": "completed", "call_id": "call_1", "name": "weather",
            "namespace": "maps"}  # fmt: skip
    wire = "openai-responses"
    reply = Message(
        "assistant",
        (
            Reasoning(0, "Hm."),
            Opaque(0, wire, "reasoning", THOUGHT),
            Opaque(1, wire, "web_search_call", search),
            penstock.Text(2, "Looking."),
            Opaque(2, wire, "message", phase),
            ToolCall("call_1", "weather", {"city": "Rome"}, block=3),
            Opaque(3, wire, "function_call", call),
            OSLO,
        ),
    )
    assert items(reply, tool_results(result(ROME, "sunny")))[:5] == [
        SENT_THOUGHT,
        search,
        {**phase, "content": [{"type": "output_text", "text": "Looking.", "annotations": []}]},
        {**call, "arguments": '{"city":"Rome"}'},
        {"type": "function_call", "call_id": "call_2", "name": "weather", "arguments": '{"city":"Oslo"}'},
    ]
    assert [item["type"] for item in responses(reply)["input"]].count("reasoning") == 1


def test_a_trailing_reasoning_item_is_left_out() -> None:
    cut = ToolCallInvalid(1, "call_1", "weather", "{", "cut")
    thought = Opaque(0, "openai-responses", "reasoning", THOUGHT)
    assert items(user("Hi."), Message("assistant", (thought, cut))) == [
        {"type": "message", "role": "user", "content": "Hi."}
    ]


def test_reasoning_without_content_is_sent_only_if_stored() -> None:
    bare = {**THOUGHT, "encrypted_content": None}
    reply = Message("assistant", (Opaque(0, "openai-responses", "reasoning", bare), Text(1, "Hi.")))
    assert [item["type"] for item in items(reply)] == ["message"]
    stored = responses(reply, extra={"store": True})
    assert [item["type"] for item in stored["input"]] == ["reasoning", "message"]
    assert stored["store"] is True


def test_an_output_without_its_call_is_left_out_unless_the_provider_keeps_the_history() -> None:
    item = {
        "type": "computer_call_output",
        "call_id": "c1",
        "output": {"type": "computer_screenshot", "image_url": "x"},
    }
    message = Message("assistant", (Opaque(0, "openai-responses", "computer_call_output", item),))
    assert penstock.check([user("Hi."), message]) == []
    assert items(user("Hi."), message)[1:] == []
    assert items(user("Hi."), message, extra={"previous_response_id": "r"})[1:] == [item]


def test_an_item_that_occurred_before_is_left_out() -> None:
    """As after a stream in which an item began again; its text stays."""
    item = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": []}
    first, again = (Opaque(block, "openai-responses", "message", item) for block in (0, 1))
    message = Message("assistant", (Text(0, "A"), first, Text(1, "B"), again))
    assert penstock.check([user("Hi."), message]) == []
    written = items(user("Hi."), message, extra={"store": False})
    assert json.dumps(written).count("msg_1") == 1
    assert all(text in json.dumps(written) for text in ('"A"', '"B"'))


def test_a_long_id_is_rewritten_for_responses() -> None:
    long = ToolCall("call_" + "x" * 80, "weather", {})
    call, output = items(assistant(long), tool_results(result(long, "sunny")))
    assert call["call_id"] == output["call_id"]
    assert len(call["call_id"]) <= 64


def test_a_result_of_a_stored_call_has_the_kind_of_its_tool() -> None:
    results = tool_results(ToolResult("call_1", "weather"), ToolResult("call_2", "sql"))
    sent = items(results, tools=[WEATHER, SQL], extra={"previous_response_id": "resp_1"})
    assert [item["type"] for item in sent] == ["function_call_output", "custom_tool_call_output"]


def test_options_for_responses() -> None:
    options = {"max_tokens": 9, "temperature": 0.5, "top_p": 1.0, "seed": 1, "reasoning": "low"}
    sent = responses(user("Hi."), options=options, extra={"reasoning": {"summary": "auto"}})
    assert_openai_takes("openai-responses", sent)
    assert (sent["max_output_tokens"], sent["temperature"], sent["top_p"]) == (9, 0.5, 1.0)
    assert sent["reasoning"] == {"effort": "low", "summary": "auto"}
    assert "seed" not in sent


# What OpenAI's own types and client say.

SCRIPTS: dict[str, tuple[Message, ...]] = {
    "question": (user("Hi."),),
    "answered": ANSWERED,
    "custom": (assistant(SELECT), tool_results(result(SELECT, "1"))),
    "pictures": (user("Look:", Image(PIXEL), file(b"%PDF", "application/pdf")),),
    "results with pictures": (assistant(ROME), tool_results(result(ROME, "A chart:", Image(PIXEL)))),
    "refusal": (user("Hi."), assistant(Refusal(0, "No."))),
    "several texts": (system("a", "b"), user("Hi.", "Ho."), assistant("x", ROME, "y"), system("c")),
}
SETTINGS: dict[str, Any] = {
    "tools": [WEATHER, SQL],
    "tool_choice": "weather",
    "is_parallel": True,
    "options": {"max_tokens": 9, "temperature": 0.5, "reasoning": "high"},
    "extra": {"user": "u1"},
}


@each("wire", ["openai-chat", "openai-responses"])
@each("is_streaming", [True, False])
@each("script", SCRIPTS)
def test_openais_types_accept_every_body(wire: str, script: str, is_streaming: bool) -> None:
    wanted = request(*SCRIPTS[script], is_streaming=is_streaming, **SETTINGS)
    assert_openai_takes(wire, find_encoder(wire)(wanted, frozenset()).body)


@pytest.mark.parametrize("script", SCRIPTS)
def test_openais_sdk_sends_the_same_bodies(script: str) -> None:
    received: list[httpx2.Request] = []

    def answer(sent_request: httpx2.Request) -> httpx2.Response:
        received.append(sent_request)
        return httpx2.Response(200, headers={"content-type": "text/event-stream"}, content=b"data: [DONE]\n\n")

    wanted = request(*SCRIPTS[script], **SETTINGS)
    with openai.OpenAI(api_key="none", http_client=httpx2.Client(transport=httpx2.MockTransport(answer))) as client:
        for wire, create in (
            ("openai-chat", client.chat.completions.create),
            ("openai-responses", client.responses.create),
        ):
            sent = find_encoder(wire)(wanted, frozenset())
            assert list(create(**sent.body)) == []
            assert received[-1].url.path == f"/v1{sent.path}"
            assert json.loads(received[-1].content) == sent.body


MISTRAL = ["nine-letter-ids", "name-in-results", "media-in-results", "max-tokens", "no-stream-options", "random-seed",
           "known-fields", "refusal-as-text", "no-custom-tools"]  # fmt: skip


@pytest.mark.parametrize("script", [script for script in SCRIPTS if script != "pictures"])  # its files are others
def test_mistrals_types_accept_every_body(script: str) -> None:
    settings = {**SETTINGS, "extra": {}, "options": {"max_tokens": 9, "seed": 7, "reasoning": "high"}}
    sent = chat(*SCRIPTS[script], quirks=MISTRAL, **settings)
    read = mistral.ChatCompletionStreamRequest.model_validate(sent)
    assert sent.keys() <= type(read).model_fields.keys()
    for message, taken in zip(sent["messages"], read.messages, strict=True):
        assert message.keys() <= type(taken).model_fields.keys()


# Round trips: a response is sent back unchanged.


def recorded(wire: str, has_vectors: bool = True) -> list[Any]:
    """The streams of the vectors, and of the recorded corpus if it is available."""
    chosen = [vector for vector in vectors() if vector.wire == wire and has_vectors]
    ours = [pytest.param(wire, vector.body(), id=vector.name) for vector in chosen]
    cases = [path.parent for path in sorted((SHARED / "corpus" / "cases").glob("*/meta.json"))]
    return ours + [
        pytest.param(wire, (case / "body").read_bytes(), id=case.name)
        for case in cases
        if json.loads((case / "meta.json").read_text())["wire"] == wire
    ]


def replayed(wire: str, body: bytes) -> tuple[Message, dict[str, Any]]:
    """A response as a message, and a request that has it in its history, with results for all calls."""
    turn = penstock.collect(decode_pieces(wire, [body]))
    reply = Message("assistant", turn.parts)
    calls = [part for part in turn.parts if isinstance(part, ToolCall | ToolCallInvalid)]
    results = [result(part, image(b"\x89PNG", "image/png") if part.name == "computer" else "done") for part in calls]
    answered = {part.data.get("call_id") for part in turn.parts if isinstance(part, Opaque) and "output" in part.data}
    answered |= {call.id for call in calls}
    waiting = [part for part in turn.parts if is_hosted(part) and part.data["call_id"] not in answered]  # type: ignore[union-attr]
    outputs = [Message("assistant", (output(part),)) for part in waiting]
    history = (user("Hi."), reply, tool_results(*results), *outputs, user("Go on."))
    return reply, find_encoder(wire)(request(*history), frozenset()).body


RUN_BY_THE_CLIENT = ("local_shell_call", "shell_call", "apply_patch_call", "computer_call")


def is_hosted(part: Any) -> bool:
    """Whether this is a call that OpenAI describes and others run: the recordings have some without their output."""
    return isinstance(part, Opaque) and part.kind in RUN_BY_THE_CLIENT


def output(call: Any) -> Opaque:
    id, kind = call.data["call_id"], f"{call.kind}_output"
    return Opaque(0, call.wire, kind, {"type": kind, "id": id, "call_id": id, "output": "done"})


@each(("wire", "body"), recorded("openai-chat"))
def test_chat_completions_state_goes_back_on_its_part(wire: str, body: bytes) -> None:
    reply, sent = replayed(wire, body)
    messages = [message for message in sent["messages"] if message["role"] == "assistant"]
    calls = [part for part in reply.parts if isinstance(part, ToolCall | ToolCallInvalid)]
    assert len(messages) <= 1
    sent_calls = [call for message in messages for call in message.get("tool_calls", ())]
    assert [call[call["type"]]["name"] for call in sent_calls] == [fit_name(call.name) for call in calls]
    for part in reply.parts:
        if not isinstance(part, Opaque) or not messages:
            continue
        [message] = messages
        if part.kind in STATE_FIELDS:
            assert message[part.kind] == part.data
        else:
            [at] = [at for at, call in enumerate(calls) if call.block == part.block]
            assert sent_calls[at][part.kind] == part.data


WITHIN = ("message", "function_call", "custom_tool_call")
"""The states that are inside the item of another part; all others are items of their own."""


@each(("wire", "body"), recorded("openai-responses"))
def test_responses_items_go_back_in_their_place(wire: str, body: bytes) -> None:
    reply, sent = replayed(wire, body)
    ours = [item for item in sent["input"] if item.get("role") != "user" and item.get("output") != "done"]
    kept = {json.dumps(part.data) for part in reply.parts if isinstance(part, Opaque)}
    answer = [item for item in ours if item["type"] not in OUTPUTS or json.dumps(item) in kept]
    states = [part for part in reply.parts if isinstance(part, Opaque)]
    for part in states:
        if part.kind in WITHIN:
            [item] = [item for item in answer if item.get("id") == part.data["id"]]
            assert all(item[key] == value for key, value in part.data.items() if value is not None)
    last = max((int(part.block) for part in reply.parts if not is_thought(part)), default=-1)  # type: ignore[union-attr]
    assert [item for item in answer if item["type"] not in WITHIN] == [
        {key: value for key, value in part.data.items() if value is not None} if is_thought(part) else part.data
        for part in states
        if part.kind not in WITHIN and (not is_thought(part) or (is_told(part) and part.block < last))
    ]


OUTPUTS = {"computer_call_output", "shell_call_output", "local_shell_call_output", "apply_patch_call_output",
           "tool_search_output", "mcp_approval_response"}  # fmt: skip


def is_thought(part: Any) -> bool:
    return isinstance(part, Reasoning) or getattr(part, "kind", "") == "reasoning"


def is_told(part: Opaque) -> bool:
    return bool(part.data.get("encrypted_content") or part.data.get("content"))


@pytest.mark.skipif(not (SHARED / "corpus").is_dir(), reason=NO_CORPUS)
@each(("wire", "body"), recorded("openai-responses", has_vectors=False))
def test_openais_types_accept_a_response_as_input(wire: str, body: bytes) -> None:
    TYPES[wire, True].validate_python(replayed(wire, body)[1])


def test_the_recordings_contain_vendor_state() -> None:
    if not Path(SHARED / "corpus").is_dir():
        pytest.skip(NO_CORPUS)
    kinds = {
        part.kind
        for wire in ("openai-chat", "openai-responses")
        for parameters in recorded(wire)
        for part in replayed(*parameters.values)[0].parts
        if isinstance(part, Opaque)
    }
    assert {"reasoning_details", "extra_content", "reasoning", "message", "function_call"} <= kinds

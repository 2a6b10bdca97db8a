"""Calls that a gateway asks for in the text: what the prompt says, and what counts as a call."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from penstock import Decoder, Finish, StreamChunk, Text, ToolCall
from penstock.dialects.prompt import prompts
from penstock.events import Reasoning
from penstock.gateway import Upstream, app
from penstock.gateway.calls.asked import raw_dialects
from penstock.healing.decoding import HealedDecoding, ResponseContext
from penstock.healing.in_text import InTextCalls
from penstock.healing.report import HealingReport
from penstock.healing.rescued import RESCUED
from penstock.healing.settings import Healing
from penstock.messages import user
from penstock.testing import Scripted
from penstock.tools.declare import declare
from tests.asgi_client import serving
from tests.budget import sample
from tests.cases import each
from tests.gateways import chat, delta, events, sse, text_of
from tests.toolless import TOOLS, calls_in, text_in

DECLARED: Any = [{"type": "function", "function": {"name": name, "parameters": TOOLS[name]}} for name in TOOLS]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Rome"}}\n</tool_call>'
MARKED = ("hermes", "qwen3_coder", "anthropic_xml", "glm45", "llama3_json", "gemma_tool_code", "harmony", "mistral_v11")


class Asked:
    """The bodies that a server got, the response to the last request, and its report."""

    def __init__(self, server: Scripted, bodies: list[bytes], report: Any) -> None:
        self.sent = [request.body for request in server.requests]
        self.body = bodies[-1]
        self.report = report

    @property
    def calls(self) -> list[tuple[str, Any]]:
        found: list[tuple[str, Any]] = []
        for event in events(self.body):
            for choice in event.get("choices", ()):
                for one in choice["delta"].get("tool_calls") or ():
                    if one["function"].get("name"):
                        found.append((one["function"]["name"], ""))
                    name, arguments = found[-1]
                    found[-1] = (name, arguments + (one["function"].get("arguments") or ""))
        return [(name, json.loads(arguments)) for name, arguments in found]

    @property
    def text(self) -> str:
        return text_of(self.body)


def ask(
    text: Any, *requests: Any, calls: str = "hermes", path: str = "/v1/chat/completions",
    healing: Healing | None = None, **settings: Any,
) -> Asked:  # fmt: skip
    """What a gateway makes of some requests to a model that writes this text."""

    async def run() -> Asked:
        server = Scripted(*[text] * len(requests)) if isinstance(text, str) else Scripted(*text)
        fields: dict[str, Any] = {"provider": "llamacpp", "via": server, "first_token": 20.0}
        gateway = app(Upstream(name="local", **(fields | settings)), calls=calls, healing=healing)
        async with serving(gateway) as browser:
            replies = [await browser.post(path, request) for request in requests]
            assert [reply.status for reply in replies] == [200] * len(requests), replies[-1].body
            report = (await browser.get(f"/healed/{replies[-1].headers['x-request-id']}")).json
        return Asked(server, [reply.body for reply in replies], report)

    return asyncio.run(run())


# The prompt.


def test_tools_stand_in_the_system_message_after_the_clients_own() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi."}]
    asked = ask(CALL, chat(messages=messages, tools=DECLARED))
    (body,) = asked.sent
    assert "tools" not in body
    assert "tool_choice" not in body
    system, question = body["messages"]
    assert system["content"].startswith("Be brief.\n\nYou can call tools.")
    assert '"name": "weather"' in system["content"]
    assert question["content"] == "Hi."
    assert asked.calls == [("weather", {"city": "Rome"})]


CHOICES = {
    "required": "Your next message must call a tool.",
    "none": "Answer without calling a tool.",
    "named": "Your next message must call the tool add, and no other.",
}


@pytest.mark.parametrize("calls", ["hermes", "raw"])
@pytest.mark.parametrize("choice", CHOICES)
def test_a_tool_choice_is_a_sentence_at_the_end_so_that_the_beginning_stays_the_same(choice: str, calls: str) -> None:
    chosen: Any = {"type": "function", "function": {"name": "add"}} if choice == "named" else choice
    plain, asked = (ask("No.", chat(tools=DECLARED, **fields), calls=calls) for fields in ({}, {"tool_choice": chosen}))
    first, then = plain.sent[0]["messages"], asked.sent[0]["messages"]
    assert then[:-1] == first[:-1]
    assert then[-1]["content"] == f"{first[-1]['content']}\n\n{CHOICES[choice]}"
    notes = [note for note in asked.report["notes"] if "choice" in note]
    assert len(notes) == (choice != "none")
    assert all(note.startswith("the model ignored the tool choice") for note in notes)


def test_a_choice_that_the_model_ignores_is_noted() -> None:
    named = {"type": "function", "function": {"name": "add"}}
    asked = ask(CALL, chat(tools=DECLARED, tool_choice=named))
    assert asked.calls == [("weather", {"city": "Rome"})]  # the client decides
    assert "the model ignored the tool choice: 'add' was required, and was not called" in asked.report["notes"]
    asked = ask(f"{CALL}\n{CALL.replace('Rome', 'Oslo')}", chat(tools=DECLARED, parallel_tool_calls=False))
    assert len(asked.calls) == 2
    assert "the request allows one call, and the model made 2" in asked.report["notes"]
    assert asked.sent[0]["messages"][-1]["content"].endswith("Make at most one call.")


def test_without_permission_a_call_in_the_text_stays_text() -> None:
    asked = ask(f"I look. {CALL}", chat(tools=DECLARED, tool_choice="none"))
    assert asked.calls == []
    assert asked.text == f"I look. {CALL}"
    assert any("allows no calls" in note for note in asked.report["notes"])


def test_an_unknown_tool_choice_is_refused_as_for_native_calls() -> None:
    async def run() -> int:
        upstream = Upstream(name="local", provider="llamacpp", via=Scripted("Hi."))
        async with serving(app(upstream, calls="hermes")) as browser:
            named = {"type": "function", "function": {"name": "nothing"}}
            return (await browser.post("/v1/chat/completions", chat(tools=DECLARED, tool_choice=named))).status

    assert asyncio.run(run()) == 400


def test_a_request_without_tools_has_past_calls_as_text_and_gets_no_calls() -> None:
    """As agents send to have their history summarised."""
    function = {"name": "weather", "arguments": '{"city": "Rome"}'}
    messages = [
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "a", "content": "sunny"},
        {"role": "user", "content": "Sum it up."},
    ]
    asked = ask(f"So. {CALL}", chat(messages=messages))
    sent = asked.sent[0]["messages"]
    assert [message["role"] for message in sent] == ["user", "assistant", "user"]
    assert "<tool_call>" in sent[1]["content"]
    assert "sunny" in sent[2]["content"]
    assert "You can call tools" not in str(sent)
    assert asked.calls == []
    assert asked.text == f"So. {CALL}"


def test_a_custom_tool_is_described_as_a_function_and_called_as_a_custom_tool() -> None:
    tools = [{"type": "custom", "name": "patch", "description": "Apply a patch."}]
    body = {"model": "m", "input": "Hi.", "tools": tools, "stream": False}
    asked = ask(
        '<tool_call>{"name": "patch", "arguments": {"input": "*** Begin"}}</tool_call>', body, path="/v1/responses"
    )
    assert '"input"' in asked.sent[0]["messages"][0]["content"]
    (item,) = [item for item in json.loads(asked.body)["output"] if item["type"] == "custom_tool_call"]
    assert (item["name"], item["input"]) == ("patch", "*** Begin")


@pytest.mark.parametrize("calls", ["hermes", "raw"])
def test_tools_that_a_provider_runs_are_left_out(calls: str) -> None:
    tools = [{"type": "web_search"}, {"type": "function", "name": "add", "parameters": TOOLS["add"]}]
    body = {"model": "m", "input": "Hi.", "tools": tools, "stream": False}
    asked = ask("No.", body, path="/v1/responses", calls=calls)
    assert "web_search" not in str(asked.sent)
    assert any("web_search" in item for item in asked.report["dropped"])


@pytest.mark.parametrize("provider", ["openai", "anthropic", "google", "ollama", "cohere", "bedrock", "mistral"])
def test_a_provider_of_any_protocol_gets_the_tools_in_its_prompt(provider: str) -> None:
    asked = ask(CALL, chat(tools=DECLARED), provider=provider)
    (body,) = asked.sent
    assert not any(name in body for name in ("tools", "toolConfig", "tool_choice"))
    assert "some_tool" in json.dumps(body)
    assert asked.calls == [("weather", {"city": "Rome"})]


# The text.


@each("dialect", sorted(prompts()))
def test_a_call_that_repeats_the_users_text_stays_text(dialect: str) -> None:
    """A mail that contains a call, which the model quotes."""
    text = text_in(dialect)
    messages = [{"role": "user", "content": f"A mail says: {text}\nRepeat it."}]
    asked = ask(text, chat(messages=messages, tools=DECLARED), calls=dialect)
    assert asked.calls == []
    assert any("repeats a message" in note for note in asked.report["notes"])
    assert not any("looks like a call in the dialect" in note for note in asked.report["notes"])


@each("dialect", ["hermes", "qwen3_coder", "anthropic_xml", "glm45"])
def test_a_call_that_repeats_a_result_stays_text(dialect: str) -> None:
    text = text_in(dialect)
    function = {"name": "weather", "arguments": '{"city": "Oslo"}'}
    messages = [
        {"role": "user", "content": "Hi."},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "a", "content": f"From the page: {text}"},
    ]
    asked = ask(text, chat(messages=messages, tools=DECLARED), calls=dialect)
    assert asked.calls == []
    assert ask(text, chat(messages=messages[:1], tools=DECLARED), calls=dialect).calls == calls_in(dialect)


def test_a_quotation_counts_if_the_operator_says_so() -> None:
    messages = [{"role": "user", "content": f"Please: {CALL}"}]
    asked = ask(CALL, chat(messages=messages, tools=DECLARED), healing=Healing(quoted=True))
    assert asked.calls == [("weather", {"city": "Rome"})]


@pytest.mark.parametrize("damage", ['<tool_call>\n{"name": "weather", "arguments": {]\n</tool_call>', CALL[:-20]])
def test_a_call_that_must_not_run_is_written_back_as_text(damage: str) -> None:
    asked = ask(f"So: {damage}", chat(tools=DECLARED))
    assert asked.calls == []
    assert asked.text == f"So: {damage}"


def test_a_call_of_a_tool_that_is_not_declared_is_passed_on_and_noted() -> None:
    """The client then tells the model that there is no such tool."""
    asked = ask(CALL.replace("weather", "wetter"), chat(tools=DECLARED))
    assert asked.calls == [("wetter", {"city": "Rome"})]
    assert any("'wetter'" in note for note in asked.report["notes"])


def test_a_call_in_another_dialect_is_noted() -> None:
    text = text_in("qwen3_coder")
    asked = ask(text, chat(tools=DECLARED), calls="xml")
    assert asked.calls == []
    assert asked.text.strip() == text.strip()
    assert any("'qwen3_coder'" in note and "set `calls`" in note for note in asked.report["notes"])


def test_reasoning_before_the_calls_is_reasoning() -> None:
    asked = ask(f"<think>Hm, {CALL}</think>I look.\n{CALL}", chat(tools=DECLARED))
    assert asked.calls == [("weather", {"city": "Rome"})]
    assert asked.text.strip() == "I look."


# Laws: however the bytes are cut.


def decoding(dialect: str, calls: InTextCalls | None = None) -> HealedDecoding:
    tools = tuple(declare([{"name": name, "parameters": TOOLS[name]} for name in TOOLS]))
    context = ResponseContext(
        wire="openai-chat", client_wire="openai-chat", tools=tools, messages=[user("What is it?")], fields={},
        id_prefix="call_", healing=Healing(), report=HealingReport(), estimate=None,
        in_text=calls or InTextCalls((dialect,), is_own=True),
    )  # fmt: skip
    return HealedDecoding(Decoder("openai-chat", tools), context)


def read(dialect: str, *pieces: bytes, calls: InTextCalls | None = None) -> list[StreamChunk]:
    stage = decoding(dialect, calls)
    return [event for piece in pieces for event in stage.feed(piece)] + stage.close()


def joined(chunks: list[StreamChunk]) -> list[Any]:
    """The events, with adjacent pieces of text joined."""
    found: list[Any] = []
    for chunk in chunks:
        kind = type(chunk)
        if kind in (Text, Reasoning) and found and isinstance(found[-1], tuple) and found[-1][0] is kind:
            found[-1] = (kind, found[-1][1] + chunk.text)  # type: ignore[union-attr]
        else:
            found.append((kind, chunk.text) if isinstance(chunk, Text | Reasoning) else chunk)
    return found


RAW = InTextCalls(RESCUED, is_own=False)


@pytest.mark.parametrize("calls", [None, RAW], ids=["dialect", "raw"])
@each("dialect", MARKED)
def test_cuts_do_not_show(dialect: str, calls: InTextCalls | None) -> None:
    text = text_in(dialect)
    data = sse(*(delta(content=text[start : start + 4]) for start in range(0, len(text), 4)), delta("stop"))
    expected = joined(read(dialect, data, calls=calls))
    assert [(call.name, call.arguments) for call in expected if isinstance(call, ToolCall)] == calls_in(dialect)
    assert isinstance(expected[-1], Finish)
    assert expected[-1].reason == "tool_calls"
    assert joined(read(dialect, *(data[at : at + 1] for at in range(len(data))), calls=calls)) == expected
    for cut in sample(range(1, len(data)), 40):
        assert joined(read(dialect, data[:cut], data[cut:], calls=calls)) == expected, cut


@each("dialect", MARKED)
def test_every_call_of_a_prefix_is_a_call_of_the_whole(dialect: str) -> None:
    text = text_in(dialect)
    whole = [event for event in read(dialect, sse(delta(content=text), delta("stop"))) if isinstance(event, ToolCall)]
    for end in sample(range(len(text)), 40):
        cut = read(dialect, sse(delta(content=text[:end]), done=False))
        calls = [event for event in cut if isinstance(event, ToolCall)]
        assert [(one.name, one.arguments) for one in calls] == [
            (one.name, one.arguments) for one in whole[: len(calls)]
        ], end


# Raw text.


@pytest.mark.parametrize(
    ("provider", "fields"), [("llamacpp", {"reasoning_format": "none"}), ("vllm", {"skip_special_tokens": False})]
)
def test_raw_text_is_asked_for_with_the_tools_and_without_a_choice(provider: str, fields: dict[str, Any]) -> None:
    asked = ask(f"I look.\n{CALL}", chat(tools=DECLARED, tool_choice="required"), calls="raw", provider=provider)
    (body,) = asked.sent
    assert [tool["function"]["name"] for tool in body["tools"]] == [*TOOLS]
    assert body["tool_choice"] == "none"
    assert body.items() >= fields.items()
    assert asked.calls == [("weather", {"city": "Rome"})]
    assert asked.text.strip() == "I look."
    assert (asked.report["calls"], asked.report["healed"], asked.report["rescued"]) == ("raw", [], [])


@each("dialect", [name for name in MARKED if name in RESCUED])
def test_raw_text_is_read_in_every_dialect(dialect: str) -> None:
    healing = Healing(rescue=False)  # which is about calls that nobody asked for
    assert ask(text_in(dialect), chat(tools=DECLARED), calls="raw", healing=healing).calls == calls_in(dialect)


def test_raw_text_of_a_model_with_a_rare_dialect_is_read_in_it() -> None:
    assert raw_dialects("Kimi-K3") == ("kimi_k3",)
    assert raw_dialects("qwen3:4b") == raw_dialects("mystery") == RESCUED


def test_without_tools_raw_text_is_asked_for_as_any_other() -> None:
    (body,) = ask("Hi.", chat(), calls="raw").sent
    assert "tool_choice" not in body
    assert "reasoning_format" not in body

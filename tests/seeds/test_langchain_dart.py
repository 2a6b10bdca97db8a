"""LangChain Dart: three layers, eleven providers and one history, row by row."""

from __future__ import annotations

import asyncio
import json
import logging
import re
import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest

import penstock
from penstock.adapters import langchain_dart
from penstock.adapters.langchain_dart import ChatMessage, MessageRole, TextPart, ToolPart, ToolPartKind
from penstock.messages import assistant, result, tool_results
from penstock.testing import Raw, Reply, Scripted, Status, Step, call, drop, fail, frames, say, think
from penstock.wires import WIRES, wire_name
from tests.seeds.documents import document, fenced, needs_documents, row
from tests.seeds.shapes import chunk, piece
from tests.support import decode_pieces, joined, pieces_of

PROVIDERS = [
    "openai", "openrouter", "anthropic", "google", "ollama", "mistral", "cohere", "groq", "together", "fireworks",
    "nvidia",
]  # fmt: skip
ASKS = Reply(say("Let me look."), call("get_weather", {"city": "Boston"}))


def get_weather(city: str) -> dict[str, str]:
    """The weather in a city."""
    return {"weather": f"sunny in {city}"}


def fails(x: int) -> str:
    """Always fails."""
    raise ValueError(f"bad x: {x}")


def model(script: Scripted | list[Step | str], name: str = "openai:gpt-5") -> penstock.Model:
    return penstock.Model(name, via=script if isinstance(script, Scripted) else Scripted(script))


def run_stream(
    script: Scripted | list[Step | str],
    tools: list[Callable[..., Any]],
    name: str = "openai:gpt-5",
    history: list[ChatMessage] | None = None,
) -> list[langchain_dart.ChatResult]:
    """The results of one run, read to its end."""

    async def read() -> list[langchain_dart.ChatResult]:
        agent = langchain_dart.Agent(model(script, name), tools)
        return [news async for news in agent.runStream("How is Boston?", history=history or [])]

    return asyncio.run(read())


def messages_of(results: list[langchain_dart.ChatResult]) -> list[ChatMessage]:
    return [message for news in results for message in news.messages]


def tool_parts(message: ChatMessage) -> list[ToolPart]:
    return [part for part in message.parts if isinstance(part, ToolPart)]


def turn_of(wire: str, *data: Any) -> penstock.Turn:
    return penstock.collect(penstock.decode(data, wire_name(wire)))


# -- the samples -------------------------------------------------------------------------------------------------------


def dart_chunks(words: str) -> list[dict[str, Any]]:
    """The chunks of a sample, which are written as Dart maps."""
    [block] = [block for block in fenced(3, "dart") if words in block]
    text = "\n".join(line.partition("//")[0] for line in block.splitlines())
    quoted = re.sub(r"'((?:[^'])*)'", lambda match: json.dumps(match[1]), text)
    keyed = re.sub(r"(?<=[{\s])([a-zA-Z_]+):(?= )", r'"\1":', quoted)
    keyed = re.sub(r"(?<=\{)([a-zA-Z_]+):", r'"\1":', keyed)
    decoder, at, chunks = json.JSONDecoder(), 0, []
    while (at := keyed.find("{", at)) >= 0:
        value, at = decoder.raw_decode(keyed, at)
        chunks.append(value)
    return chunks


@needs_documents
@row(98)
def test_the_three_partial_chunks_of_the_document_are_one_call() -> None:
    deltas = dart_chunks("// Chunk 1: Tool call starts")
    assert len(deltas) == 3
    chunks = [{"choices": [{"index": 0, "delta": delta}]} for delta in deltas]
    [whole] = turn_of("openai-chat", *chunks, chunk(finish="tool_calls")).tool_calls
    assert (whole.id, whole.name, whole.arguments) == ("call_123", "get_weather", {"city": "Boston"})
    assert whole.arguments_raw == '{"city": "Boston"}'


@needs_documents
@row(99)
def test_the_complete_chunk_of_the_document_gets_an_id_and_raw_arguments() -> None:
    [sample] = dart_chunks("// Single chunk with complete tool call")
    [function_call] = sample["functionCalls"]
    candidate = {"content": {"role": "model", "parts": [{"functionCall": function_call}]}, "finishReason": "STOP"}
    [whole] = turn_of("gemini", {"candidates": [candidate]}).tool_calls
    assert (whole.id, whole.arguments, json.loads(whole.arguments_raw)) == (
        "call_0",
        {"city": "Boston"},
        whole.arguments,
    )


def concat_messages(accumulated: ChatMessage, new_chunk: ChatMessage) -> list[tuple[str, str, Any, Any]]:
    """`_concatMessages` of the document, line by line; returns the calls."""
    accumulated_parts = list(accumulated.parts)
    for new_part in new_chunk.parts:
        if not isinstance(new_part, ToolPart):
            continue
        existing_index = next(
            (
                index
                for index, part in enumerate(accumulated_parts)
                if isinstance(part, ToolPart)
                and part.kind == ToolPartKind.call
                and part.id != ""
                and part.id == new_part.id
            ),
            -1,
        )
        if existing_index != -1:
            existing: Any = accumulated_parts[existing_index]
            accumulated_parts[existing_index] = ToolPart.call(
                id=new_part.id,
                name=new_part.name if new_part.name != "" else existing.name,
                arguments=new_part.arguments or existing.arguments or {},
                argumentsRawString=new_part.argumentsRawString
                if new_part.argumentsRawString is not None
                else existing.argumentsRawString,
            )
        else:
            accumulated_parts.append(new_part)
    return [(p.id, p.name, p.arguments, p.argumentsRawString) for p in accumulated_parts if isinstance(p, ToolPart)]


@row(114)
def test_messages_concatenate_as_the_document_does_it() -> None:
    started = ChatMessage(MessageRole.model, [TextPart("Let "), ToolPart.call(id="c1", name="get_weather")])
    later = [
        ChatMessage(MessageRole.model, [ToolPart.call(id="c1", name="", argumentsRawString='{"city": "Boston"}')]),
        ChatMessage(MessageRole.model, [ToolPart.call(id="c1", name="", arguments={"city": "Boston"})]),
        ChatMessage(MessageRole.model, [ToolPart.call(id="c2", name="other", argumentsRawString="{}")]),
        ChatMessage(MessageRole.model, [ToolPart.call(id="", name="nameless"), ToolPart.call(id="", name="nameless")]),
    ]
    message = started
    for new in later:
        expected = concat_messages(message, new)
        message += new
        assert [(p.id, p.name, p.arguments, p.argumentsRawString) for p in tool_parts(message)] == expected
    assert len(tool_parts(message)) == 4
    text = ChatMessage(MessageRole.model, [TextPart("Let ")]) + ChatMessage(MessageRole.model, [TextPart("me.")])
    assert text.parts == [TextPart("Let me.")]
    first: Any = assistant("Let ")
    ours = first + assistant("me.")
    assert ours.text == "Let me."


async def execute_tools(turn: penstock.Turn, tool_map: dict[str, Callable[..., Any]]) -> ChatMessage:
    """The tool execution flow of the document, line by line, with its argument fallback."""
    tool_result_parts: list[TextPart | ToolPart] = []
    message = ChatMessage.from_message(penstock.as_messages([turn])[0])
    for tool_part in tool_parts(message):
        args = tool_part.arguments or {}
        if not args and tool_part.argumentsRawString:
            parsed = json.loads(tool_part.argumentsRawString)
            if isinstance(parsed, dict):
                args = parsed
            elif parsed is None or parsed == "null":
                args = {}
        tool = tool_map.get(tool_part.name)
        if tool is not None:
            try:
                value = tool(**args)
                result_string = value if isinstance(value, str) else json.dumps(value)
                tool_result_parts.append(ToolPart.result(id=tool_part.id, name=tool_part.name, result=result_string))
            except Exception as error:  # noqa: BLE001  # as in the document
                text = json.dumps({"error": str(error)})
                tool_result_parts.append(ToolPart.result(id=tool_part.id, name=tool_part.name, result=text))
    return ChatMessage(role=MessageRole.user, parts=tool_result_parts)


def test_the_execution_flow_line_by_line_gives_what_the_agent_yields() -> None:
    asks = Reply(call("get_weather", {"city": "Boston"}, id="a"), call("fails", {"x": 1}, id="b"))
    turn = model([asks]).complete("?", tools=["get_weather", "fails"])
    by_hand = asyncio.run(execute_tools(turn, {"get_weather": get_weather, "fails": fails}))
    messages = messages_of(run_stream([asks, "Sunny."], [get_weather, fails]))
    [by_agent] = [message for message in messages if message.role == MessageRole.user]
    assert [(p.id, p.name) for p in tool_parts(by_hand)] == [(p.id, p.name) for p in tool_parts(by_agent)]
    results = [[json.loads(vars(p)["result"]) for p in tool_parts(message)] for message in (by_hand, by_agent)]
    assert results[0] == results[1] == [{"weather": "sunny in Boston"}, {"error": "bad x: 1"}]


@needs_documents
def test_the_providers_of_the_document_are_those_of_the_tests() -> None:
    rows = [line.split("|")[1].strip() for line in document(3).splitlines() if line.startswith("| ") and "✅" in line]
    assert [name.lower() for name in rows] == [
        "openai", "openrouter", "anthropic", "google", "ollama", "mistral", "cohere", "groq", "together", "fireworks",
        "nvidia",
    ]  # fmt: skip


# -- the rows ----------------------------------------------------------------------------------------------------------


@row(96)
def test_the_three_layers_can_be_used_apart() -> None:
    data = b"".join(frames("anthropic", ASKS))
    decoder = penstock.Decoder("anthropic")  # the mapper
    by_decoder = penstock.collect([*decoder.feed(data), *decoder.close()])
    by_model = model([ASKS], "anthropic:claude").complete("?", tools=["get_weather"])  # the chat model
    by_agent = penstock.Agent(model([ASKS, "Sunny."], "anthropic:claude"), [get_weather]).run("?")  # the agent
    assert by_decoder.tool_calls[0].arguments == by_model.tool_calls[0].arguments == {"city": "Boston"}
    assert by_agent.output == "Sunny."


@row(97)
def test_one_history_goes_through_all_eleven_providers() -> None:
    history: penstock.History = []
    requests = 0
    for name in PROVIDERS:
        script = Scripted([ASKS, "It is sunny."], strict=True)
        agent = penstock.Agent(model(script, f"{name}:m"), tools=[get_weather])
        answer = agent.run("How is Boston?", messages=history)
        assert answer.reason == "answered", (name, answer.why)
        history, requests = answer.messages, requests + len(script.requests)
    assert (requests, len(history)) == (22, 44)
    assert penstock.check(history) == []


@row(100)
def test_ollama_is_read_natively_and_from_its_compatible_endpoint() -> None:
    for wire in ("ollama", "openai-chat"):
        turn = turn_of(wire, b"".join(frames(wire_name(wire), ASKS)))
        assert turn.tool_calls[0].arguments == {"city": "Boston"}


def ollama_call(city: str) -> Raw:
    """A call as Ollama sends it: without an id."""
    calls = [{"function": {"name": "get_weather", "arguments": {"city": city}}}]
    line = {"model": "m", "message": {"role": "assistant", "content": "", "tool_calls": calls}, "done": False}
    end = {"model": "m", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"}
    return Raw(f"{json.dumps(line)}\n{json.dumps(end)}\n".encode(), "application/x-ndjson")


WITHOUT_IDS: dict[str, list[Step | str]] = {
    "google:gemini-2.5-pro": [Reply(call("get_weather", {"city": "Rome"})), ASKS, "Sunny."],
    "ollama:qwen3": [ollama_call("Rome"), ollama_call("Boston"), "Sunny."],
}


@row(101)
@pytest.mark.parametrize("name", WITHOUT_IDS)
def test_calls_without_an_id_get_a_uuid(name: str) -> None:
    script = WITHOUT_IDS[name]
    calls = [part for message in messages_of(run_stream(script, [get_weather], name)) for part in tool_parts(message)]
    asked = [part.id for part in calls if part.kind == ToolPartKind.call]
    answered = [part.id for part in calls if part.kind == ToolPartKind.result]
    assert asked == answered
    assert len({uuid.UUID(id) for id in asked}) == 2
    provider_ids = messages_of(run_stream([ASKS, "Sunny."], [get_weather], "anthropic:claude"))
    assert tool_parts(provider_ids[0])[0].id.startswith("toolu_")


@row(102)
def test_a_call_of_anthropic_is_emitted_when_its_block_stops() -> None:
    decoder, seen = penstock.Decoder("anthropic"), list[tuple[str, list[str]]]()
    for frame in frames("anthropic", ASKS):
        kind = frame.decode().partition("\n")[0].removeprefix("event: ")
        seen.append((kind, [event.type for event in decoder.feed(frame)]))
    assert [kind for kind, types in seen if "tool_call" in types] == ["content_block_stop"]


@row(103)
def test_arguments_come_from_the_raw_string() -> None:
    head = piece(0, "", "c", "get_weather")
    [whole] = turn_of(
        "openai-chat", chunk(head), chunk(piece(0, '{"city": "Boston"}')), chunk(finish="stop")
    ).tool_calls
    assert whole.arguments == json.loads(whole.arguments_raw) == {"city": "Boston"}


@row(104)
def test_null_for_a_tool_without_parameters_means_no_arguments() -> None:
    turn = turn_of("cohere", b"".join(frames("cohere", Reply(call("now", "null")))))
    assert [whole.arguments for whole in turn.tool_calls] == [{}]


@row(105)
@pytest.mark.parametrize("wire", ["openai-chat", "cohere"])
def test_the_json_string_null_means_no_arguments(wire: str) -> None:
    turn = turn_of(wire, b"".join(frames(wire_name(wire), Reply(call("now", '"null"')))))
    assert [whole.arguments for whole in turn.tool_calls] == [{}]


@row(106)
@pytest.mark.parametrize("arguments", ["{}", "", "null"])
def test_empty_arguments_are_an_empty_object(arguments: str) -> None:
    turn = turn_of("openai-chat", chunk(piece(0, arguments, "c", "now")), chunk(finish="tool_calls"))
    assert [whole.arguments for whole in turn.tool_calls] == [{}]


@row(107)
def test_a_result_is_text_or_json() -> None:
    for value, text in [("sunny", "sunny"), ({"weather": "sunny"}, '{"weather":"sunny"}')]:
        script = Scripted([Reply(call("look", {})), "Done."])
        tool = penstock.as_tool({"name": "look", "parameters": {"type": "object"}}, lambda value=value: value)
        penstock.Agent(model(script), [tool]).run("?")
        assert script.requests[1].results[0].text.replace(": ", ":") == text


@row(108)
def test_an_exception_of_a_tool_is_a_result_for_the_model() -> None:
    script = Scripted([Reply(call("fails", {"x": 1})), "Sorry."])
    answer = penstock.Agent(model(script, "anthropic:claude"), [fails]).run("?")
    [received] = script.requests[1].body["messages"][-1]["content"]
    assert script.requests[1].results[0].text == "ValueError: bad x: 1"
    assert (received["is_error"], answer.output) == (True, "Sorry.")


@row(109)
def test_an_exception_of_a_tool_is_json_with_the_key_error() -> None:
    async def fails_too(x: int) -> str:
        """Always fails."""
        raise ValueError(f"bad x: {x}")

    asks = Reply(call("fails", {"x": 1}), call("fails_too", {"x": 2}), call("unknown", {}))
    script = Scripted([asks, "Sorry."])
    results = messages_of(run_stream(script, [fails, fails_too], "anthropic:claude"))
    errors = [json.loads(vars(part)["result"]) for part in tool_parts(results[1])]
    assert errors[:2] == [{"error": "bad x: 1"}, {"error": "bad x: 2"}]
    assert list(errors[2]) == ["error"]
    assert [block["is_error"] for block in script.requests[1].body["messages"][-1]["content"]] == [True] * 3
    assert json.loads(script.requests[1].results[0].text) == {"error": "bad x: 1"}  # the model reads the same


@row(110)
def test_an_unknown_tool_does_not_end_the_run() -> None:
    script = Scripted([Reply(call("nope", {})), "Sorry."])
    assert penstock.Agent(model(script), [get_weather]).run("?").output == "Sorry."
    assert "nope" in script.requests[1].results[0].text


@row(111)
def test_all_results_of_a_turn_are_in_one_message() -> None:
    asks = Reply(call("get_weather", {"city": "Boston"}), call("get_weather", {"city": "Rome"}))
    asked, answered, last = messages_of(run_stream([asks, "Sunny."], [get_weather]))
    assert [message.role for message in (asked, answered, last)] == ["model", "user", "model"]
    assert [json.loads(vars(part)["result"])["weather"] for part in tool_parts(answered)] == [
        "sunny in Boston", "sunny in Rome",
    ]  # fmt: skip
    script = Scripted([asks, "Sunny."])
    penstock.Agent(model(script, "anthropic:claude"), [get_weather]).run("?")
    assert [block["type"] for block in script.requests[1].body["messages"][-1]["content"]] == ["tool_result"] * 2


@row(112)
def test_a_newline_precedes_the_text_after_tools() -> None:
    results = run_stream([ASKS, "Sunny."], [get_weather])
    assert "".join(news.output for news in results) == "Let me look.\nSunny."
    assert messages_of(results)[-1].parts == [TextPart("Sunny.")]


@row(113)
def test_fragments_are_merged_by_id_if_there_is_no_index() -> None:
    pieces = [
        piece(None, text, "c1", "get_weather" if at == 0 else None) for at, text in enumerate(['{"city"', ': "B"}'])
    ]
    [whole] = turn_of("openai-chat", *map(chunk, pieces), chunk(finish="tool_calls")).tool_calls
    assert (whole.id, whole.arguments) == ("c1", {"city": "B"})


@row(115)
def test_raw_arguments_are_sent_back_unchanged() -> None:
    raw = '{ "x" : 1.0, "y":1e3 }'
    script = Scripted([Reply(call("look", raw, id="call_1")), "Done."])
    tool = penstock.as_tool({"name": "look", "parameters": {"type": "object"}}, lambda **arguments: "ok")
    chat = penstock.Model("openai:gpt-5", wire="openai-chat", via=script)
    penstock.Agent(chat, [tool]).run("?")
    assert script.requests[1].body["messages"][1]["tool_calls"][0]["function"]["arguments"] == raw


@row(116)
def test_several_calls_of_one_tool_keep_their_results() -> None:
    cities = ["Boston", "Rome", "Oslo"]
    asks = Reply(*(call("get_weather", {"city": city}) for city in cities))
    asked, answered, _ = messages_of(run_stream([asks, "Sunny."], [get_weather], "google:gemini"))
    pairs = {part.id: (part.arguments or {})["city"] for part in tool_parts(asked)}
    shown = {part.id: json.loads(vars(part)["result"])["weather"] for part in tool_parts(answered)}
    assert {pairs[id]: text for id, text in shown.items()} == {city: f"sunny in {city}" for city in cities}


@row(117)
def test_repeated_ids_in_one_answer_are_made_unique() -> None:
    calls = chunk(piece(0, '{"a":1}', "x", "f"), piece(1, '{"a":2}', "x", "f"))
    turn = turn_of("openai-chat", calls, chunk(finish="tool_calls"))
    assert [whole.id for whole in turn.tool_calls] == ["x", "x_2"]


@row(118)
def test_an_interruption_within_a_call_leaves_a_valid_history() -> None:
    script = Scripted([Reply(say("Hm."), call("get_weather", '{"city": "Bos'), drop())])
    agent = penstock.Agent(model(script), [get_weather], retries=penstock.Retries(attempts=1))
    answer = agent.run("?")
    assert answer.reason == "cut"
    _, asked, answered = answer.messages
    [invalid] = [part for part in asked.parts if isinstance(part, penstock.ToolCallInvalid)]
    assert (asked.text, invalid.why, invalid.arguments_raw) == ("Hm.", "cut", '{"city": "Bos')
    [outcome] = answered.results
    assert (outcome.call_id, outcome.is_error) == (invalid.id, True)
    assert outcome.text == "Not run: the call is cut (the call ended before its arguments were complete)."
    assert penstock.check(answer.messages) == []
    again = penstock.Agent(model(Scripted(["Sunny."], strict=True)), [get_weather])
    assert again.run("And now?", messages=answer.messages).output == "Sunny."


@row(119)
def test_user_and_model_alternate() -> None:
    history: list[ChatMessage] = []
    for name in ("anthropic:claude", "google:gemini-2.5-pro", "mistral:m"):
        script = Scripted([ASKS, "Sunny."], strict=True)
        history += [ChatMessage(MessageRole.user, [TextPart("How is Boston?")])]
        history += messages_of(run_stream(script, [get_weather], name, history=history[:-1]))
    assert [message.role for message in history] == ["user", "model"] * 6


@row(120)
def test_tools_run_in_parallel() -> None:
    together = threading.Barrier(4, timeout=20)

    def meet(x: int) -> int:
        """Waits for the others."""
        return together.wait() * 0 + x

    asks = Reply(*(call("meet", {"x": x}) for x in range(4)))
    script = Scripted([asks, "Done."])
    assert penstock.Agent(model(script), [meet]).run("?").output == "Done."
    assert [one.text for one in script.requests[1].results] == ["0", "1", "2", "3"]


@row(121)
def test_mistral_calls_tools() -> None:
    assert penstock.Agent(model([ASKS, "Sunny."], "mistral:m"), [get_weather]).run("?").output == "Sunny."


@row(122)
@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire != "bedrock"])
def test_no_text_is_dropped_however_the_stream_is_cut(wire: str) -> None:
    reply = Reply(say("Grüße, 世界! 🌍 "), call("f", {"ü": "世界"}), say("Ende.") if wire != "mistral" else say(""))
    data = b"".join(frames(wire_name(wire), reply))
    whole = joined(decode_pieces(wire, [data]))
    assert reply.text in penstock.collect(whole).text
    for size in (1, 2, 3, 7, 64):
        assert joined(decode_pieces(wire, pieces_of(data, size))) == whole, size


@row(123)
def test_a_tool_that_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="penstock"):
        penstock.Agent(model([Reply(call("fails", {"x": 1})), "Sorry."]), [fails]).run("?")
    [raised, failed] = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert raised.name == failed.name == "penstock.agent"
    assert "the tool fails raised ValueError" in raised.getMessage()
    assert "the tool fails failed" in failed.getMessage()


@row(124)
def test_run_stream_yields_the_message_with_the_results() -> None:
    results = run_stream([ASKS, "Sunny."], [get_weather])
    with_messages = [(at, news.messages[0]) for at, news in enumerate(results) if news.messages]
    assert [message.role for _, message in with_messages] == ["model", "user", "model"]
    after = "".join(news.output for news in results[with_messages[1][0] :])
    assert after == "\nSunny."  # it came before the next answer
    with penstock.Agent(model([ASKS, "Sunny."]), [get_weather]).stream("?") as run:
        [results_event] = [event for event in run if isinstance(event, penstock.ToolResults)]
    assert results_event.message in run.messages


@row(125)
def test_calls_after_the_python_tag_are_found() -> None:
    parser = penstock.TextParser("llama3_json", tools=["get_weather"])
    text = '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Boston"}}'
    found = penstock.collect([*parser.feed(text), *parser.close()])
    assert [whole.arguments for whole in found.tool_calls] == [{"city": "Boston"}]


def test_a_history_in_the_shape_of_dart_is_sent_as_it_is() -> None:
    history = [
        ChatMessage(MessageRole.system, [TextPart("Be brief.")]),
        ChatMessage(MessageRole.user, [TextPart("How is Rome?")]),
        ChatMessage(
            MessageRole.model,
            [TextPart("Hm."), ToolPart.call(id="c1", name="get_weather", argumentsRawString='{"city": "Rome"}')],
        ),
        ChatMessage(MessageRole.user, [ToolPart.result(id="c1", name="get_weather", result='{"error": "no"}')]),
    ]
    ours = [message.to_message() for message in history]
    assert [message.role for message in ours] == ["system", "user", "assistant", "tool"]
    assert ours[2].tool_calls[0].arguments == {"city": "Rome"}
    assert ours[3].results[0].is_error
    assert penstock.check([*ours, assistant("Done.")]) == []


@pytest.mark.parametrize("raw", ["null", '"null"', " null ", "", None])
def test_null_for_the_arguments_of_a_rebuilt_call_means_none(raw: str | None) -> None:
    part = ToolPart.call(id="c1", name="now", argumentsRawString=raw)
    message = ChatMessage(MessageRole.model, [part]).to_message()
    assert message.tool_calls[0].arguments == {}


def test_results_made_by_hand_go_back_by_their_id() -> None:
    script = Scripted([ASKS, "Sunny."], strict=True)
    chat = model(script, "anthropic:claude")
    turn = chat.complete("?", tools=[get_weather])
    chat.complete(["?", turn, tool_results(result(turn.tool_calls[0], "sunny"))], tools=[get_weather])
    assert script.requests[1].results[0].text == "sunny"


def test_vendor_state_survives_the_conversion() -> None:
    script = Scripted([Reply(think("Hm."), call("get_weather", {"city": "Boston"})), "Sunny.", "Yes."], strict=True)
    chat = model(script, "anthropic:claude")

    async def twice() -> str:
        agent = langchain_dart.Agent(chat, [get_weather])
        first = await agent.run("How is Boston?")
        history = [ChatMessage(MessageRole.user, [TextPart("How is Boston?")]), *first.messages]
        return (await agent.run("Sure?", history=history)).output

    assert asyncio.run(twice()) == "Yes."


def test_a_failed_request_is_raised_after_the_last_message() -> None:
    with pytest.raises(penstock.AuthenticationError):
        run_stream([Status(401, "wrong key")], [get_weather])
    with pytest.raises(penstock.ProviderError, match="broken"):
        run_stream([Reply("Hm.", fail("server_error", "broken"))], [get_weather])

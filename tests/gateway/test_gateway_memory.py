"""What a gateway remembers: conversations that continue a response, and vendor state that a protocol cannot carry."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from anthropic import NotFoundError as AnthropicNotFound
from openai import NotFoundError

from penstock import Finish, Message, Opaque, Reasoning, Text, ToolCall
from penstock.asgi.request import RejectedRequest
from penstock.gateway import memory as gateway_memory
from penstock.gateway.memory import ResponseMemory
from penstock.history.client_request import ClientRequest, decode_request
from penstock.testing import ReceivedRequest, Reply, Scripted, call, think
from penstock.wires.gemini.encode_request import UNSIGNED
from tests.asgi_client import serving
from tests.gateways import SHELL, TOOLS, anthropic_client, gateway, openai_client, upstream

COMMAND = {"command": "echo 42"}


def answer(request: ReceivedRequest) -> Any:
    if request.results:
        return f"It printed {request.results[0].text}."
    if "again" in request.prompt:
        return f"You said {request.prompt}."
    return Reply(think("A command."), "I look.", call("shell", COMMAND))


def script() -> Scripted:
    return Scripted(answer, strict=True)


ANTHROPIC_TOOLS: Any = [{"name": "shell", "input_schema": SHELL["parameters"]}]


async def converse_in_responses(app: Any) -> list[str]:
    texts: list[str] = []
    async with serving(app) as browser:
        client = openai_client(browser)
        tools: Any = [{"type": "function", **SHELL}]
        first = await client.responses.create(model="m", input="Say.", instructions="Be brief.", tools=tools)
        one: Any = next(item for item in first.output if item.type == "function_call")
        results: Any = [{"type": "function_call_output", "call_id": one.call_id, "output": "42"}]
        async with client.responses.stream(
            model="m", input=results, previous_response_id=first.id, tools=tools
        ) as stream:
            second = await stream.get_final_response()
        third = await client.responses.create(model="m", input="And again?", previous_response_id=second.id)
        texts += [second.output_text, third.output_text]
    return texts


def test_a_response_is_continued_by_its_id() -> None:
    server = script()
    texts = asyncio.run(converse_in_responses(_app(server)))
    assert texts == ["It printed 42.", "You said And again?."]
    roles = [[message["role"] for message in request.body["messages"]] for request in server.requests]
    assert roles == [
        ["system", "user"],
        ["user", "assistant", "tool"],  # instructions hold for one request
        ["user", "assistant", "tool", "assistant", "user"],
    ]


def _app(server: Scripted, **settings: Any) -> Any:
    return gateway(upstream(answer, via=server, **settings))


async def continue_unknown(app: Any) -> tuple[Any, Any]:
    async with serving(app) as browser:
        with pytest.raises(NotFoundError) as openai_error:
            await openai_client(browser).responses.create(model="m", input="And?", previous_response_id="resp_1")
        extra = {"thread": {"type": "continue", "previous_message_id": "msg_1"}}
        with pytest.raises(AnthropicNotFound) as anthropic_error:
            await anthropic_client(browser).messages.create(
                model="m", max_tokens=9, messages=[{"role": "user", "content": "And?"}], extra_body=extra
            )
    return openai_error.value.body, anthropic_error.value.body


def test_a_response_that_is_not_known_is_an_error_that_the_client_understands() -> None:
    server = script()
    openai_error, anthropic_error = asyncio.run(continue_unknown(_app(server)))
    assert openai_error["code"] == "previous_response_not_found"
    assert "send the whole history" in openai_error["message"]
    assert anthropic_error["error"]["details"] == {"error_code": "thread_not_found"}
    assert server.requests == []


async def converse_in_a_thread(app: Any) -> str:
    async with serving(app) as browser:
        client = anthropic_client(browser)
        options: Any = {"model": "m", "max_tokens": 1000}
        first = await client.messages.create(
            **options, system="Be brief.", tools=ANTHROPIC_TOOLS, messages=[{"role": "user", "content": "Say."}],
            extra_body={"thread": {"type": "create"}},
        )  # fmt: skip
        one = next(block for block in first.content if block.type == "tool_use")
        result: Any = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": one.id, "content": "42"}]}
        extra = {"thread": {"type": "continue", "previous_message_id": first.id}}
        second = await client.messages.create(**options, messages=[result], extra_body=extra)
        return "".join(block.text for block in second.content if block.type == "text")


def test_a_thread_keeps_its_instructions_and_its_tools() -> None:
    server = script()
    assert asyncio.run(converse_in_a_thread(_app(server))) == "It printed 42."
    last = server.requests[1]
    assert [message["role"] for message in last.body["messages"]] == ["system", "user", "assistant", "tool"]
    assert [tool.name for tool in last.tools] == ["shell"]
    assert "thread" not in last.body


def thinking(body: Any) -> bool:
    return any(block["type"] == "thinking" for message in body["messages"] for block in message["content"])


def signed_call(body: Any) -> bool:
    parts = [part for content in body["contents"] for part in content["parts"] if "functionCall" in part]
    return parts[0]["thoughtSignature"] != UNSIGNED


def reasoning_item(body: Any) -> bool:
    return any(item.get("type") == "reasoning" and item["encrypted_content"] for item in body["input"])


@pytest.mark.parametrize(
    ("provider", "model", "has_state"),
    [
        ("anthropic", "claude-sonnet-5", thinking),
        ("google", "gemini-3-pro", signed_call),
        ("openai", "gpt-5", reasoning_item),
    ],
)
def test_a_client_of_another_protocol_loses_no_vendor_state(
    provider: str, model: str, has_state: Callable[[Any], bool]
) -> None:
    server = script()

    async def converse() -> Any:
        async with serving(_app(server, provider=provider, key="client")) as browser:
            client = openai_client(browser)
            messages: list[Any] = [{"role": "user", "content": "Say."}]
            options: Any = {"model": model, "tools": TOOLS, "max_tokens": 4000, "reasoning_effort": "low"}
            first: Any = (await client.chat.completions.create(**options, messages=messages)).choices[0].message
            call: Any = first.tool_calls[0]
            plain = {
                "role": "assistant",
                "content": first.content,
                "tool_calls": [{"id": call.id, "type": "function", "function": call.function.model_dump()}],
            }
            messages += [plain, {"role": "tool", "tool_call_id": call.id, "content": "42"}]
            last = await client.chat.completions.create(**options, messages=messages)
            return last.choices[0].message.content

    assert asyncio.run(converse()) == "It printed 42."
    assert has_state(server.requests[1].body)


def request(text: Any = "Say.", **fields: Any) -> ClientRequest:
    body = {"model": "m", "input": text, "store": True, **fields}
    return decode_request(body, "openai-responses")


def reply(id: str = "a", text: str = "x") -> Message:
    return Message("assistant", (Reasoning(0, "Hm."), Text(1, text), ToolCall(id, "shell", COMMAND, block=2)))


def is_known(memory: ResponseMemory, id: str, key: str = "") -> bool:
    try:
        return len(memory.complete(request(previous_response_id=f"resp_{id}"), key).messages) >= 3
    except RejectedRequest:
        return False


def test_the_oldest_responses_are_forgotten_when_they_take_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_memory, "MAX_REMEMBERED", 4_000)
    memory = ResponseMemory()
    for number in range(100):
        memory.keep(request("x" * 300), "", str(number), reply(f"c{number}"))
    assert (is_known(memory, "99"), is_known(memory, "1")) == (True, False)


def test_a_response_that_takes_too_much_is_not_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_memory, "MAX_RESPONSE", 1_000)
    memory = ResponseMemory()
    memory.keep(request("x" * 1_000), "", "1", reply())
    memory.keep(request("x"), "", "2", reply())
    assert (is_known(memory, "1"), is_known(memory, "2")) == (False, True)


def test_all_messages_that_a_request_adds_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_memory, "MAX_RESPONSE", 3_000)
    memory = ResponseMemory()
    memory.keep(request("x" * 2_000), "", "1", reply())
    for id, size in (("2", 500), ("3", 3_500)):
        new = [{"role": "user", "content": "y" * size}, {"role": "user", "content": "And?"}]
        memory.keep(memory.complete(request(new, previous_response_id="resp_1"), ""), "", id, reply())
    assert [id for id in "123" if is_known(memory, id)] == ["1", "2"]


def test_messages_count_as_long_as_a_later_response_holds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_memory, "MAX_REMEMBERED", 10_000)
    memory = ResponseMemory()
    memory.keep(request("x" * 1_000), "", "0", reply("c0"))
    last = 0
    while is_known(memory, str(last)) and last < 50:
        following = memory.complete(request("x" * 1_000, previous_response_id=f"resp_{last}"), "")
        last += 1
        memory.keep(following, "", str(last), reply(f"c{last}"))
    assert 5 < last < 10, "a conversation that is larger than the memory is not remembered"


def test_messages_that_responses_share_count_a_little_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_memory, "MAX_REMEMBERED", 200_000)
    memory = ResponseMemory()
    memory.keep(request([{"role": "user", "content": "x"}] * 1_000), "", "0", reply("c0"))
    for number in range(1, 30):
        following = memory.complete(request("y", previous_response_id=f"resp_{number - 1}"), "")
        memory.keep(following, "", str(number), reply(f"c{number}"))
    known = [number for number in range(30) if is_known(memory, str(number))]
    assert 10 < len(known) < 20
    assert known[-1] == 29


def test_the_tools_of_a_request_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_memory, "MAX_REMEMBERED", 4_000)
    memory = ResponseMemory()
    tools = [{"type": "function", "name": "shell", "description": "x" * 1_000, "parameters": {}}]
    for number in range(10):
        memory.keep(request(tools=tools), "", str(number), reply(f"c{number}"))
    assert [number for number in range(10) if is_known(memory, str(number))] == [8, 9]


def test_a_response_belongs_to_the_key_of_its_client() -> None:
    memory = ResponseMemory()
    memory.keep(request(), "one", "1", reply())
    assert (is_known(memory, "1", "one"), is_known(memory, "1", "two")) == (True, False)


def test_a_response_that_was_edited_is_sent_as_the_client_has_it() -> None:
    memory = ResponseMemory()
    memory.keep(request(), "", "1", reply(text="I look."))
    same = Message("assistant", (Text(0, "I look. "), ToolCall("a", "shell", COMMAND, block=1)))
    edited = Message("assistant", (Text(0, "I do not."), ToolCall("a", "shell", COMMAND, block=1)))
    asked = ClientRequest(wire="openai-chat", messages=(same, edited), settings=request().settings)
    restored = memory.complete(asked, "").messages
    assert [type(part) for part in restored[0].parts] == [Reasoning, Text, ToolCall]
    assert restored[1] is edited


@pytest.mark.parametrize(("thought", "is_restored"), [("", True), ("Hm.", True), ("Another thought.", False)])
def test_the_reasoning_of_another_response_with_the_same_call_is_not_sent(thought: str, is_restored: bool) -> None:
    """Some servers call every first call of a response `call_0`."""
    state = Opaque(0, "anthropic", "signature", "abc")
    memory = ResponseMemory()
    memory.keep(request(), "", "1", Message("assistant", (*reply().parts, state)))
    sent = Message("assistant", (Reasoning(0, thought), Text(1, "x"), ToolCall("a", "shell", COMMAND, block=2)))
    asked = ClientRequest(wire="openai-chat", messages=(sent,), settings=request().settings)
    [restored] = memory.complete(asked, "").messages
    assert (state in restored.parts) == is_restored


def test_a_response_that_was_cut_is_not_remembered() -> None:
    memory = ResponseMemory()
    record = memory.record(request(), "", "1")
    assert record is not None
    record.add([Text(0, "Half"), Finish("cut")])
    record.end()
    assert not is_known(memory, "1")

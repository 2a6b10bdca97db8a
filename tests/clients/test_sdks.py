"""The SDKs of OpenAI and Anthropic, in Python and in Node, with an agent as their model, over a real socket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import anthropic
import openai
import pytest

from tests.clients.conftest import run_node

TEXT = "Let me look.\nAnd the other one.\nRome and Oslo are clear."
FAILED = "the run failed; the reason is in its log"
BROKEN = "cannot be continued: the model began its answer again"
ASK: Any = [{"role": "user", "content": "three steps"}]
BOTH: Any = [{"role": "user", "content": "both of them"}]
SCHEMA = {"type": "object", "properties": {"color": {"type": "string"}}, "required": ["color"]}
CHANGE_COLOR: Any = {"name": "change_color", "description": "Change the color.", "parameters": SCHEMA}


@pytest.fixture
def openai_client(server: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture
def anthropic_client(server: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server, api_key="none", max_retries=0) as client:
        yield client


def text_of(message: Any) -> str:
    return "".join(block.text for block in message.content if block.type == "text")


def test_openai_reads_an_agent_streamed_and_whole(openai_client: openai.OpenAI) -> None:
    whole = openai_client.chat.completions.create(model="support", messages=ASK)
    assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == (TEXT, "stop")
    with openai_client.chat.completions.stream(model="support", messages=ASK) as stream:
        assert stream.get_final_completion().choices[0].message.content == TEXT
    assert openai_client.responses.create(model="support", input="three steps").output_text == TEXT
    with openai_client.responses.stream(model="support", input="three steps") as response:
        assert response.get_final_response().output_text == TEXT
    assert "support" in [model.id for model in openai_client.models.list()]


def test_anthropic_reads_an_agent_streamed_and_whole(anthropic_client: anthropic.Anthropic) -> None:
    whole = anthropic_client.messages.create(model="support", max_tokens=1000, messages=ASK)
    assert (text_of(whole), whole.stop_reason) == (TEXT, "end_turn")
    with anthropic_client.messages.stream(model="support", max_tokens=1000, messages=ASK) as stream:
        assert text_of(stream.get_final_message()) == TEXT


@pytest.mark.parametrize("is_streaming", [True, False])
def test_openai_runs_its_own_tool_between_two_requests(openai_client: openai.OpenAI, is_streaming: bool) -> None:
    options: Any = {"model": "support", "tools": [{"type": "function", "function": CHANGE_COLOR}]}
    messages = [*BOTH]
    if is_streaming:
        with openai_client.chat.completions.stream(messages=messages, **options) as stream:
            message: Any = stream.get_final_completion().choices[0].message
    else:
        message = openai_client.chat.completions.create(messages=messages, **options).choices[0].message
    [call] = message.tool_calls
    color = json.loads(call.function.arguments)["color"]
    answer = {"role": "tool", "tool_call_id": call.id, "content": f"now {color}"}
    messages += [message.model_dump(exclude_none=True, include={"role", "content", "tool_calls"}), answer]
    whole = openai_client.chat.completions.create(messages=messages, **options)
    assert whole.choices[0].message.content == "It is now red."


def test_responses_runs_its_own_tool_between_two_requests(openai_client: openai.OpenAI) -> None:
    tools: Any = [{"type": "function", "strict": False, **CHANGE_COLOR}]
    first = openai_client.responses.create(model="support", input=BOTH, tools=tools)
    [call] = [item for item in first.output if item.type == "function_call"]
    output = {"type": "function_call_output", "call_id": call.call_id, "output": "now red"}
    history: Any = [*BOTH, *first.output, output]
    assert openai_client.responses.create(model="support", input=history, tools=tools).output_text == "It is now red."


@pytest.mark.parametrize("is_streaming", [True, False])
def test_the_tool_runner_of_anthropic_works_with_an_agent(
    anthropic_client: anthropic.Anthropic, is_streaming: bool
) -> None:
    painted: list[str] = []

    @anthropic.beta_tool
    def change_color(color: str) -> str:
        """Change the color of the page."""
        painted.append(color)
        return f"now {color}"

    options: Any = {"model": "support", "max_tokens": 1000, "tools": [change_color], "messages": BOTH}
    runner: Any = anthropic_client.beta.messages.tool_runner(stream=is_streaming, **options)
    assert (text_of(runner.until_done()), painted) == ("It is now red.", ["red"])


def test_a_thread_of_anthropic_sends_its_history_again(anthropic_client: anthropic.Anthropic) -> None:
    thread = anthropic_client.beta.messages.thread(model="support", max_tokens=1000)
    for text in ("one", "two"):
        message: Any = {"role": "user", "content": text}
        assert text_of(thread.send(message)) == f"You said: {text}"
    assert len(thread.messages) == 4


def test_errors_come_as_those_of_the_sdk(openai_client: openai.OpenAI, anthropic_client: anthropic.Anthropic) -> None:
    fail: Any = [{"role": "user", "content": "fail now"}]
    with pytest.raises(openai.NotFoundError, match="no agent"):
        openai_client.chat.completions.create(model="other", messages=ASK)
    tools: Any = [{"type": "function", "function": {**CHANGE_COLOR, "name": "look"}}]
    with pytest.raises(openai.BadRequestError, match="'look'"):
        openai_client.chat.completions.create(model="support", messages=ASK, tools=tools)
    with pytest.raises(openai.InternalServerError, match=FAILED):
        openai_client.chat.completions.create(model="support", messages=fail)
    with openai_client.responses.stream(model="support", input="fail now") as stream:
        assert [event.type for event in stream][-2:] == ["error", "response.failed"]
    with pytest.raises(anthropic.APIStatusError, match=FAILED):
        anthropic_client.messages.create(model="support", max_tokens=9, messages=fail)
    with (
        anthropic_client.messages.stream(model="support", max_tokens=9, messages=fail) as messages,
        pytest.raises(anthropic.APIStatusError, match=BROKEN),
    ):
        messages.until_done()
    orphan: Any = [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": "red"}]}]
    with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\]"):
        anthropic_client.messages.create(model="support", max_tokens=9, messages=orphan)


@pytest.fixture(scope="module")
def node(clients: Path, server: str) -> Any:
    """What the SDKs in Node have got."""
    return run_node("sdks.mjs", server)


def test_openai_in_node_reads_an_agent(node: Any) -> None:
    assert (node["chat"]["whole"], node["chat"]["streamed"], node["chat"]["reason"]) == (TEXT, TEXT, "stop")
    assert node["chat"]["pieces"] > 3
    responses = node["responses"]
    assert (responses["whole"], responses["streamed"], responses["reason"]) == (TEXT, TEXT, "completed")
    assert {"response.output_text.delta", "response.completed"} <= {*cast("list[str]", responses["kinds"])}


def test_anthropic_in_node_reads_an_agent(node: Any) -> None:
    messages = node["messages"]
    assert (messages["whole"], messages["streamed"], messages["reason"]) == (TEXT, TEXT, "end_turn")
    assert messages["pieces"] > 3


def test_the_loops_of_the_sdks_in_node_run_the_tools_of_the_client(node: Any) -> None:
    for loop in ("runTools", "toolRunner"):
        assert node[loop]["painted"] == ["red", "red"]
        assert [found.endswith("It is now red.") for found in node[loop]["found"]] == [True, True]
    assert node["responsesLoop"] == {"calls": 1, "text": "It is now red."}


def test_errors_in_node_are_those_of_the_sdk(node: Any) -> None:
    errors = node["errors"]
    assert (errors["unknown"]["status"], errors["unknown"]["name"]) == (404, "NotFoundError")
    assert (errors["taken"]["status"], errors["history"]["status"]) == (400, 400)
    assert all(FAILED in errors[failed]["message"] for failed in ("failed", "responses", "messages"))
    assert all(BROKEN in errors[failed]["message"] for failed in ("streamed", "messagesStreamed"))
    assert "secret words" not in str(errors)

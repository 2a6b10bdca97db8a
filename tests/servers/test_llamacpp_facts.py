"""A real llama.cpp behind the gateway: its facts, a named tool choice, an overflow, its window, and `--check`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from click.testing import CliRunner

from penstock.cli.app import penstock as command_line
from penstock.gateway import GatewaySettings, Upstream, app
from penstock.servers.asking import ServerAddress, ask_server, server_facts
from penstock.servers.llamacpp import count_by_template, count_prompt
from tests.asgi_client import Browser, Reply, serving
from tests.llamacpp.model import CONTEXT, write_model
from tests.llamacpp.process import running

FORECAST = {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 8}}, "required": ["city"],
    "additionalProperties": False,
}  # fmt: skip
HARD: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "pattern": "^[0-9]{3}$"},
        "text": {"type": "string", "minLength": 3000},
    },
    "required": ["name"],
    "additionalProperties": False,
}
"""A schema that the server refuses: it has no grammar for so many repetitions."""


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    pytest.importorskip("xllamacpp", reason="there is no wheel of llama.cpp for this platform", exc_type=ImportError)
    model = tmp_path_factory.mktemp("llamacpp") / "tiny.gguf"
    write_model(model)
    with running(model) as found:
        yield found


def ask(address: str, *requests: tuple[str, dict[str, Any]]) -> tuple[list[Reply], list[Any]]:
    """The replies of a gateway in front of the server, and its reports, the newest first."""

    async def main() -> tuple[list[Reply], list[Any]]:
        upstream = Upstream(name="local", url=f"{address}/v1", provider="llamacpp")
        async with serving(app(settings=GatewaySettings(upstreams={"local": upstream}))) as browser:
            return [await _send(browser, *request) for request in requests], (await browser.get("/healed")).json[
                "requests"
            ]

    return asyncio.run(main())


async def _send(browser: Browser, path: str, body: dict[str, Any]) -> Reply:
    return await (browser.post(path, body) if body else browser.get(path))


def chat(content: str = "What will the weather be?", **fields: Any) -> dict[str, Any]:
    return {"model": "tiny", "messages": [{"role": "user", "content": content}], "temperature": 0, **fields}


def tool(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "x", "parameters": schema}}


TOOLS = [tool("search", FORECAST), tool("forecast", FORECAST)]


def test_the_facts_of_the_server_are_read(address: str) -> None:
    facts = asyncio.run(server_facts(ServerAddress(f"{address}/v1"), "tiny"))
    assert (facts.server, facts.has_model, facts.window, facts.longest_window) == ("llamacpp", True, CONTEXT, CONTEXT)
    assert (facts.tools, facts.thinking, facts.tool_choices, facts.overflow) == (True, False, "words", "refused")
    assert facts.version
    assert not facts.failure


@pytest.mark.parametrize("count", [count_prompt, count_by_template])
def test_both_ways_to_count_agree_with_the_server(address: str, count: Callable[[Any], Any]) -> None:
    """The endpoint for it, and the template with the tokenizer, which older builds have."""
    counted = asyncio.run(ask_server(ServerAddress(f"{address}/v1"), count(chat(tools=TOOLS))))
    [reply], _ = ask(address, ("/v1/chat/completions", chat(tools=TOOLS, max_tokens=1)))
    assert counted == reply.json["usage"]["prompt_tokens"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_named_tool_choice_calls_this_tool(address: str, stream: bool) -> None:
    named = {"type": "function", "function": {"name": "forecast"}}
    replies, healed = ask(
        address,
        ("/v1/chat/completions", chat(tools=TOOLS, tool_choice=named, stream=stream, max_tokens=300)),
        ("/v1/messages", {**chat(max_tokens=300, stream=stream), "tool_choice": {"type": "tool", "name": "forecast"},
                          "tools": [{"name": one["function"]["name"], "input_schema": FORECAST} for one in TOOLS]}),
    )  # fmt: skip
    for reply in replies:
        assert reply.status == 200
        assert b'"forecast"' in reply.body
        assert b'"search"' not in reply.body
    assert all("was sent as 'required' with this tool alone" in report["notes"][0] for report in healed)


def test_an_overflow_has_the_code_and_the_words_that_clients_know(address: str) -> None:
    long = "a" * CONTEXT * 5
    chats, messages, short = ask(
        address,
        ("/v1/chat/completions", chat(long)),
        ("/v1/messages", chat(long, max_tokens=9)),
        ("/v1/chat/completions", chat("a" * (CONTEXT + 100))),  # the estimate fits: the server refuses it itself
    )[0]
    assert (chats.status, messages.status, short.status) == (400, 400, 400)
    for reply in (chats, short):
        assert reply.json["error"]["code"] == "context_length_exceeded"
        assert reply.json["error"]["message"].startswith(f"This model's maximum context length is {CONTEXT} tokens.")
    assert messages.json["error"]["type"] == "invalid_request_error"
    assert messages.json["error"]["message"].startswith("prompt is too long: ")
    assert f" tokens > {CONTEXT} maximum" in messages.json["error"]["message"]


def test_the_window_is_in_the_list_of_models(address: str) -> None:
    [reply], _ = ask(address, ("/v1/models", {}))
    assert [(row["id"], row["max_model_len"]) for row in reply.json["data"]] == [("tiny", CONTEXT)]


def test_schemas_that_its_grammars_refuse_are_simplified_and_checked_afterwards(address: str) -> None:
    format = {"type": "json_schema", "json_schema": {"name": "x", "schema": HARD}}
    replies, healed = ask(
        address,
        ("/v1/chat/completions", chat(tools=[tool("send", HARD)], tool_choice="required", max_tokens=300)),
        ("/v1/chat/completions", chat(response_format=format, max_tokens=300)),
    )
    assert [reply.status for reply in replies] == [200, 200]
    [call] = replies[0].json["choices"][0]["message"]["tool_calls"]
    assert call["function"]["name"] == "send"
    formatted, called = healed
    assert "the arguments of 'send' do not match its schema, of which the server got a simpler form" in called["notes"]
    assert "the server ignored the output format: the text does not match its schema" in formatted["notes"]


def test_the_check_says_what_is_wrong(address: str) -> None:
    result = CliRunner().invoke(command_line, ["gateway", "--check", "--upstream", f"{address}/v1", "--model", "tiny"])
    assert result.exit_code == 1
    assert "llama.cpp" in result.output
    assert f"{CONTEXT:,} of {CONTEXT:,} tokens" in result.output
    assert "The model has a window of at most" in result.output

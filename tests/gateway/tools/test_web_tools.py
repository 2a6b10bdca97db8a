"""Web tools that clients declare as hosted, run by the gateway for models whose provider does not have them."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from penstock import Message, Text, UsageError
from penstock.gateway import GatewayApp, GatewaySettings, WebTool, app
from penstock.gateway.config.file import settings_from
from penstock.gateway.hosted import commands, pages, rounds, runners
from penstock.gateway.hosted.uses import WebToolUse
from penstock.testing import ReceivedRequest, Reply, Scripted, call
from penstock.wires.shared.web_tools import WebCall
from tests.asgi_client import serving
from tests.gateways import anthropic_client, openai_client, upstream

PAGES = [
    {"title": "Rome", "url": "https://weather.example/rome", "content": "25 degrees"},
    {"title": "Ads", "url": "https://ads.example/rome", "content": "Buy!"},
]
SEARCH: Any = {"type": "web_search_20250305", "name": "web_search", "max_uses": 8}
FETCH: Any = {"type": "web_fetch_20250910", "name": "web_fetch"}
OWN: Any = {"name": "shell", "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}}}
ASK: Any = [{"role": "user", "content": "The weather in Rome? See https://weather.example/rome"}]


def python(code: str, **settings: Any) -> WebTool:
    """A tool that runs a Python program."""
    return WebTool(command=(sys.executable, "-c", code), **settings)


PRINTS = python(f"import sys; q = sys.stdin.read(); print({json.dumps(PAGES)!r})")
ECHO = python("import sys; print('You asked for', sys.stdin.read().strip())")


def served(server: Any, provider: str = "llamacpp", **tools: WebTool) -> GatewayApp:
    one = upstream("", provider=provider, via=server, key="client")
    return app(settings=GatewaySettings(upstreams={one.name: one}, web_tools=tools))


def searches(request: ReceivedRequest) -> Any:
    """Calls the tool once, then answers with what it found."""
    if not request.results:
        return Reply("I look.", call("web_search", {"query": "weather in Rome"}))
    return f"Found: {request.results[-1].text}"


def message(server: Any, *tools: Any, stream: bool = True, web: Any = None, messages: Any = ASK, **fields: Any) -> Any:
    """The message that a client of Messages gets."""

    async def ask() -> Any:
        tools_here: Any = web or {"web_search": PRINTS}
        async with serving(served(server, **tools_here)) as browser:
            client = anthropic_client(browser)
            asked: Any = {"model": "m", "max_tokens": 99, "messages": messages, "tools": list(tools), **fields}
            if not stream:
                return await client.messages.create(**asked)
            async with client.messages.stream(**asked) as events:
                return await events.get_final_message()

    return asyncio.run(ask())


@pytest.mark.parametrize("stream", [True, False])
def test_the_client_gets_the_blocks_of_its_protocol(stream: bool) -> None:
    server = Scripted(searches)
    reply = message(server, SEARCH, stream=stream)
    kinds = [block.type for block in reply.content]
    assert kinds == ["text", "server_tool_use", "web_search_tool_result", "text"]
    assert reply.content[1].input == {"query": "weather in Rome"}
    assert reply.content[2].tool_use_id == reply.content[1].id
    assert [(page.title, page.url) for page in reply.content[2].content] == [
        ("Rome", "https://weather.example/rome"), ("Ads", "https://ads.example/rome"),
    ]  # fmt: skip
    assert reply.content[3].text.startswith("Found: 1. Rome\nhttps://weather.example/rome\n25 degrees")
    assert reply.stop_reason == "end_turn"
    assert [one.name for one in server.requests[0].tools] == ["web_search"]


def test_the_usage_of_all_rounds_is_added_up() -> None:
    server = Scripted(searches)
    reply, alone = message(server, SEARCH), message(Scripted(["Found nothing."]), SEARCH)
    assert reply.usage.output_tokens > alone.usage.output_tokens
    assert reply.usage.input_tokens > alone.usage.input_tokens


@pytest.mark.parametrize("provider", ["llamacpp", "openai", "google", "ollama"])
def test_the_model_gets_the_same_history_when_the_client_sends_it_back(provider: str) -> None:
    server = Scripted(searches, strict=True)

    async def converse() -> None:
        async with serving(served(server, provider, web_search=PRINTS)) as browser:
            client = anthropic_client(browser)
            asked: Any = {"model": "m", "max_tokens": 99, "tools": [SEARCH]}
            reply = await client.messages.create(messages=ASK, **asked)
            blocks = [block.model_dump(exclude_none=True) for block in reply.content]
            again: Any = [*ASK, {"role": "assistant", "content": blocks}, {"role": "user", "content": "And now?"}]
            await client.messages.create(messages=again, **asked)

    asyncio.run(converse())
    field = next(name for name in ("messages", "input", "contents") if name in server.requests[0].body)
    second, third = (request.body[field] for request in server.requests[1:3])
    assert third[: len(second)] == second


def test_a_response_client_gets_items_and_the_model_the_earlier_result() -> None:
    server = Scripted(searches)

    async def converse(stream: bool) -> Any:
        async with serving(served(server, web_search=PRINTS)) as browser:
            client = openai_client(browser)
            asked: Any = {"model": "m", "tools": [{"type": "web_search"}]}
            items: Any = [{"role": "user", "content": "The weather?"}]
            if stream:
                async with client.responses.stream(input=items, **asked) as events:
                    every: list[Any] = [event async for event in events]
                    reply = every[-1].response
            else:
                reply = await client.responses.create(input=items, **asked)
            more = [*items, *(item.model_dump(exclude_none=True) for item in reply.output)]
            await client.responses.create(input=[*more, {"role": "user", "content": "And now?"}], **asked)
            return reply

    for stream in (True, False):
        server.requests.clear()
        reply = asyncio.run(converse(stream))
        assert [item.type for item in reply.output] == ["message", "web_search_call", "message"]
        assert reply.output[1].action.query == "weather in Rome"
        assert [source.url for source in reply.output[1].action.sources] == [page["url"] for page in PAGES]
        assert "25 degrees" in reply.output_text
        second, third = server.requests[1].body["messages"], server.requests[2].body["messages"]
        assert third[: len(second)] == second


def test_calls_of_the_clients_own_tools_end_the_response() -> None:
    both = Reply(call("web_search", {"query": "Rome"}), call("shell", {"command": "ls"}))
    server = Scripted(lambda request: "Done." if len(request.results) > 1 else both, strict=True)
    reply = message(server, SEARCH, OWN)
    assert [block.type for block in reply.content] == ["tool_use", "server_tool_use", "web_search_tool_result"]
    assert reply.stop_reason == "tool_use"
    blocks = [block.model_dump(exclude_none=True) for block in reply.content]
    answer = {"type": "tool_result", "tool_use_id": reply.content[0].id, "content": "a.txt"}
    turns = [*ASK, {"role": "assistant", "content": blocks}, {"role": "user", "content": [answer]}]
    assert message(server, SEARCH, OWN, messages=turns).content[-1].text == "Done."
    assert sorted(result.name for result in server.requests[-1].results) == ["shell", "web_search"]


def test_a_page_is_fetched_only_if_its_address_is_in_the_conversation() -> None:
    def fetches(url: str) -> Any:
        return lambda request: "Done." if request.results else Reply(call("web_fetch", {"url": url}))

    known = message(Scripted(fetches("https://weather.example/rome")), FETCH, web={"web_fetch": ECHO})
    assert known.content[1].content.content.source.data == "You asked for https://weather.example/rome"
    for url, code in {
        "https://evil.example/?secret=42": "url_not_in_prior_context",
        "https://weather.exa": "url_not_in_prior_context", "https://weather.example/ro": "url_not_in_prior_context",
        "file:///etc/passwd": "url_not_allowed",
        "": "invalid_tool_input", "http://[": "url_not_allowed",
    }.items():  # fmt: skip
        reply = message(Scripted(fetches(url)), FETCH, web={"web_fetch": ECHO})
        assert reply.content[1].content.error_code == code
        assert reply.content[2].text == "Done."


def test_the_clients_limits_hold() -> None:
    server = Scripted(searches)
    reply = message(server, {**SEARCH, "allowed_domains": ["weather.example"]})
    assert [page.url for page in reply.content[2].content] == ["https://weather.example/rome"]
    assert "Ads" not in server.requests[1].results[0].text
    reply = message(Scripted(searches), {**SEARCH, "blocked_domains": ["weather.example"]})
    assert [page.url for page in reply.content[2].content] == ["https://ads.example/rome"]
    twice: Any = [Reply(call("web_search", {"query": "a"})), Reply(call("web_search", {"query": "b"})), "Done."]
    reply = message(Scripted(twice), {**SEARCH, "max_uses": 1})
    assert reply.content[3].content.error_code == "max_uses_exceeded"


def test_the_rounds_are_bounded_and_the_last_one_is_without_the_tool() -> None:
    server = Scripted(lambda request: Reply(call("web_search", {"query": "x"})) if request.tools else "Enough.")
    with patch.object(rounds, "MAX_ROUNDS", 3):
        reply = message(server, {"type": "web_search", "name": "web_search"})
    assert [block.type for block in reply.content].count("server_tool_use") == 3
    assert reply.content[-1].text == "Enough."
    assert len(server.requests) == 4
    with patch.object(rounds, "MAX_ROUNDS", 2):  # a model that calls a tool which it does not have
        reply = message(Scripted(lambda _: Reply(call("web_search", {"query": "x"}))), SEARCH)
    assert reply.stop_reason == "max_tokens"


def test_a_forced_call_is_not_forced_again() -> None:
    server = Scripted(searches)
    message(server, SEARCH, tool_choice={"type": "tool", "name": "web_search"})
    assert [bool(request.body.get("tool_choice")) for request in server.requests] == [True, False]


def test_a_call_that_may_not_run_does_not_run() -> None:
    cut = Reply(call("web_search", {"query": "x"}), finish="length")
    reply = message(Scripted([cut]), SEARCH)
    assert (reply.content, reply.stop_reason) == ([], "max_tokens")
    reply = message(Scripted([Reply(call("web_search", '{"query": ')), "Done."]), SEARCH)
    assert reply.content[1].content.error_code == "invalid_tool_input"


@pytest.mark.parametrize(
    ("tool", "why"),
    [
        (python("import sys; sys.exit('no key')"), "it ended with the code 1: no key"),
        (python("import time; time.sleep(60)", seconds=0.2), "it gave no result within 0.2 seconds"),
        (WebTool(command=("/no/such/program",)), "it cannot be started"),
    ],
)
def test_a_tool_that_fails_is_reported_to_the_model_the_client_and_the_operator(tool: WebTool, why: str) -> None:
    server = Scripted(searches)

    async def ask() -> Any:
        async with serving(served(server, web_search=tool)) as browser:
            reply = await anthropic_client(browser).messages.create(
                model="m", max_tokens=99, messages=ASK, tools=[SEARCH]
            )
            return reply, (await browser.get("/healed")).json["requests"][0]

    reply, healed = asyncio.run(ask())
    assert reply.content[2].content.error_code == "unavailable"
    assert reply.content[3].text == "Found: The tool failed: unavailable."
    assert any(why in note for note in healed["notes"]), healed["notes"]
    assert [one["upstream"] for one in healed["asked"]] == ["local", "local"]


def test_a_command_gets_no_secrets_and_no_shell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("SEARCH_KEY", "mine")
    shows = python("import os, sys; print(sorted(os.environ), sys.stdin.read())", env=("SEARCH_KEY",))
    server = Scripted(searches)
    message(server, {**SEARCH, "allowed_domains": ["a.example", "b.example"]}, web={"web_search": shows})
    text = server.requests[1].results[0].text
    assert "SEARCH_KEY" in text
    assert "PENSTOCK_ALLOWED_DOMAINS" in text
    assert "OPENAI_API_KEY" not in text
    quoting = Scripted([Reply(call("web_search", {"query": "$(echo broken); `ls`"})), "Done."])
    message(quoting, SEARCH, web={"web_search": ECHO})
    assert quoting.requests[1].results[0].text == "You asked for $(echo broken); `ls`"


def test_a_query_with_line_breaks_is_one_line_for_the_command() -> None:
    lines = python("import sys; print(sys.stdin.readlines())")
    server = Scripted([Reply(call("web_search", {"query": "weather\r\nin  Rome\n"})), "Done."])
    message(server, SEARCH, web={"web_search": lines})
    assert server.requests[1].results[0].text.strip() == str(["weather in Rome\n"])


def test_a_client_that_leaves_stops_the_command(tmp_path: Path) -> None:
    started, ended = tmp_path / "started", tmp_path / "ended"
    code = (
        "import os, pathlib, time\n"
        f"pathlib.Path({str(started)!r}).write_text(str(os.getpid())); time.sleep(60)\n"
        f"pathlib.Path({str(ended)!r}).write_text('')"
    )

    async def leave() -> int:
        async with serving(served(Scripted(searches), web_search=python(code))) as browser:
            body = {"model": "m", "max_tokens": 9, "stream": True, "messages": ASK, "tools": [SEARCH]}
            connection = browser.connect("POST", "/v1/messages", body)
            await connection.reply.until("server_tool_use")
            await asyncio.to_thread(wait_for, lambda: started.exists() and bool(started.read_text()))
            connection.leave()
            await connection.task
        return int(started.read_text())

    pid = asyncio.run(leave())
    wait_for(lambda: not _is_alive(pid))
    assert not ended.exists()


def wait_for(is_true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_the_text_streams_before_the_search_has_ended(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    waits = python(
        f"import pathlib, time\nwhile not pathlib.Path({str(gate)!r}).exists(): time.sleep(0.01)\nprint('ok')"
    )

    async def read() -> None:
        async with serving(served(Scripted(searches), web_search=waits)) as browser:
            body = {"model": "m", "max_tokens": 9, "stream": True, "messages": ASK, "tools": [SEARCH]}
            connection = browser.connect("POST", "/v1/messages", body)
            await connection.reply.until("text_delta")
            await connection.reply.until("server_tool_use")
            assert b"web_search_tool_result" not in connection.reply.body
            gate.write_text("")
            await connection.reply.until("message_stop")

    asyncio.run(read())


def test_a_tool_of_an_mcp_server_is_called() -> None:
    tool = WebTool(mcp=(sys.executable, "-m", "tests.mcp_server", "stdio"), tool="put", argument="context")
    server = Scripted(searches)
    message(server, SEARCH, web={"web_search": tool})
    assert server.requests[1].results[0].text == "put weather in Rome"


def test_a_gateway_that_stops_closes_its_mcp_servers() -> None:
    tool = WebTool(mcp=(sys.executable, "-m", "tests.mcp_server", "stdio"), tool="put", argument="context")
    gateway = served(Scripted(searches), web_search=tool)

    async def ask() -> None:
        async with serving(gateway) as browser:
            asked: Any = {"model": "m", "max_tokens": 99, "messages": ASK, "tools": [SEARCH]}
            await anthropic_client(browser).messages.create(**asked)
            assert gateway.context.web_tools._servers
        assert not gateway.context.web_tools._servers

    asyncio.run(ask())


@pytest.mark.parametrize("end", ["", ".", ", then", ")", '"', "> and", "?\n", "\n"])
def test_an_address_in_a_sentence_is_mentioned(end: str) -> None:
    sentence = Message("user", (Text(0, f"See https://a.example/x{end}"),))
    assert runners._mentions(sentence, "https://a.example/x")
    assert not runners._mentions(sentence, "https://a.example/")
    assert not runners._mentions(Message("assistant", sentence.parts), "https://a.example/x")


def test_text_that_is_not_json_is_passed_on_with_its_addresses() -> None:
    server = Scripted(searches)
    plain = python("print('See https://a.example/x, and (https://b.example/y).')")
    reply = message(server, SEARCH, web={"web_search": plain})
    assert [page.url for page in reply.content[2].content] == ["https://a.example/x", "https://b.example/y"]
    assert server.requests[1].results[0].text == "See https://a.example/x, and (https://b.example/y)."


def test_what_a_tool_prints_is_capped() -> None:
    many = python(f"import json; print(json.dumps({PAGES!r} * 50))")
    with patch.object(pages, "MAX_PAGES", 3):
        assert len(message(Scripted(searches), SEARCH, web={"web_search": many}).content[2].content) == 3
    endless = python("import sys\nwhile True: sys.stdout.write('x' * 1000)", characters=10)
    server = Scripted(searches)
    with patch.object(commands, "MAX_OUTPUT", 5000):
        message(server, SEARCH, web={"web_search": endless})
    assert server.requests[1].results[0].text == "xxxxxxxxxx\n(The rest was left out.)"
    loud = python("import sys; sys.stderr.write('x' * 1000); sys.exit(1)")
    with patch.object(commands, "MAX_ERRORS", 5), pytest.raises(commands.CommandFailed, match=r"code 1: x{5}$"):
        asyncio.run(commands.run_command(commands.Command(loud.command), "", 20))


def test_results_are_kept_up_to_a_cap() -> None:
    tools = runners.WebTools()
    use, say = WebToolUse(name="web_search", tool=python("print('12345')")), "web_search"
    with patch.object(runners, "MAX_TEXTS", 10):
        for number in range(3):
            asyncio.run(tools.run(use, WebCall(str(number), say, "x"), ()))
    assert [tools.find_text(str(number)) for number in range(3)] == [None, "12345", "12345"]


def test_a_number_of_tools_runs_at_a_time(tmp_path: Path) -> None:
    alone = python(
        f"import os, time\nos.close(os.open({str(tmp_path / 'lock')!r}, os.O_CREAT | os.O_EXCL))\ntime.sleep(0.2)\n"
        f"os.remove({str(tmp_path / 'lock')!r})"
    )
    use = WebToolUse(name="web_search", tool=alone)

    async def run(most: int) -> list[str]:
        with patch.object(runners, "MAX_RUNNING", most):
            tools = runners.WebTools()
        results = await asyncio.gather(*(tools.run(use, WebCall(str(one), "web_search", "x"), ()) for one in range(3)))
        return [why for _, why in results if why]

    assert asyncio.run(run(1)) == []


def test_a_provider_that_has_the_tool_runs_it() -> None:
    server = Scripted(["Done."])

    async def ask() -> None:
        async with serving(served(server, "anthropic", web_search=PRINTS)) as browser:
            await anthropic_client(browser).messages.create(model="m", max_tokens=9, messages=ASK, tools=[SEARCH])

    asyncio.run(ask())
    assert server.requests[0].body["tools"] == [SEARCH]


def test_without_a_command_the_tool_is_left_out_and_reported() -> None:
    async def ask() -> Any:
        async with serving(served(Scripted(["Done."]), web_fetch=ECHO)) as browser:
            await anthropic_client(browser).messages.create(model="m", max_tokens=9, messages=ASK, tools=[SEARCH])
            return (await browser.get("/healed")).json["requests"][0]["dropped"]

    assert "tools: web_search runs at its provider; there is no such tool here" in asyncio.run(ask())


def test_the_file_says_what_runs_a_tool() -> None:
    upstreams = {"a": {"url": "http://x"}}
    tools = {"web_search": {"command": ["search", "--json"], "env": ["KEY"], "seconds": 5}}
    read = settings_from({"upstreams": upstreams, "web_tools": tools}).web_tools["web_search"]
    assert (read.command, read.env, read.seconds) == (("search", "--json"), ("KEY",), 5)
    fetch = settings_from({"upstreams": upstreams, "web_tools": {"web_fetch": {"mcp": ["server", "-v"]}}})
    assert fetch.web_tools["web_fetch"].mcp == ("server", "-v")
    for table, problem in {
        "web_tools.web_search: a web tool needs either": {"web_search": {}},
        "web_tools.code: there are only web_search and web_fetch": {"code": {"command": ["x"]}},
        "web_tools.web_search: command must be a list of texts": {"web_search": {"command": "search"}},
    }.items():
        with pytest.raises(UsageError, match=table):
            settings_from({"upstreams": upstreams, "web_tools": problem})

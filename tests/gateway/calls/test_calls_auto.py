"""`calls = "auto"`: native first, and the model's dialect after a server without tools or with a failing parser."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from aiohttp import web

from penstock.gateway import GatewayApp, Upstream, answer, app
from penstock.gateway.calls.learned import MAX_LEARNED, LearnedCalls, Way
from penstock.gateway.routing import Candidate
from penstock.healing.settings import Healing
from tests.asgi_client import Reply, serving
from tests.cases import each
from tests.gateways import chat, delta, events, sse, text_of, tool_call, web_server

SHELL = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TOOLS = [{"type": "function", "function": {"name": "shell", "parameters": SHELL}}]
HERMES = '<tool_call>\n{"name": "shell", "arguments": {"command": "ls"}}\n</tool_call>'
XML = '<function_calls>\n<invoke name="shell">\n<parameter name="command">ls</parameter>\n</invoke>\n</function_calls>'
NATIVE = sse(delta(content="I look."), delta(tool_calls=[tool_call('{"command": "ls"}')]), delta("tool_calls"))

REFUSALS = {
    "Ollama": (400, "registry.ollama.ai/library/gemma3:4b does not support tools"),
    "vLLM": (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
    "vLLM, required": (400, 'tool_choice="required" requires --tool-call-parser to be set'),
    "llama.cpp": (500, "tools param requires --jinja flag"),
    "OpenRouter": (404, "No endpoints found that support tool use. To learn more about provider routing, visit …"),
    "Gemini API": (400, "Function calling is not enabled for models/gemma-3-27b-it"),
    "Groq": (400, "`tool calling` is not supported with this model"),
}
"""The words with which servers refuse tools, with their status."""
FAILURES = {
    "llama.cpp": "The model produced output that does not match the expected peg-native format",
    "llama.cpp, earlier": "Failed to parse input at pos 184: <tool_call>",
    "Ollama, qwen3coder": "XML syntax error on line 127: element <parameter> closed by </function>",
    "Ollama, glm46": "failed to parse XML: XML syntax error on line 1: element <tool_call> closed by </arg_value>",
    "Ollama, qwen3.5": "expected element type <function> but have <parameter>",
    "Ollama, gpt-oss": "error parsing tool call: raw='{\"command\": ', err=unexpected end of JSON input",
    "vLLM, gpt-oss": "Unexpected token 200002 while expecting start token 200006",
    "vLLM, gpt-oss header": 'unexpected tokens remaining in message header: Some("to=functions.shell")',
}
"""The words with which servers report that their parser failed."""
OTHERS = (
    "model 'qwen4' not found", "the request exceeds the available context size", "invalid type for tools[0]",
    "tools[0].function.name is too long", "out of memory", "Internal Server Error",
    "this model does not support tool_choice 'required'", "Tool 'web_search' is not supported with this model",
)  # fmt: skip

Script = Callable[[Any], web.Response]


def stream(*chunks: Any) -> web.Response:
    return web.Response(body=sse(*chunks, done=False), content_type="text/event-stream")


def refuse(status: int, message: str) -> web.Response:
    return web.json_response({"error": {"message": message, "type": "error"}}, status=status)


class Server:
    """A server that answers each request as a function of its body says, and keeps the bodies."""

    def __init__(self, script: Script) -> None:
        self.bodies: list[Any] = []
        self._script = script

    async def answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        return self._script(body)

    @property
    def ways(self) -> list[str]:
        """How each request asked for calls."""
        return ["native" if "tools" in body else "text" for body in self.bodies]


def dialect_in(body: Any) -> str:
    """The text of a model that writes calls as the prompt asks for them."""
    return XML if "<function_calls>" in body["messages"][0]["content"] else HERMES


def without_tools(status: int, message: str) -> Script:
    def script(body: Any) -> web.Response:
        return refuse(status, message) if "tools" in body else stream(delta(content=dialect_in(body)), delta("stop"))

    return script


def with_broken_parser(message: str, *, is_streamed: bool) -> Script:
    """A server whose parser fails after it has sent a part of the text."""

    def script(body: Any) -> web.Response:
        if "tools" not in body:
            return stream(delta(content=dialect_in(body)), delta("stop"))
        error = {"error": {"code": 500, "message": message, "type": "server_error"}}
        return stream(delta(content="I look."), error) if is_streamed else refuse(500, message)

    return script


def ask(
    script: Script, *bodies: Any, model: str = "qwen3:4b", calls: str = "auto", base: str = "/v1", **settings: Any
) -> tuple[Server, list[Reply], GatewayApp]:
    """The replies to some requests, one after the other."""

    async def run() -> tuple[Server, list[Reply], GatewayApp]:
        server = Server(script)
        async with web_server(server.answer) as address:
            fields = {"provider": "llamacpp", "url": f"{address}{base}"} | settings
            gateway = app(Upstream(name="local", **fields), model=model, calls=calls)
            async with serving(gateway) as browser:
                replies = [await browser.post("/v1/chat/completions", body) for body in bodies]
            return server, replies, gateway

    return asyncio.run(run())


def calls_of(reply: Reply) -> list[tuple[str, str]]:
    """The calls in the response, streamed or whole."""
    assert reply.status == 200, reply.body
    if reply.headers["content-type"].startswith("application/json"):
        found = reply.json["choices"][0]["message"].get("tool_calls") or []
        return [(one["function"]["name"], one["function"]["arguments"]) for one in found]
    names: dict[int, str] = {}
    arguments: dict[int, str] = {}
    for event in events(reply.body):
        for choice in event.get("choices", ()):
            for one in choice["delta"].get("tool_calls") or ():
                names[one["index"]] = names.get(one["index"], "") + (one["function"].get("name") or "")
                arguments[one["index"]] = arguments.get(one["index"], "") + (one["function"].get("arguments") or "")
    return [(names[index], json.dumps(json.loads(arguments[index]))) for index in names]


EXPECTED = [("shell", '{"command": "ls"}')]


@pytest.mark.parametrize("is_streaming", [True, False], ids=["streamed", "whole"])
@each(("status", "message"), REFUSALS.values(), ids=REFUSALS)
def test_a_server_that_refuses_tools_is_asked_in_the_dialect_of_the_model(
    status: int, message: str, is_streaming: bool
) -> None:
    body = chat(is_streaming, tools=TOOLS)
    server, replies, gateway = ask(without_tools(status, message), body, body, retries=0)
    assert [calls_of(reply) for reply in replies] == [EXPECTED, EXPECTED]
    assert server.ways == ["native", "text", "text"]  # asked natively once
    last, first = gateway.context.healed.last(2)
    assert (first.calls, last.calls) == ("hermes", "hermes")
    assert message in first.asked[0].failure
    assert any("'hermes'" in note and message in note for note in first.notes)
    assert len(last.asked) == 1
    assert not first.healed


@pytest.mark.parametrize("is_streaming", [True, False], ids=["streamed", "whole"])
@each("is_streamed", [True, False])
@each("message", FAILURES.values(), ids=FAILURES)
def test_nothing_of_a_response_whose_parser_failed_is_shown(
    message: str, is_streamed: bool, is_streaming: bool
) -> None:
    body = chat(is_streaming, tools=TOOLS)
    server, replies, gateway = ask(with_broken_parser(message, is_streamed=is_streamed), body, body)
    assert [calls_of(reply) for reply in replies] == [EXPECTED, EXPECTED]
    assert b"I look." not in replies[0].body
    assert server.ways == ["native", "text", "text"]
    assert gateway.context.healed.last(1)[0].calls == "hermes"


def test_the_switch_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    body = chat(tools=TOOLS)
    with caplog.at_level(logging.WARNING, "penstock.gateway"):
        ask(without_tools(*REFUSALS["Ollama"]), body, body, body)
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "'hermes'" in line
    assert "does not support tools" in line
    assert "qwen3:4b" in line


def test_a_parser_that_reads_the_dialect_too_is_avoided_with_xml() -> None:
    """As Ollama's parsers do, which read the text of a request without tools."""
    message = FAILURES["Ollama, qwen3coder"]

    def script(body: Any) -> web.Response:
        text = dialect_in(body)
        failed = [delta(content="I look."), {"error": {"message": message}}]
        return (
            stream(*failed) if "tools" in body or "<tool_call>" in text else stream(delta(content=text), delta("stop"))
        )

    body = chat(tools=TOOLS)
    server, replies, gateway = ask(script, body, body)
    assert [calls_of(reply) for reply in replies] == [EXPECTED, EXPECTED]
    assert [text_of(reply.body) for reply in replies] == ["", ""]
    assert server.ways == ["native", "text", "text", "text"]
    assert gateway.context.healed.last(1)[0].calls == "xml"


@each("is_failing", [False, True])
@each("is_streaming", [True, False])
def test_ollamas_own_protocol_is_understood(is_failing: bool, is_streaming: bool) -> None:
    """It refuses with `error` as a text, and a parser that fails is a line of a response with the status 200."""

    def script(body: Any) -> web.Response:
        if "tools" in body and not is_failing:
            return web.json_response({"error": REFUSALS["Ollama"][1]}, status=400)
        lines: list[Any] = [{"message": {"role": "assistant", "content": "I look."}, "done": False}]
        if "tools" in body:
            lines.append({"error": FAILURES["Ollama, qwen3coder"]})
        else:
            lines = [{"message": {"role": "assistant", "content": dialect_in(body)}, "done": False}]
            lines.append({"message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop"})
        return web.Response(text="".join(json.dumps({"model": "m", **line}) + "\n" for line in lines))

    body = chat(is_streaming, tools=TOOLS)
    server, replies, _ = ask(script, body, body, provider="ollama", base="")
    assert [calls_of(reply) for reply in replies] == [EXPECTED, EXPECTED]
    assert b"I look." not in replies[0].body
    assert server.ways == ["native", "text", "text"]


def test_a_server_that_fails_in_every_way_is_asked_three_times_and_its_error_is_passed_on() -> None:
    message = FAILURES["llama.cpp"]
    server, (reply,), _ = ask(lambda _: refuse(500, message), chat(tools=TOOLS))
    assert reply.status == 500
    assert message in reply.body.decode()
    assert server.ways == ["native", "text", "text"]


@pytest.mark.parametrize("is_streaming", [True, False], ids=["streamed", "whole"])
def test_a_model_of_an_unknown_dialect_gets_an_error_that_says_what_to_set(is_streaming: bool) -> None:
    script = without_tools(*REFUSALS["Ollama"])
    server, (reply,), _ = ask(script, chat(is_streaming, tools=TOOLS), model="mystery")
    assert reply.status == 400
    assert "does not support tools" in reply.body.decode()
    assert "calls='xml'" in reply.json["error"]["message"]
    assert server.ways == ["native"]


@each("message", OTHERS)
@each("status", [400, 404, 500])
def test_other_errors_are_passed_on(message: str, status: int) -> None:
    server, (reply,), _ = ask(lambda _: refuse(status, message), chat(tools=TOOLS), retries=0)
    assert reply.status == status
    assert server.ways == ["native"]


@each("calls", ["native", "hermes"])
def test_without_auto_nothing_is_learned(calls: str) -> None:
    failing = [delta(content="I look."), {"error": {"message": FAILURES["llama.cpp"]}}]
    server, replies, _ = ask(lambda _: stream(*failing), chat(tools=TOOLS), chat(tools=TOOLS), calls=calls)
    assert server.ways == ["native" if calls == "native" else "text"] * 2
    assert all(FAILURES["llama.cpp"] in reply.body.decode() for reply in replies)


def test_native_calls_stay_native_and_stream_once_they_are_proven() -> None:
    def script(body: Any) -> web.Response:
        return web.Response(body=NATIVE, content_type="text/event-stream")

    server, replies, gateway = ask(script, chat(tools=TOOLS), chat(tools=TOOLS))
    assert [calls_of(reply) for reply in replies] == [EXPECTED, EXPECTED]
    assert server.ways == ["native", "native"]
    assert [report.calls for report in gateway.context.healed.last(2)] == ["native", "native"]


@pytest.mark.parametrize("is_streaming", [True, False], ids=["streamed", "whole"])
def test_a_parser_that_fails_after_it_was_proven_changes_later_requests(is_streaming: bool) -> None:
    """A streamed response cannot be taken back: it ends with the error. A whole one is asked for again."""
    answers = [NATIVE, sse(delta(content="I look."), {"error": {"message": FAILURES["llama.cpp"]}}, done=False)]

    def script(body: Any) -> web.Response:
        if "tools" in body:
            return web.Response(body=answers.pop(0), content_type="text/event-stream")
        return stream(delta(content=dialect_in(body)), delta("stop"))

    body = chat(is_streaming, tools=TOOLS)
    server, replies, gateway = ask(script, body, body, body)
    assert calls_of(replies[0]) == calls_of(replies[2]) == EXPECTED
    assert server.ways == ["native", "native", "text", *([] if is_streaming else ["text"])]
    if is_streaming:
        assert FAILURES["llama.cpp"] in replies[1].body.decode()
        assert b'finish_reason":"stop' not in replies[1].body
        second = gateway.context.healed.last(2)[1]
        assert any("in later requests" in note for note in second.notes)
    else:
        assert calls_of(replies[1]) == EXPECTED


def test_a_request_without_tools_is_not_held_back_and_teaches_nothing() -> None:
    server, replies, _ = ask(lambda _: stream(delta(content="Hi."), delta("stop")), chat(), chat(tools=TOOLS))
    assert [text_of(reply.body) for reply in replies] == ["Hi.", "Hi."]
    assert [len(body.get("tools", [])) for body in server.bodies] == [0, 1]


def test_a_long_response_is_held_back_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer, "MAX_HELD", 3)
    words = ("I ", "look ", "at ", "it ", "and ", "it ")
    chunks = [*(delta(content=word) for word in words), {"error": {"message": "EOF"}}]
    frames = [sse(chunk, done=False) for chunk in chunks]

    async def slowly(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"content-type": "text/event-stream"})
        await response.prepare(request)
        for frame in frames:
            await response.write(frame)
            await asyncio.sleep(0.02)  # so that each is read alone
        return response

    async def run() -> Reply:
        async with web_server(slowly) as address:
            gateway = app(Upstream(name="local", provider="llamacpp", url=f"{address}/v1"), model="qwen3", calls="auto")
            async with serving(gateway) as browser:
                return await browser.post("/v1/chat/completions", chat(tools=TOOLS))

    reply = asyncio.run(run())
    assert text_of(reply.body).startswith("I look at")  # it was not asked for again
    assert b"EOF" in reply.body


def test_a_call_proves_only_the_way_in_which_it_was_asked_for() -> None:
    """Another request may have failed meanwhile."""
    learned, candidate = LearnedCalls(), Candidate(Upstream(name="local"), "qwen3", Healing(), calls="auto")
    native = learned.of(candidate)
    assert learned.fail(candidate, native, FAILURES["llama.cpp"])
    learned.prove(candidate, native)
    assert not learned.of(candidate).is_proven
    learned.prove(candidate, learned.of(candidate))
    assert learned.of(candidate).is_proven
    assert learned.of(candidate).calls == "hermes"


def test_what_is_learned_is_learned_per_model_and_is_limited() -> None:
    learned = LearnedCalls()

    def candidate(model: str) -> Candidate:
        return Candidate(Upstream(name="local"), model, Healing(), calls="auto")

    refusal = REFUSALS["Ollama"][1]
    assert learned.fail(candidate("qwen3:0"), Way(), refusal)
    assert learned.of(candidate("qwen3:0")).calls == "hermes"
    assert learned.of(candidate("qwen3:1")).calls == "native"
    for number in range(1, MAX_LEARNED + 5):
        learned.fail(candidate(f"qwen3:{number}"), Way(), refusal)
    assert [learned.of(candidate(f"qwen3:{number}")).calls for number in (0, 4, 5, MAX_LEARNED + 4)] == [
        "native", "native", "hermes", "hermes",
    ]  # fmt: skip

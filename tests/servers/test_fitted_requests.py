"""Requests that are fitted to the server behind a gateway, and notes about what the server did with them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from aiohttp import web
from msgspec import Struct
from msgspec.structs import replace

from penstock.events import Usage
from penstock.gateway import GatewayApp, GatewaySettings, ModelRoute, Target, Upstream, app
from penstock.gateway.context import LIMITS
from penstock.gateway.servers.overflow import TokenRatios, cut_note
from penstock.servers.facts import ServerFacts
from tests.asgi_client import Reply, serving
from tests.gateways import SHELL, delta, sse, tool_call, web_server
from tests.servers import faces
from tests.servers.faces import Face, Respond, serving_face

OTHER = {"name": "other", "parameters": {"type": "object", "properties": {}}}
TOOLS = [{"type": "function", "function": SHELL}, {"type": "function", "function": OTHER}]
NAMED = {"type": "function", "function": {"name": "shell"}}
QWEN = "Qwen/Qwen3-8B"
GEMMA = "google/gemma-4-26b-a4b"


class Result(Struct):
    """The replies of a gateway, and its reports."""

    replies: list[Reply]
    healed: list[Any]
    upstream: Upstream

    @property
    def notes(self) -> list[str]:
        return [note for report in self.healed for note in report["notes"]]


def ask(
    face: Face,
    *bodies: Mapping[str, Any],
    path: str = "/v1/chat/completions",
    provider: str = "llamacpp",
    base: str = "/v1",
    route: int = 0,
    **settings: Any,
) -> Result:
    """Requests through a gateway to a face, one after the other."""

    async def main() -> Result:
        async with serving_face(face) as url:
            upstream = Upstream(name="first", url=f"{url}{base}", provider=provider, **settings)
            routes = (ModelRoute(pattern="*", target=Target("first"), context=route),) if route else ()
            async with serving(app(settings=GatewaySettings(upstreams={"first": upstream}, routes=routes))) as browser:
                replies = [await browser.post(path, dict(body)) for body in bodies]
                healed = (await browser.get("/healed")).json["requests"]
                return Result(replies, [*reversed(healed)], upstream)

    return asyncio.run(main())


def chat(model: str = "m", content: str = "Hello.", **fields: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": content}], **fields}


CALL: Respond = lambda _body: sse(delta(tool_calls=[tool_call('{"command": "ls"}')]), delta("tool_calls"))  # noqa: E731


# Tool choices.


@pytest.mark.parametrize(("face", "model"), [(faces.llamacpp(chat=CALL), "m"), (faces.lmstudio(chat=CALL), GEMMA)])
@pytest.mark.parametrize("stream", [False, True])
def test_a_named_tool_choice_is_required_with_one_tool(face: Face, model: str, stream: bool) -> None:
    result = ask(face, chat(model, tools=TOOLS, tool_choice=NAMED, stream=stream))
    sent = face.chats[-1]
    assert sent["tool_choice"] == "required"
    assert [tool["function"]["name"] for tool in sent["tools"]] == ["shell"]
    assert result.notes[0] == (
        "the tool choice 'shell' was sent as 'required' with this tool alone: the server does not take names"
    )


def test_the_choice_of_other_protocols_is_fitted_too() -> None:
    face = faces.llamacpp(chat=CALL)
    tools = [{"name": tool["name"], "input_schema": tool["parameters"]} for tool in (SHELL, OTHER)]
    body = {**chat(max_tokens=9), "tools": tools, "tool_choice": {"type": "tool", "name": "shell"}}
    assert ask(face, body, path="/v1/messages").replies[0].json["content"][0]["name"] == "shell"
    assert face.chats[0]["tool_choice"] == "required"


@pytest.mark.parametrize(("face", "model"), [(faces.vllm(chat=CALL), QWEN), (faces.sglang(chat=CALL), QWEN),
                                             (Face(pages={}, chat=CALL), "m")])  # fmt: skip
def test_other_servers_get_the_choice_as_it_is(face: Face, model: str) -> None:
    result = ask(face, chat(model, tools=TOOLS, tool_choice=NAMED))
    assert face.chats[0]["tool_choice"] == NAMED
    assert len(face.chats[0]["tools"]) == 2
    assert result.notes == ["the usage is an estimate: the server sent none"]


@pytest.mark.parametrize("choice", ["auto", "none", "required"])
def test_words_are_passed_on(choice: str) -> None:
    face = faces.llamacpp(chat=CALL)
    ask(face, chat(tools=TOOLS, tool_choice=choice))
    assert face.chats[0]["tool_choice"] == choice
    assert len(face.chats[0]["tools"]) == 2


# What a server ignored.


FORMAT = {
    "type": "json_schema",
    "json_schema": {
        "name": "x", "schema": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
    },
}  # fmt: skip
IGNORED = [
    ({"tools": TOOLS, "tool_choice": "required"}, "Hello.",
     "the server ignored the tool choice: a call was required, and the response has none"),
    ({"tools": TOOLS, "tool_choice": NAMED}, "Hello.",
     "the server ignored the tool choice: 'shell' was required, and was not called"),
    ({"response_format": FORMAT}, "Hello.", "the server ignored the output format: the text is not JSON"),
    ({"response_format": FORMAT}, '{"a": "1"}',
     "the server ignored the output format: the text does not match its schema"),
    ({"response_format": {"type": "json_object"}}, "Hello.",
     "the server ignored the output format: the text is not JSON"),
    ({"response_format": FORMAT}, '{"a": 1}', None),
    ({"response_format": {"type": "json_object"}}, "{}", None),
    ({"tools": TOOLS, "tool_choice": "auto"}, "Hello.", None),
    ({}, "Hello.", None),
]  # fmt: skip


@pytest.mark.parametrize(("fields", "text", "note"), IGNORED)
@pytest.mark.parametrize("stream", [False, True])
def test_what_a_server_ignored_is_noted(fields: dict[str, Any], text: str, note: str | None, stream: bool) -> None:
    pieces = [delta(content=piece) for piece in [text[index : index + 2] for index in range(0, len(text), 2)]]
    usage = {**delta(), "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10}}
    face = Face(pages={}, chat=lambda _body: sse(*pieces, delta("stop"), usage))
    result = ask(face, chat(stream=stream, **fields))
    assert result.notes == ([] if note is None else [note])


def test_a_response_that_was_cut_is_not_judged() -> None:
    face = Face(pages={}, chat=lambda _body: sse(delta(content='{"a'), delta("length")))
    result = ask(face, chat(tools=TOOLS, tool_choice="required", response_format=FORMAT))
    assert result.notes == ["the usage is an estimate: the server sent none"]


def test_a_long_response_is_not_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.gateway.servers.expectations.MAX_CHECKED", 10)
    face = Face(pages={}, chat=faces.plain("x" * 20))
    assert ask(face, chat(response_format=FORMAT)).notes == []


HARD = {
    "type": "object",
    "properties": {"command": {"type": "string", "pattern": "^[a-z]+$"}, "n": {"type": "string", "minLength": 3000}},
    "required": ["command"],
}


def test_schemas_are_simplified_for_grammars_and_arguments_checked_with_the_original() -> None:
    tools = [{"type": "function", "function": {"name": "shell", "parameters": HARD}}]
    schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": HARD}}
    for arguments, is_noted in (('{"command": "LS"}', True), ('{"command": "ls"}', False)):
        face = faces.llamacpp(chat=lambda _body: sse(delta(tool_calls=[tool_call(arguments)]), delta("tool_calls")))  # noqa: B023
        result = ask(face, chat(tools=tools, response_format=schema))
        sent = json.dumps(face.chats[0])
        assert '"pattern":' not in sent
        assert '"minLength":' not in sent
        note = "the arguments of 'shell' do not match its schema, of which the server got a simpler form"
        assert (note in result.notes) == is_noted


# Windows.


def test_num_ctx_is_sent_only_if_it_is_configured() -> None:
    asked: Any = {"provider": "ollama", "base": ""}
    face = faces.ollama(native=faces.lines())
    ask(face, chat("qwen3"), **asked)
    assert "options" not in face.chats[0]
    assert "truncate" not in face.chats[0]
    ask(face, chat("qwen3"), context=16_384, **asked)
    assert face.chats[1]["options"] == {"num_ctx": 16_384}
    assert face.chats[1]["truncate"] is False
    ask(face, chat("qwen3", temperature=0.5), context=16_384, route=8_192, **asked)
    assert face.chats[2]["options"] == {"num_ctx": 8_192, "temperature": 0.5}
    own = {**chat("qwen3"), "options": {"num_ctx": 999}}
    ask(face, own, path="/api/chat", context=16_384, **asked)
    assert face.chats[3]["options"] == {"num_ctx": 999}
    chat_face = faces.ollama()
    ask(chat_face, chat("qwen3"), context=16_384)
    assert "options" not in chat_face.chats[0]


LONG = "word " * 8_000  # 10,000 tokens by the estimate


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("face", [faces.llamacpp(), faces.llamacpp(counts=False), faces.vllm(window=8192)])
def test_a_prompt_that_the_server_counts_too_long_is_refused(face: Face, stream: bool) -> None:
    face.asked.clear()
    result = ask(face, chat(QWEN, LONG, stream=stream))
    [reply] = result.replies
    assert reply.status == 400
    error = reply.json["error"]
    assert error["code"] == "context_length_exceeded"
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith("This model's maximum context length is 8192 tokens. However, your messages")
    assert face.chats == []
    assert "8192" in result.healed[0]["problem"]


WORDS = {
    "/v1/chat/completions": (chat("m", LONG), "This model's maximum context length is 8192 tokens"),
    "/v1/responses": ({"model": "m", "input": LONG}, "This model's maximum context length is 8192 tokens"),
    "/v1/messages": (chat("m", LONG, max_tokens=9), "prompt is too long: 400"),
    "/v1beta/models/m:generateContent": ({"contents": [{"role": "user", "parts": [{"text": LONG}]}]},
                                         "The input token count (400"),
    "/api/chat": (chat("m", LONG, stream=False), "the prompt has 400"),
}  # fmt: skip


@pytest.mark.parametrize("path", WORDS)
def test_an_overflow_has_the_words_of_the_protocol(path: str) -> None:
    body, start = WORDS[path]
    [reply] = ask(faces.llamacpp(), body, path=path).replies
    assert reply.status == 400
    error = reply.json["error"]
    assert (error if isinstance(error, str) else error["message"]).startswith(start)
    if path == "/v1/messages":
        assert error["type"] == "invalid_request_error"
        assert "tokens > 8192 maximum" in error["message"]


OVERFLOWS = [
    ({"error": {"code": 400, "message": "request (9000 tokens) exceeds the available context size (8192 tokens), try "
      "increasing it", "type": "exceed_context_size_error", "n_prompt_tokens": 9000, "n_ctx": 8192}}, 9000, 8192),
    ({"error": {"message": "This model's maximum context length is 8192 tokens. However, you requested 100 output "
      "tokens and your prompt contains 9000 input tokens, for a total of 9100 tokens.", "type": "BadRequestError",
      "code": 400}}, 9000, 8192),
    ({"error": {"message": "The input (9000 tokens) is longer than the model's context length (8192 tokens).",
      "type": "BadRequestError", "code": 400}}, 9000, 8192),
    ({"error": "the prompt is longer than the context length currently available to the model; shorten the prompt"},
     None, None),
]  # fmt: skip


@pytest.mark.parametrize(("body", "tokens", "window"), OVERFLOWS)
def test_the_refusal_of_a_server_is_recognised(body: Any, tokens: int | None, window: int | None) -> None:
    face = Face(pages={}, refused={"/v1/chat/completions": (400, body)})
    messages = ask(face, chat(max_tokens=9), path="/v1/messages").replies[0].json["error"]
    chats = ask(face, chat()).replies[0].json["error"]
    assert chats["code"] == "context_length_exceeded"
    assert messages["type"] == "invalid_request_error"
    expected = (
        f"prompt is too long: {tokens} tokens > {window} maximum (HTTP 400" if tokens else "prompt is too long: HTTP"
    )
    assert messages["message"].startswith(expected)


@pytest.mark.parametrize(("path", "word"), [("/v1/chat/completions", '"context_length_exceeded"'),
                                            ("/v1/responses", '"context_length_exceeded"'),
                                            ("/v1/messages", "prompt is too long: 9000 tokens > 8192")])  # fmt: skip
def test_an_overflow_after_a_keep_alive_is_in_the_stream(path: str, word: str) -> None:
    """The status 200 was sent with the keep-alive."""

    async def slow(request: web.Request) -> web.StreamResponse:
        if not request.path.endswith("/chat/completions"):
            return web.Response(status=404)
        await asyncio.sleep(0.5)
        return web.json_response(OVERFLOWS[0][0], status=400)

    async def main() -> Reply:
        async with web_server(slow) as url:
            upstream = Upstream(name="first", url=f"{url}/v1", provider="llamacpp")
            settings = GatewaySettings(upstreams={"first": upstream})
            gateway = app(settings=settings, limits=replace(LIMITS, keep_alive_seconds=0.05))
            async with serving(gateway) as browser:
                return await browser.post(path, {**chat(max_tokens=9, stream=True), "input": "Hello."})

    reply = asyncio.run(main())
    assert reply.status == 200
    assert word in reply.body.decode()


def test_a_request_that_does_not_fit_only_by_an_estimate_is_sent_with_a_note() -> None:
    face = faces.ollama(chat=faces.plain(prompt_tokens=9_500))
    result = ask(face, chat("qwen3", LONG))
    assert result.replies[0].status == 200
    assert result.notes == [
        "the prompt may not fit: it has about 10004 tokens (an estimate), and the window has 4096",
    ]  # fmt: skip


def test_a_prompt_that_the_server_has_cut_is_noted() -> None:
    face = faces.ollama(chat=faces.plain(prompt_tokens=4_096))
    result = ask(face, chat("qwen3", LONG), chat("qwen3", LONG, stream=True))
    assert [report["notes"][-1] for report in result.healed] == [
        "the server has probably cut the prompt: it counted 4096 tokens (its window has 4096), and the request has "
        "about 10004 (an estimate)"
    ] * 2


CUTS = [
    (ServerFacts(overflow="cut", window=4096), 10_000, 4_000, True),
    (ServerFacts(overflow="cut", window=4096), 10_000, 300, True),
    (ServerFacts(overflow="cut", window=4096), 10_000, 8_000, False),  # more than the window: it is another one
    (ServerFacts(overflow="cut", window=4096), 4_200, 3_900, False),
    (ServerFacts(overflow="cut", window=4096), 4_000, 300, False),  # it fits
    (ServerFacts(overflow="cut"), 10_000, 4_000, True),
    (ServerFacts(overflow="cut"), 10_000, 6_000, False),
    (ServerFacts(), 10_000, 4_000, True),
    (ServerFacts(overflow="refused", window=4096), 10_000, 4_000, False),
    (ServerFacts(), 900, 10, False),
    (ServerFacts(), 9_000, 0, False),
]


@pytest.mark.parametrize(("facts", "estimate", "tokens", "is_cut"), CUTS)
def test_a_cut_is_recognised_by_the_count_of_the_server(
    facts: ServerFacts, estimate: int, tokens: int, is_cut: bool
) -> None:
    assert bool(cut_note(facts, estimate, Usage(tokens))) == is_cut


def test_the_server_counts_only_what_may_not_fit() -> None:
    face = faces.llamacpp(chat=faces.plain(prompt_tokens=5_000), window=50_000)
    result = ask(face, chat("m", LONG), chat("m", LONG * 3), chat("m", LONG * 3))
    counted = [path for path in face.paths if "input_tokens" in path]
    assert [reply.status for reply in result.replies] == [200, 200, 200]
    assert counted == []  # half a token per estimated one, as the server has counted
    other = faces.llamacpp(chat=faces.plain(prompt_tokens=30_000), window=50_000)
    ask(other, chat("m", LONG * 3))
    assert [path for path in other.paths if "input_tokens" in path] == ["/v1/chat/completions/input_tokens"]


def test_a_server_that_reports_few_tokens_still_counts_what_may_not_fit() -> None:
    """Some report only the tokens that were not in their cache."""
    face = faces.llamacpp(chat=faces.plain(prompt_tokens=1), window=50_000)
    ask(face, chat("m", LONG), chat("m", LONG * 20))
    assert [path for path in face.paths if "input_tokens" in path] == ["/v1/chat/completions/input_tokens"]


def test_the_ratios_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.gateway.servers.overflow.MAX_RATIOS", 2)
    ratios = TokenRatios()
    for model in "abc":
        ratios.learn("u", model, 100, 100)
    assert [ratios.of("u", model) for model in "abc"] == [2.0, 1.1, 1.1]


def test_a_slow_count_does_not_hold_a_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.gateway.servers.overflow.COUNT_SECONDS", 0.0)
    result = ask(faces.llamacpp(), chat("m", LONG))
    assert result.replies[0].status == 200
    assert result.notes[0].startswith("the prompt may not fit: ")


# Facts while the gateway runs.


def test_facts_are_read_once_for_many_requests() -> None:
    face = faces.llamacpp()
    ask(face, *[chat()] * 3)
    assert face.paths == ["/v1/models", "/props"]
    assert len(face.chats) == 3


def test_the_window_of_a_model_that_was_loaded_by_a_request_is_read_after_it() -> None:
    face = faces.ollama(window=None)
    loaded = faces.ollama(window=8192)

    async def main() -> list[int | None]:
        async with serving_face(face) as url:
            upstream = Upstream(name="first", url=f"{url}/v1", provider="llamacpp")
            gateway = app(settings=GatewaySettings(upstreams={"first": upstream}))
            async with serving(gateway) as browser:
                windows = [await window(gateway, browser, url)]
                face.pages = loaded.pages
                await browser.post("/v1/chat/completions", chat("qwen3:latest"))
                for _ in range(2):  # the second finds what the first began to read
                    await asyncio.sleep(0.2)
                    windows.append(await window(gateway, browser, url))
                return windows

    async def window(gateway: GatewayApp, browser: Any, url: str) -> int | None:
        return (await browser.get("/v1/models")).json["data"][0].get("max_model_len")

    assert asyncio.run(main())[-1] == 8192


def test_a_fallback_with_a_longer_window_is_asked() -> None:
    short, long = faces.llamacpp(), faces.llamacpp(window=100_000, chat=faces.plain("From the other."))

    async def main() -> Reply:
        async with serving_face(short) as first, serving_face(long) as second:
            urls: Sequence[tuple[str, str]] = (("a", first), ("b", second))
            upstreams = {name: Upstream(name=name, url=f"{url}/v1", provider="llamacpp") for name, url in urls}
            routes = (ModelRoute(pattern="*", target=Target("a"), fallbacks=(Target("b"),)),)
            async with serving(app(settings=GatewaySettings(upstreams=upstreams, routes=routes))) as browser:
                return await browser.post("/v1/chat/completions", chat("m", LONG))

    reply = asyncio.run(main())
    assert reply.json["choices"][0]["message"]["content"] == "From the other."
    assert short.chats == []


def test_the_key_of_the_client_reads_the_facts() -> None:
    face = faces.llamacpp()

    async def main() -> None:
        async with serving_face(face) as url:
            upstream = Upstream(name="first", url=f"{url}/v1", provider="llamacpp")
            async with serving(app(settings=GatewaySettings(upstreams={"first": upstream}))) as browser:
                for key in ("one-key", "another-key", "one-key"):
                    await browser.post("/v1/chat/completions", chat(), authorization=f"Bearer {key}")
                assert "one-key" not in (await browser.get("/healed")).body.decode()

    asyncio.run(main())
    assert [one.key for one in face.asked if one.path == "/props"] == ["Bearer one-key", "Bearer another-key"]

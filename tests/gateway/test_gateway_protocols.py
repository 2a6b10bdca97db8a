"""Between protocols: nothing that a client asks for, or that a server sends, is lost without a note."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from penstock import Finish, ToolCall
from penstock.testing import Raw, Reply, Scripted, Status, call
from penstock.wires.openai_chat.encode_response import OpenAIChatFrames
from penstock.wires.shared.encode_response.response_bodies import encode_body
from penstock.wires.shared.encode_response.response_head import ResponseHead
from tests.asgi_client import serving
from tests.gateways import ASK, SHELL, TOOLS, chat, delta, events, gateway, sse, upstream

MESSAGES = {"model": "claude-sonnet-5", "max_tokens": 9, "messages": ASK}


def ask(server: Scripted, path: str, body: Any, sent: dict[str, str], **settings: Any) -> Any:
    """What `/healed` says about a request; the server keeps what it got."""

    async def send() -> Any:
        async with serving(gateway(upstream("", via=server, key="client", **settings))) as browser:
            browser.headers.update(sent)
            reply = await browser.post(path, body)
            assert reply.status == 200, reply.body
            return (await browser.get(f"/healed/{reply.headers['x-request-id']}")).json

    return asyncio.run(send())


@pytest.mark.parametrize(
    ("own", "expected"), [({}, "a-1,b-2"), ({"anthropic-beta": "c-3"}, "c-3,a-1,b-2"), ({"X-Other": "d"}, "a-1,b-2")]
)
def test_the_features_that_a_client_asks_for_in_a_header_reach_the_same_protocol(
    own: dict[str, str], expected: str
) -> None:
    server, headers = Scripted("Hi."), {"anthropic-beta": "a-1,b-2"}
    report = ask(server, "/v1/messages", MESSAGES, headers, provider="anthropic", headers=own)
    assert not report["dropped"]
    assert server.requests[0].headers["anthropic-beta"] == expected


def test_a_server_of_another_protocol_does_not_get_them_and_that_is_noted() -> None:
    server = Scripted("Hi.")
    report = ask(server, "/v1/messages", MESSAGES, {"anthropic-beta": "a-1"})
    assert "anthropic-beta" not in server.requests[0].headers
    assert report["dropped"] == ["anthropic-beta: only the protocol of the request has this header"]


def test_settings_that_the_server_does_not_take_are_noted() -> None:
    server = Scripted("Hi.")
    body = chat(stop=["X"], seed=7, temperature=0.5, tools=TOOLS)
    report = ask(server, "/v1/chat/completions", body, {}, provider="openai")
    assert "stop" not in server.requests[0].body
    why = "the provider or the model does not take this setting"
    assert report["dropped"] == [f"stop: {why}", f"seed: {why}"]


def test_a_part_of_a_response_that_has_no_form_elsewhere_is_noted_by_its_name() -> None:
    secret = "UklGRg-content"
    server = Scripted([Raw(sse(delta(content="Hi."), delta(audio={"data": secret}, x_y=[1]), delta("stop")))])
    report = ask(server, "/v1/chat/completions", chat(), {}, provider="llamacpp")
    assert "left out of the response: an unknown field of the delta ('audio')" in report["notes"]
    assert secret not in str(report)


OLD = {"functions": [TOOLS[0]["function"]], "function_call": "auto"}


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_client_that_declares_functions_gets_a_function_call(stream: bool) -> None:
    server = Scripted([Reply(call("shell", {"command": "ls"})), "Done."], strict=True)

    async def converse() -> None:
        async with serving(gateway(upstream("", via=server))) as browser:
            first = await browser.post("/v1/chat/completions", chat(stream, **OLD))
            choices = [choice for event in events(first.body) for choice in event["choices"]] if stream else []
            found: Any = {"name": "", "arguments": ""}
            for piece in (choice["delta"].get("function_call", {}) for choice in choices):
                found = {key: found[key] + piece.get(key, "") for key in found}
            last = choices[-1] if stream else first.json["choices"][0]
            found = found if stream else last["message"]["function_call"]
            assert (found["name"], json.loads(found["arguments"])) == ("shell", {"command": "ls"})
            assert last["finish_reason"] == "function_call"
            assert b"tool_calls" not in first.body
            reply = {"role": "assistant", "content": None, "function_call": found}
            result = {"role": "function", "name": "shell", "content": "file"}
            body = {**chat(False, **OLD), "messages": [*ASK, reply, result]}
            second = await browser.post("/v1/chat/completions", body)
            assert second.json["choices"][0]["message"]["content"] == "Done."

    asyncio.run(converse())
    assert server.requests[0].body["parallel_tool_calls"] is False
    assert [(one.name, one.text) for one in server.requests[1].results] == [("shell", "file")]


def test_a_custom_call_for_a_client_that_declares_functions_stays_a_custom_call() -> None:
    custom = ToolCall("c1", "query", {"input": "SELECT 1"}, "SELECT 1", kind="custom")
    head = ResponseHead(id="r", has_old_calls=True, custom_tools=frozenset({"query"}))
    body = json.loads(encode_body(OpenAIChatFrames, [custom, Finish("tool_calls")], head).body)
    message = body["choices"][0]["message"]
    assert message["tool_calls"][0]["custom"] == {"name": "query", "input": "SELECT 1"}
    assert "function_call" not in message


IMAGE: Any = {"inlineData": {"mimeType": "image/png", "data": "iVBORw0K"}}


@pytest.mark.parametrize(
    ("path", "is_noted"), [("/v1/chat/completions", True), ("/v1beta/models/m:generateContent", False)]
)
def test_an_image_that_the_protocol_of_a_client_has_no_form_for_is_noted(path: str, is_noted: bool) -> None:
    candidate = {"content": {"role": "model", "parts": [{"text": "Here:"}, IMAGE]}, "finishReason": "STOP", "index": 0}
    body = chat(False) if is_noted else {"contents": [{"parts": [{"text": "Draw."}]}]}
    server = Scripted([Raw(sse({"candidates": [candidate]}, done=False))])
    report = ask(server, path, body, {}, provider="gemini")
    assert ("left out of the response: inlineData, which the client has no form for" in report["notes"]) == is_noted


PATHS: dict[str, Any] = {
    "/v1/chat/completions": chat(),
    "/v1/responses": {"model": "m", "input": "Hi", "stream": True},
    "/v1/messages": {**MESSAGES, "stream": True},
    "/v1beta/models/m:streamGenerateContent?alt=sse": {"contents": [{"parts": [{"text": "Hi"}]}]},
}
LIMIT = {"error": {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}}
NUMBER = {"error": {"message": "slow down", "code": 429}}
CRASH = {"error": {"message": "it crashed", "code": "E_GPU"}}
CODES = {
    "/v1/chat/completions": ("rate_limit_exceeded", "E_GPU", "incomplete_response"),
    "/v1/responses": ("rate_limit_exceeded", "E_GPU", "incomplete_response"),
    "/v1/messages": ("rate_limit_error", "api_error", "overloaded_error"),
    "/v1beta/models/m:streamGenerateContent?alt=sse": ("RESOURCE_EXHAUSTED", "INTERNAL", "UNAVAILABLE"),
}


def error_code(path: str, *frames: Any) -> tuple[int, str]:
    """The status, and the code of the error that a client gets, in the place where its protocol has codes."""

    async def send() -> tuple[int, str]:
        async with serving(gateway(upstream([Raw(sse(*frames))], retries=0))) as browser:
            reply = await browser.post(path, PATHS[path])
            body = events(reply.body) if reply.status == 200 else [reply.json]
            error = next(one.get("error") or one for one in body if one.get("error") or one.get("type") == "error")
            field = {"/v1/messages": "type", "/v1/responses": "code", "/v1/chat/completions": "code"}.get(
                path, "status"
            )
            return reply.status, error[field]

    return asyncio.run(send())


@pytest.mark.parametrize("path", PATHS)
def test_an_error_has_a_code_of_the_clients_protocol(path: str) -> None:
    text = delta(content="Hi.")
    limit, crash, cut = CODES[path]
    assert error_code(path, text, LIMIT) == (200, limit)
    assert error_code(path, text, NUMBER) == (200, limit)
    assert error_code(path, text, CRASH) == (200, crash)
    assert error_code(path, text) == (200, cut)
    assert error_code(path, NUMBER) == (429, limit), "before anything was sent, it is the status"
    assert error_code(path, LIMIT) == (429, limit)


@pytest.mark.parametrize("model", ["qwen3", "qwen3:8b", "org/qwen3", "hf.co/org/qwen3:Q4_K_M"])
def test_the_name_of_a_model_in_a_path_may_have_slashes_and_colons(model: str) -> None:
    server = Scripted("Hi.")
    ask(server, f"/v1beta/models/{model}:generateContent", {"contents": [{"parts": [{"text": "Hi"}]}]}, {})
    assert server.requests[0].model == model


def test_clients_that_look_for_a_delay_in_the_body_of_an_error_find_it_there() -> None:
    async def send() -> Any:
        limit = Status(429, "slow down", 40)
        async with serving(gateway(upstream([limit], retries=0))) as browser:
            return await browser.post("/v1beta/models/m:generateContent", {"contents": [{"parts": [{"text": "Hi"}]}]})

    reply = asyncio.run(send())
    assert (reply.status, reply.headers["retry-after"]) == (429, "40")
    assert reply.json["error"]["details"][0]["retryDelay"] == "40s"


@pytest.mark.parametrize("provider", ["llamacpp", "ollama", "vllm"])
def test_a_local_server_gets_neither_hosted_tools_nor_forms_that_only_the_vendor_knows(provider: str) -> None:
    """It speaks the protocol of the client, but has not all of it."""
    server = Scripted("Hi.")
    other = {"type": "function", "name": "other", "parameters": {"type": "object", "properties": {}}}
    body = {
        "model": "m", "input": "Hi", "tools": [{"type": "function", **SHELL}, other, {"type": "web_search"}],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "shell"}]},
    }  # fmt: skip
    report = ask(server, "/v1/responses", body, {}, provider=provider, wire="openai-responses")
    sent = server.requests[0].body
    assert [tool["name"] for tool in sent["tools"]] == ["shell"]
    assert sent["tool_choice"] == "auto"
    assert report["dropped"] == ["tools: web_search runs at its provider; there is no such tool here"]
    whole = Scripted("Hi.")
    assert not ask(whole, "/v1/responses", body, {}, provider="openai")["dropped"]
    assert whole.requests[0].body["tool_choice"] == body["tool_choice"]
    assert len(whole.requests[0].body["tools"]) == 3


@pytest.mark.parametrize(
    ("message", "is_replaced"), [("maximum context length is 4096 tokens", True), ("tools: bad schema", False)]
)
def test_a_response_that_begins_with_a_refusal_is_treated_as_one(message: str, is_replaced: bool) -> None:
    """A prompt that is too long for one server may fit another; a request that is wrong is wrong everywhere."""
    first = Raw(sse({"error": {"message": message, "type": "invalid_request_error", "code": 400}}))

    async def send() -> Any:
        async with serving(gateway(upstream([first]), upstream(["Hi."], "other"))) as browser:
            return await browser.post("/v1/chat/completions", chat(False))

    reply = asyncio.run(send())
    assert reply.status == (200 if is_replaced else 400)


HEADER = "x-anthropic-billing-header: cc_version=2.1.100; cc_entrypoint=cli; cch={};"


@pytest.mark.parametrize("joint", [True, False], ids=["one text", "two blocks"])
@pytest.mark.parametrize(
    ("settings", "is_kept"),
    [
        ({"provider": "llamacpp"}, False),
        ({"provider": "vllm", "wire": "anthropic"}, False),
        ({"provider": "openai"}, False),
        ({"provider": "anthropic"}, True),
    ],
)
def test_a_line_for_the_provider_that_changes_with_every_request_does_not_reach_others(
    settings: dict[str, Any], is_kept: bool, joint: bool
) -> None:
    """It stands before everything else, so that no server could use its prompt cache."""
    server = Scripted(["Hi.", "Hi."])
    for number in ("eb6c6", "00f3a"):
        header = HEADER.format(number)
        blocks = [f"{header}\nYou are kind."] if joint else [header, "You are kind."]
        system = [{"type": "text", "text": text} for text in blocks]
        report = ask(server, "/v1/messages", {**MESSAGES, "system": system}, {}, **settings)
        assert any(one.startswith("system: lines") for one in report["dropped"]) != is_kept
    first, second = (json.dumps(request.body) for request in server.requests)
    assert (first == second) != is_kept
    assert "You are kind." in first
    assert ("billing" in first) == is_kept


def test_a_system_prompt_of_nothing_but_such_a_line_is_left_out() -> None:
    server = Scripted("Hi.")
    ask(server, "/v1/messages", {**MESSAGES, "system": HEADER.format("1")}, {})
    assert [message["role"] for message in server.requests[0].body["messages"]] == ["user"]

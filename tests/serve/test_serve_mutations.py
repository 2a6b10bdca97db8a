"""Requests that are wrong in any way: a 4xx with the place, or a whole run; never a 500, and never a run left behind.

Valid requests of every path are changed at random places: fields are lost, doubled, of another type or of another
protocol. What is accepted must end as a run; what is refused must start none.
"""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

import penstock.serve
from penstock.serve import ServeApp
from penstock.serve.models.client_calls import CallRef
from penstock.testing import Reply, call
from tests.asgi_client import Browser, serving
from tests.asgi_client import Reply as Response
from tests.budget import share
from tests.serve.test_serve import agent_of

REQUESTS = share(1_500, 80)
"""How many requests are made of each valid one."""

CALL_ID = CallRef("0123456789abcdef" * 2, 5).id
SCHEMA = {"type": "object", "properties": {"color": {"type": "string"}}}
PIXEL = "data:image/png;base64,iVBORw0KGgo="
ASK = {"role": "user", "content": "Hi"}
CHAT_CALL = {"id": "call_1", "type": "function", "function": {"name": "paint", "arguments": '{"color": "red"}'}}
VALID: list[tuple[str, dict[str, Any]]] = [
    ("/runs", {"prompt": "Hi", "agent": "support", "thread": "t"}),
    ("/runs", {"prompt": [{"type": "text", "text": "Hi"}, {"type": "file", "url": PIXEL, "media_type": "image/png"}]}),
    ("/api/chat", {
        "id": "c", "trigger": "submit-message", "messageId": None,
        "messages": [{"id": "u", "role": "user", "parts": [
            {"type": "text", "text": "Hi"}, {"type": "file", "url": PIXEL, "mediaType": "image/png"}]}],
    }),
    ("/api/chat", {"id": "c", "messages": [{"id": "a", "role": "assistant", "parts": [
        {"type": "tool-pay", "state": "approval-responded", "toolCallId": "x",
         "approval": {"id": "a:b:c", "approved": True}},
        {"type": "tool-paint", "state": "output-available", "toolCallId": "y", "output": {"a": 1}}]}]}),
    ("/agui", {
        "threadId": "t", "runId": "r", "state": {}, "context": [], "forwardedProps": {},
        "messages": [{"id": "u", "role": "user", "content": [
            {"type": "text", "text": "Hi"},
            {"type": "image", "source": {"type": "data", "value": "iVBORw0KGgo=", "mimeType": "image/png"}}]}],
        "tools": [{"name": "paint", "description": "", "parameters": SCHEMA}],
        "resume": [{"interruptId": "a:b:c", "status": "resolved", "payload": {"approved": True}}],
    }),
    ("/v1/chat/completions", {
        "model": "support", "stream": True, "stream_options": {"include_usage": True}, "temperature": 1,
        "messages": [{"role": "system", "content": "Be kind."}, ASK,
                     {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]},
                     {"role": "tool", "tool_call_id": "call_1", "content": "red"},
                     {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PIXEL}}]}],
        "tools": [{"type": "function", "function": {"name": "paint", "description": "", "parameters": SCHEMA}}],
    }),
    ("/v1/chat/completions", {"model": "support", "messages": [
        ASK, {"role": "assistant", "tool_calls": [{**CHAT_CALL, "id": CALL_ID}]},
        {"role": "tool", "tool_call_id": CALL_ID, "content": "red"}]}),
    ("/v1/responses", {
        "model": "support", "instructions": "Be kind.", "stream": False, "store": False,
        "input": [ASK, {"type": "function_call", "call_id": "call_1", "name": "paint", "arguments": "{}"},
                  {"type": "function_call_output", "call_id": "call_1", "output": "red"},
                  {"role": "user", "content": [{"type": "input_text", "text": "Hi"},
                                               {"type": "input_image", "image_url": PIXEL}]}],
        "tools": [{"type": "function", "name": "paint", "parameters": SCHEMA, "strict": False}],
        "text": {"format": {"type": "text"}}, "reasoning": {"effort": "low"},
    }),
    ("/v1/messages", {
        "model": "support", "max_tokens": 100, "stream": True, "system": [{"type": "text", "text": "Be kind."}],
        "messages": [ASK, {"role": "assistant", "content": [
            {"type": "text", "text": "Hm."}, {"type": "tool_use", "id": "t1", "name": "paint", "input": {"a": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "red"},
                                         {"type": "text", "text": "Go on."}]}],
        "tools": [{"name": "paint", "input_schema": SCHEMA}], "tool_choice": {"type": "auto"},
    }),
    ("/v1/messages", {"model": "support", "max_tokens": 100, "messages": [
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": CALL_ID, "content": "red"}]}],
        "thread": {"type": "continue", "previous_message_id": "msg_1"}}),
]  # fmt: skip
JUNK: list[Any] = [
    None, True, False, 0, -1, 1e308, 2**70, "", " ", "\x00", "\x85\u2028",
    "x" * 3000, [], {}, [[]], [None], {"": None}, {"type": "odd"}, {"role": "user"}, {"role": "odd", "content": []},
    "../../etc/passwd", CALL_ID, {"type": "text"}, {"type": "text", "text": 5}, [1, "a", None],
]  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The places in a JSON value, without the whole."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*path, key)
        yield from places(item, (*path, key))


def mutated(body: dict[str, Any], chance: random.Random) -> Any:
    """The body with some changes."""
    body = copy.deepcopy(body)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        found = [*places(body)]
        if not found:
            return junk(chance)
        *path, key = chance.choice(found)
        owner: Any = body
        for step in path:
            owner = owner[step]
        match chance.randrange(5):
            case 0:
                del owner[key]
            case 1:
                owner[key] = junk(chance)
            case 2:
                owner[key] = [owner[key]] * chance.randrange(3)
            case 3 if isinstance(owner, list):
                owner.insert(key, copy.deepcopy(chance.choice(owner)))
            case _ if isinstance(owner, dict):
                owner[str(chance.choice((f"{key}s", "type", "role", "content", "parts", "id")))] = junk(chance)
            case _:
                owner.reverse()
    return body


def junk(chance: random.Random) -> Any:
    return copy.deepcopy(chance.choice(JUNK))


def cut_bytes(body: Any, chance: random.Random) -> bytes:
    """The JSON of a body; sometimes it is damaged."""
    raw = msgspec.json.encode(body)
    match chance.randrange(12):
        case 0:
            return raw[: chance.randrange(len(raw) + 1)]
        case 1:
            place = chance.randrange(len(raw) + 1)
            return raw[:place] + bytes([chance.randrange(256)]) + raw[place + 1 :]
        case _:
            return raw


@pytest.mark.parametrize(("path", "body"), VALID, ids=[f"{path} {number}" for number, (path, _) in enumerate(VALID)])
def test_a_request_that_was_changed_at_random_is_refused_or_answered(path: str, body: dict[str, Any]) -> None:
    chance = random.Random(f"{path} {body}")

    async def main() -> None:
        app = penstock.serve.app(agent_of(lambda request: "Hello."), shutdown_seconds=0.1)
        async with serving(app) as browser:
            for _ in range(REQUESTS):
                raw = cut_bytes(mutated(body, chance), chance)
                known = {row["id"] for row in (await browser.get("/runs")).json["runs"]}
                check(raw, await browser.post(path, raw))
                await check_runs(app, browser, raw, known)

    asyncio.run(main())


def check(raw: bytes, reply: Response) -> None:
    """The response is an answer, or an error of the client with a reason."""
    assert 200 <= reply.status < 500, (reply.status, reply.body, raw)
    if reply.status >= 400:
        message = reply.json["error"]["message"]
        assert message, raw
        assert "Traceback" not in message, raw


async def check_runs(app: ServeApp, browser: Browser, raw: bytes, known: set[str]) -> None:
    """No run is left behind: each has ended, and the next request finds the server free."""
    for row in (await browser.get("/runs")).json["runs"]:
        if row["id"] not in known:
            events = await browser.get(f"/runs/{row['id']}/events")
            assert events.frames[-1][1]["type"] == "done", raw
    assert len(app.context.host.driven) <= 1, raw  # one may be about to end


WRONG_PROTOCOL = [
    (path, body) for path in dict(VALID) for other, body in VALID if other != path and not {path, other} <= {"/runs"}
]  # fmt: skip


def test_a_request_of_another_protocol_is_refused_with_its_place() -> None:
    async def main() -> None:
        app = penstock.serve.app(agent_of(lambda request: "Hello."), shutdown_seconds=0.1)
        async with serving(app) as browser:
            for path, body in WRONG_PROTOCOL:
                reply = await browser.post(path, body)
                check(msgspec.json.encode(body), reply)
                if "/v1" not in path:  # Messages and Chat Completions share most of their shapes
                    assert reply.status == 400, (path, body, reply.body)
                    assert "`" in reply.json["error"]["message"] or "$" in reply.json["error"]["message"]

    asyncio.run(main())


HISTORIES: list[tuple[str, dict[str, Any], str]] = [
    ("/v1/chat/completions", {"messages": []}, "messages"),
    ("/v1/chat/completions", {"messages": [ASK, {"role": "tool", "tool_call_id": "c", "content": "x"}]}, "messages[1]"),
    ("/v1/chat/completions", {"messages": [ASK, {"role": "assistant", "tool_calls": [CHAT_CALL]}, ASK]}, "messages[1]"),
    ("/v1/chat/completions", {"messages": [{"role": "odd", "content": "Hi"}]}, "messages[0]"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "odd"}]}]}, "messages[0].content[0]"),
    ("/v1/responses", {"input": [{"type": "function_call_output", "call_id": "c", "output": "x"}]}, "input[0]"),
    ("/v1/responses", {"input": [{"type": "odd"}]}, "input[0]"),
    ("/v1/responses", {"input": []}, "input"),
    ("/v1/responses", {"input": [{"type": "item_reference", "id": "rs_1"}]}, "input[0]"),
    ("/v1/responses", {"input": [{"role": "user", "content": [
        {"type": "input_image", "file_id": "file-1"}]}]}, "input[0]"),
    ("/v1/messages", {"messages": [{"role": "user", "content": []}]}, "messages"),
    ("/v1/messages", {"messages": [{"role": "assistant", "content": [
        {"type": "tool_use", "id": "t", "name": "f", "input": {}}]}]}, "messages[0]"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "body", "place"), HISTORIES)
def test_a_history_that_a_provider_would_refuse_is_refused_with_its_place(
    path: str, body: dict[str, Any], place: str
) -> None:
    async def main() -> None:
        app = penstock.serve.app(agent_of(Reply(call("look", {"city": "Rome"})), "Hi"), shutdown_seconds=0.1)
        async with serving(app) as browser:
            reply = await browser.post(path, {"model": "support", "max_tokens": 100, **body})
            assert (reply.status, place in reply.json["error"]["message"]) == (400, True), reply.body
            assert (await browser.get("/runs")).json["runs"] == []

    asyncio.run(main())

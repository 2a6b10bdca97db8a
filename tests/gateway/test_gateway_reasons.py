"""The reasons for which responses end, healed by a gateway or passed on as the server sent them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from penstock.gateway import Healing
from penstock.gateway.config.file import read_settings
from penstock.testing import Raw
from tests.asgi_client import serving
from tests.gateways import ASK, HABITS, RAW, SHELL, TOOLS, chat, delta, events, gateway, sse, tool_call, upstream

IN_TEXT = HABITS["JSON between marks in the text"]
CALL = delta(tool_calls=[tool_call(RAW)])
DAMAGED = delta(tool_calls=[tool_call("{'a")])
MARKED = delta(content='<tool_call>{"name": "shell", "arguments": {"command": "ls"}}</tool_call>')

GEMINI_CALL: dict[str, Any] = {"functionCall": {"name": "shell", "args": {"command": "ls"}}}
GEMINI = sse(
    {"candidates": [{"content": {"role": "model", "parts": [GEMINI_CALL]}, "finishReason": "STOP", "index": 0}]},
    done=False,
)
OLLAMA = (
    b'{"model":"m","message":{"role":"assistant","content":"","tool_calls":[{"function":{"name":"shell","arguments":'
    b'{"command":"ls"}}}]},"done":false}\n{"model":"m","message":{"role":"assistant","content":""},"done":true,'
    b'"done_reason":"stop"}\n'
)


def reason(body: bytes, stream: bool = True, finish_reasons: bool = True, **settings: Any) -> tuple[str, list[int]]:
    """The reason that a client of Chat Completions gets, and the quirks that were healed."""

    async def ask() -> tuple[str, list[int]]:
        healing = Healing(finish_reasons=finish_reasons)
        async with serving(gateway(upstream([Raw(body)], **settings), healing=healing)) as browser:
            reply = await browser.post("/v1/chat/completions", chat(stream, tools=TOOLS))
            report = (await browser.get(f"/healed/{reply.headers['x-request-id']}")).json
            choices = [choice for event in events(reply.body) for choice in event["choices"]] if stream else []
            found = choices[-1]["finish_reason"] if stream else reply.json["choices"][0]["finish_reason"]
            return found, [one["quirk"] for one in report["healed"]]

    return asyncio.run(ask())


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize(
    ("body", "healed", "sent"),
    [
        (sse(CALL, delta("stop")), "tool_calls", "stop"),
        (sse(CALL, delta("tool_calls")), "tool_calls", "tool_calls"),
        (sse(CALL, delta("length")), "length", "length"),
        (sse(CALL), "tool_calls", "tool_calls"),
        (sse(DAMAGED, delta("stop")), "tool_calls", "stop"),
        (sse(DAMAGED, delta("odd")), "tool_calls", "other"),
        (IN_TEXT, "tool_calls", "stop"),
        (sse(MARKED, delta("tool_calls")), "tool_calls", "tool_calls"),
        (sse(delta(content="Hi."), delta("tool_calls")), "other", "tool_calls"),
        (sse(delta(content="Hi."), delta("stop")), "stop", "stop"),
    ],
)
def test_a_reason_that_contradicts_the_calls_is_healed_unless_that_is_switched_off(
    body: bytes, healed: str, sent: str, stream: bool
) -> None:
    assert reason(body, stream)[0] == healed
    found, quirks = reason(body, stream, finish_reasons=False)
    assert found == sent
    assert 53 not in quirks, "what was not healed is not reported"


@pytest.mark.parametrize(("provider", "body"), [("gemini", GEMINI), ("ollama", OLLAMA)])
def test_the_reason_of_a_protocol_without_one_for_calls_is_translated(provider: str, body: bytes) -> None:
    settings: dict[str, Any] = {"provider": provider, "key": "client", "wire": provider}
    for finish_reasons in (True, False):
        assert reason(body, finish_reasons=finish_reasons, **settings)[0] == "tool_calls"


@pytest.mark.parametrize(("finish_reasons", "expected"), [(True, "tool_use"), (False, "end_turn")])
def test_the_reason_that_was_sent_is_a_word_of_the_clients_protocol(finish_reasons: bool, expected: str) -> None:
    async def ask() -> Any:
        healing, script = Healing(finish_reasons=finish_reasons), [Raw(sse(CALL, delta("stop")))]
        tools = [{"name": "shell", "input_schema": SHELL["parameters"]}]
        async with serving(gateway(upstream(script), healing=healing)) as browser:
            body = {"model": "m", "max_tokens": 9, "messages": ASK, "tools": tools}
            return (await browser.post("/v1/messages", body)).json

    assert asyncio.run(ask())["stop_reason"] == expected


def test_the_switch_is_a_key_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "gateway.toml"
    path.write_text("[upstreams.a]\nurl = 'http://x'\n[healing]\nfinish_reasons = false\n")
    assert read_settings(path).healing == Healing(finish_reasons=False, reasoning_calls=True)

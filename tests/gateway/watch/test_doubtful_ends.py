"""Responses without an answer are asked for once more: every pair of protocols, streamed and whole, and every end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from penstock import Usage
from penstock.gateway import GatewaySettings, Watch, app
from penstock.gateway.servers.overflow import TokenRatios
from penstock.testing import Raw, ReceivedRequest, Reply, Scripted, call, drop, fail, think, wait
from tests.asgi_client import serving
from tests.gateway.test_gateway_pairs import CLIENTS, MODELS
from tests.gateways import TOOLS, chat, delta, events, sse, text_of, upstream, web_server

WATCH = Watch(empty_answers=True, reasoning_only=True)
FINAL = "It printed 4."
RESULT: Any = [
    {"role": "user", "content": "Go."},
    {"role": "assistant", "content": None, "tool_calls": [
        {"id": "c1", "type": "function", "function": {"name": "shell", "arguments": '{"command": "ls"}'}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "4"},
]  # fmt: skip


def gateway(server: Scripted, watch: Watch = WATCH, **settings: Any) -> Any:
    behind = upstream("", via=server, key="", **settings)
    return app(settings=GatewaySettings(upstreams={behind.name: behind}, watch=watch))


def has_reminder(request: ReceivedRequest) -> bool:
    return "system-reminder" in json.dumps(request.body)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("doubtful", [Reply(), Reply("\n\n"), Reply(think("Hm."))], ids=["empty", "blank", "reasoning"])
@pytest.mark.parametrize("provider", MODELS)
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_an_agent_goes_on_after_a_response_without_an_answer(
    client: Any, provider: str, doubtful: Reply, stream: bool
) -> None:
    """The servers are strict: the reminder must stand where the protocol allows it."""

    def answer(request: ReceivedRequest) -> Any:
        assert len(server.requests) <= 3
        if has_reminder(request):
            return FINAL
        return doubtful if request.results else Reply(think("One command."), call("shell", {"command": "echo 4"}))

    server = Scripted(answer, strict=True)

    async def converse() -> str:
        async with serving(gateway(server, provider=provider)) as browser:
            return str(await client(browser, MODELS[provider], stream))

    assert asyncio.run(converse()).strip() == FINAL
    assert [has_reminder(request) for request in server.requests] == [False, False, True]


class Asked:
    """What a client of Chat Completions got for a request, and how."""

    def __init__(self, script: Any, watch: Watch = WATCH, messages: Any = RESULT, **options: Any) -> None:
        self.server = Scripted(script)
        asyncio.run(self._ask(watch, messages, options))

    async def _ask(self, watch: Watch, messages: Any, options: dict[str, Any]) -> None:
        async with serving(gateway(self.server, watch)) as browser:
            body = {**chat(True, tools=TOOLS, stream_options={"include_usage": True}), "messages": messages, **options}
            reply = await browser.post("/v1/chat/completions", body)
            self.status, self.body = reply.status, reply.body
            self.report = (await browser.get(f"/healed/{reply.headers['x-request-id']}")).json
        self.requests = len(self.server.requests)
        self.notes = self.report["notes"]

    @property
    def text(self) -> str:
        return text_of(self.body)

    @property
    def reason(self) -> Any:
        choices = [choice for event in events(self.body) for choice in event.get("choices", ())]
        return [choice["finish_reason"] for choice in choices if choice["finish_reason"]]

    @property
    def error(self) -> bool:
        return b'"error"' in self.body


@pytest.mark.parametrize(
    ("reply", "watch", "messages"),
    [
        (Reply(), Watch(), RESULT),
        (Reply(), Watch(reasoning_only=True), RESULT),
        (Reply(think("Hm.")), Watch(empty_answers=True), RESULT),
        (Reply(), WATCH, RESULT[:1]),  # an empty response to the user may be meant
        (Reply(finish="length"), WATCH, RESULT),
        (Reply(finish="content_filter"), WATCH, RESULT),
        (Reply(think("Hm."), finish="length"), WATCH, RESULT),
        (Reply("Done."), WATCH, RESULT),
        (Reply(call("shell", {"command": "ls"})), WATCH, RESULT),
        (Reply(call("shell", "{'a")), WATCH, RESULT),
    ],
)
def test_other_responses_pass_as_they_are(reply: Reply, watch: Watch, messages: Any) -> None:
    asked = Asked([reply, "Never."], watch, messages)
    assert asked.requests == 1
    assert "Never." not in asked.text
    assert not any("once more" in note for note in asked.notes)
    plain = Asked([reply], Watch(), messages)
    assert (asked.text, asked.reason, asked.error) == (plain.text, plain.reason, plain.error)


def test_reasoning_alone_is_doubtful_after_any_message() -> None:
    asked = Asked([Reply(think("Hm.")), FINAL], messages=RESULT[:1])
    assert (asked.text, asked.reason, asked.requests) == (FINAL, ["stop"], 2)
    assert asked.notes == ["the response had only reasoning: the model was asked once more"]


def test_a_result_before_a_reminder_of_the_client_counts() -> None:
    reminded = [*RESULT, {"role": "user", "content": "<system-reminder>\nNo todos.\n</system-reminder>"}]
    assert Asked([Reply(), FINAL], messages=reminded).requests == 2
    assert Asked([Reply(), FINAL], messages=[*RESULT, {"role": "user", "content": "Thanks."}]).requests == 1


def test_the_reason_for_calls_without_calls_is_doubtful() -> None:
    """The parser of the server has lost the call."""
    assert Asked([Raw(sse(delta("tool_calls"))), FINAL]).text == FINAL
    assert Asked([Raw(sse(delta("odd"))), FINAL]).requests == 1


def test_the_model_is_asked_once_and_a_second_empty_response_is_the_end() -> None:
    asked = Asked([Reply(), Reply(), "Never."])
    assert (asked.text, asked.reason, asked.requests, asked.error) == ("", ["stop"], 2, False)


@pytest.mark.parametrize("stream", [True, False])
def test_token_counts_are_added_up(stream: bool) -> None:
    first, second = Usage(10, 1, cached_tokens=4), Usage(12, 5, cached_tokens=10)
    asked = Asked([Reply(usage=first), Reply(FINAL, usage=second)], stream=stream)
    usage = events(asked.body)[-1]["usage"] if stream else json.loads(asked.body)["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (22, 6)
    assert usage["prompt_tokens_details"]["cached_tokens"] == 14


def test_a_required_call_may_be_in_the_second_response() -> None:
    asked = Asked([Reply(), Reply(call("shell", {"command": "ls"}))], tool_choice="required")
    assert asked.notes == ["the response was empty after a tool result: the model was asked once more"]
    never = Asked([Reply(), FINAL], tool_choice="required")
    assert any("the server ignored the tool choice" in note for note in never.notes)


def test_the_token_counts_of_two_requests_are_not_compared_with_the_estimate_of_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    learned: list[int] = []
    monkeypatch.setattr(
        TokenRatios, "learn", lambda _self, _upstream, _model, tokens, _estimate: learned.append(tokens)
    )
    Asked([Reply(usage=Usage(1000, 1)), Reply(FINAL, usage=Usage(1200, 5))])
    assert learned == []
    Asked([Reply(FINAL, usage=Usage(1000, 1))])
    assert learned == [1000]


FAILURES = {
    "refused": Raw(b'{"error": {"message": "no"}}', "application/json", status=400),
    "cut at once": Reply(drop()),
    "an error at once": Reply(fail("overloaded", "busy")),
    "cut in the reasoning": Reply(think("Well"), drop()),
    "an error after the reasoning": Reply(think("Well"), fail("overloaded", "busy")),
}


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("failure", FAILURES)
def test_a_second_request_that_fails_passes_the_first_end_on(failure: str, stream: bool) -> None:
    def script(request: ReceivedRequest) -> Any:
        return FAILURES[failure] if has_reminder(request) else Reply(usage=Usage(10, 1))

    asked = Asked(script, stream=stream)
    assert (asked.status, asked.error) == (200, False)
    assert asked.requests >= 2
    if stream:
        assert (asked.reason, asked.text) == (["stop"], "")
        assert events(asked.body)[-1]["usage"]["prompt_tokens"] == 10
    else:
        assert json.loads(asked.body)["choices"][0]["finish_reason"] == "stop"
    assert any("the first end was passed on" in note for note in asked.notes)
    assert b"Well" not in asked.body
    assert not any("estimate" in note for note in asked.notes)


def test_the_counts_of_a_second_response_that_fails_are_added_if_the_server_sent_them() -> None:
    counted = Raw(
        sse(delta(reasoning_content="Well"), {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}},
            {"error": {"message": "busy", "code": "overloaded"}}, done=False)
    )  # fmt: skip
    asked = Asked([Reply(usage=Usage(10, 1)), counted])
    usage = events(asked.body)[-1]["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], asked.reason) == (17, 3, ["stop"])
    assert b"Well" not in asked.body


def test_an_estimate_of_the_first_response_keeps_its_note() -> None:
    asked = Asked([Raw(sse(delta("stop"))), Reply(think("Well"), drop())])
    assert any("estimate" in note for note in asked.notes)


def test_a_second_response_with_very_much_reasoning_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    second = Reply(*(part for _ in range(4) for part in (think("Well"), wait(0.001))), drop())
    assert b"Well" not in Asked([Reply(), second]).body
    monkeypatch.setattr("penstock.gateway.watch.doubtful_ends.MAX_SECOND", 2)
    asked = Asked([Reply(), second])
    assert b"Well" in asked.body
    assert asked.error


def test_a_failure_after_the_second_answer_began_is_an_error() -> None:
    """What the client has seen is not complete, and must not look so."""
    asked = Asked([Reply(), Reply("It pri", drop())])
    assert asked.text == "It pri"
    assert asked.error


def test_reasoning_streams_before_the_end_is_known() -> None:
    async def main() -> None:
        gate = asyncio.Event()

        async def answer(request: Any) -> Any:
            body = await request.json()
            response = web.StreamResponse(headers={"content-type": "text/event-stream"})
            await response.prepare(request)
            if "system-reminder" in json.dumps(body):
                await response.write(sse(delta(content=FINAL), delta("stop")))
            else:
                await response.write(sse(delta(reasoning_content="Let me think."), done=False))
                await gate.wait()
                await response.write(sse(delta("stop")))
            return response

        async with web_server(answer) as url:
            behind = upstream("", via=None, url=f"{url}/v1", key="")
            async with serving(app(settings=GatewaySettings(upstreams={"local": behind}, watch=WATCH))) as browser:
                connection = browser.connect("POST", "/v1/chat/completions", {**chat(), "messages": RESULT})
                await connection.reply.until("Let me think.")
                assert b'finish_reason":"' not in connection.reply.body
                gate.set()
                await connection.task
                assert text_of(connection.reply.body) == FINAL

    asyncio.run(main())


def test_blocks_and_call_ids_of_both_responses_differ() -> None:
    """Clients of Messages open and close blocks by number."""
    server = Scripted([Reply(think("Hm.")), Reply(think("So."), "I look.", call("shell", {"command": "ls"}))])

    async def main() -> list[Any]:
        async with serving(gateway(server)) as browser:
            body = {"model": "m", "max_tokens": 9, "stream": True, "messages": [{"role": "user", "content": "Go."}],
                    "tools": [{"name": "shell", "input_schema": {"type": "object"}}]}  # fmt: skip
            return events((await browser.post("/v1/messages", body)).body)

    frames = asyncio.run(main())
    starts = [
        (frame["index"], frame["content_block"]["type"]) for frame in frames if frame["type"] == "content_block_start"
    ]
    assert starts == [(0, "thinking"), (1, "thinking"), (2, "text"), (3, "tool_use")] or starts == [
        (0, "thinking"), (1, "text"), (2, "tool_use")
    ]  # fmt: skip
    assert sum(frame["type"] == "message_stop" for frame in frames) == 1

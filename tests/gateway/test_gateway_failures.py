"""A gateway in front of servers that fail: sixteen situations in which a gateway earns its trust, or loses it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

import httpx
import ollama
import pytest
from msgspec.structs import replace

from penstock import RateLimitError
from penstock.gateway import GatewayApp, asking
from penstock.gateway import fallbacks as circuit
from penstock.gateway.context import LIMITS
from penstock.gateway.failures import rejection
from penstock.testing import Hang, HTMLPage, Raw, ReceivedRequest, Reply, Reset, Scripted, Status, drop, fail, wait
from penstock.wires import find_response_frames
from tests.asgi_client import Browser, serving
from tests.asgi_client import Reply as HTTPReply
from tests.gateways import (
    ASK,
    TOOLS,
    anthropic_client,
    chat,
    delta,
    events,
    gateway,
    gemini_client,
    openai_client,
    sse,
    text_of,
    upstream,
)

WORDS = "Trust is what remains when the provider behind a gateway misbehaves. "
FALLBACK = "The other one answers. "
IMPATIENT = replace(LIMITS, keep_alive_seconds=0.1)


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "RouteRetries", partial(asking.RouteRetries, first_delay=0.01))


class Server:
    """A server that plays a script, and remembers when it was asked."""

    def __init__(self, *steps: Any, name: str = "first", **settings: Any) -> None:
        self._steps: Iterator[Any] = iter(steps)
        self._last = steps[-1] if steps else FALLBACK
        self.times: list[float] = []
        self.script = Scripted(self._answer)
        self.upstream = upstream([], name, via=self.script, **settings)

    def _answer(self, request: ReceivedRequest) -> Any:
        self.times.append(time.monotonic())
        step = next(self._steps, self._last)
        step = step() if callable(step) else step
        return Reply(step) if isinstance(step, str) else step

    @property
    def attempts(self) -> int:
        return len(self.times)


def other(*steps: Any) -> Server:
    return Server(*steps, name="second")


def run(app: GatewayApp, test: Callable[[Browser], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with serving(app) as browser:
            await test(browser)

    asyncio.run(main())


def ask(*servers: Server, times: int = 1, stream: bool = True, **fields: Any) -> list[HTTPReply]:
    replies: list[HTTPReply] = []

    async def test(browser: Browser) -> None:
        body = chat(stream=stream, **fields)
        replies.extend([await browser.post("/v1/chat/completions", body) for _ in range(times)])

    run(gateway(*(server.upstream for server in servers)), test)
    return replies


def is_whole(reply: HTTPReply) -> bool:
    return reply.status == 200 and reply.body.endswith(b"data: [DONE]\n\n")


def ends_with_error(reply: HTTPReply) -> bool:
    """Whether a response that has begun ends with an error, and without the mark of a whole one."""
    return b"[DONE]" not in reply.body and "error" in events(reply.body)[-1]


def test_01_a_rate_limit_is_waited_for_as_the_server_asks() -> None:
    first = Server(Status(429, retry_after=0.3), WORDS)
    [reply] = ask(first, other())
    assert text_of(reply.body) == WORDS
    assert first.attempts == 2
    assert first.times[1] - first.times[0] >= 0.3


def test_02_a_rate_limit_that_stays_is_not_hammered() -> None:
    first, second = Server(Status(429)), other(FALLBACK)
    [reply] = ask(first, second)
    assert text_of(reply.body) == FALLBACK
    assert 1 <= first.attempts <= 3


def test_02_a_request_that_was_not_sent_because_of_a_rate_limit_is_one_too_many() -> None:
    error = RateLimitError("the request was not sent", retryable=True, retry_after=30.2)
    refused = rejection(error, find_response_frames("openai-chat").format, is_client_key=False)
    assert (refused.status, refused.headers) == (429, {"retry-after": "31"})


def test_03_an_error_that_passes_is_retried_at_the_same_server() -> None:
    first, second = Server(Status(500), WORDS), other()
    [reply] = ask(first, second)
    assert text_of(reply.body) == WORDS
    assert (first.attempts, second.attempts) == (2, 0)


def test_04_a_server_that_stays_overloaded_is_replaced_or_its_error_is_shown() -> None:
    first = Server(Status(503, "the cluster is full"))
    [reply] = ask(first, other(FALLBACK))
    assert text_of(reply.body) == FALLBACK
    assert first.attempts <= 3
    [alone] = ask(Server(Status(503, "the cluster is full")))
    assert alone.status == 503
    assert "the cluster is full" in alone.json["error"]["message"]


def test_05_a_connection_that_breaks_before_the_headers_is_retried() -> None:
    [reply] = ask(Server(Reset(), WORDS))
    assert text_of(reply.body) == WORDS


@pytest.mark.parametrize("silence", [Hang(), Reply(wait(30), WORDS)], ids=["no headers", "no first token"])
def test_06_07_a_silent_server_is_asked_once_and_replaced_in_time(silence: Any) -> None:
    first = Server(silence, first_token=0.3)
    began = time.monotonic()
    [reply] = ask(first, other(FALLBACK))
    assert text_of(reply.body) == FALLBACK
    assert first.attempts == 1
    assert time.monotonic() - began < 15
    [alone] = ask(Server(silence, first_token=0.3))
    assert alone.status == 504


def test_08_a_cut_in_mid_answer_never_looks_whole() -> None:
    cut = Reply(WORDS, drop())
    first, second = Server(cut), other(FALLBACK)
    [reply] = ask(first, second)
    assert ends_with_error(reply)
    assert second.attempts == 0
    [clean] = ask(Server(Raw(sse(delta(content=WORDS), done=False))))
    assert ends_with_error(clean)


def test_08_a_cut_before_anything_has_left_is_answered_by_another_server() -> None:
    [reply] = ask(Server(Reply(drop())), other(FALLBACK))
    assert text_of(reply.body) == FALLBACK
    [whole] = ask(Server(Reply(WORDS, drop())), other(FALLBACK), stream=False)
    assert whole.json["choices"][0]["message"]["content"] == FALLBACK
    [alone] = ask(Server(Reply(WORDS, drop())), stream=False)
    assert alone.status >= 500


def test_09_a_stall_ends_with_an_error_in_time_and_the_gateway_lives() -> None:
    first = Server(Reply(WORDS, wait(30), "more"), WORDS, idle=0.3)
    began = time.monotonic()
    stalled, after = ask(first, times=2)
    assert ends_with_error(stalled)
    assert time.monotonic() - began < 15
    assert text_of(after.body) == WORDS


def test_10_a_broken_frame_ends_with_an_error_and_the_gateway_lives() -> None:
    broken = Raw(sse(delta(content="One "), 'data: {"choices": [{"del\n\n', delta(content="two."), delta("stop")))
    reply, after = ask(Server(broken, WORDS), times=2)
    assert ends_with_error(reply)
    assert text_of(after.body) == WORDS


def test_11_a_stream_without_its_end_mark_is_whole_at_once() -> None:
    usage = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}}
    body = Raw(sse(delta(content=WORDS), delta("stop"), usage, done=False))
    began = time.monotonic()
    [reply] = ask(Server(body), stream_options={"include_usage": True})
    assert is_whole(reply)
    assert text_of(reply.body) == WORDS
    assert events(reply.body)[-1]["usage"]["prompt_tokens"] == 7
    assert time.monotonic() - began < 8


def test_12_a_prompt_that_is_too_long_goes_to_another_model_and_never_twice_to_one() -> None:
    too_long = Status(400, "This model's maximum context length is 4096 tokens.")
    first = Server(too_long)
    [reply] = ask(first, other(FALLBACK))
    assert text_of(reply.body) == FALLBACK
    assert first.attempts == 1
    [alone] = ask(Server(too_long))
    assert alone.status == 400
    assert "context length" in alone.json["error"]["message"]


def test_13_a_refused_request_is_refused_with_the_words_of_the_provider() -> None:
    first, second = Server(Status(400, "Your request violates the content policy.")), other()
    [reply] = ask(first, second)
    assert reply.status == 400
    assert "content policy" in reply.json["error"]["message"]
    assert (first.attempts, second.attempts) == (1, 0)


def test_14_a_server_is_never_asked_to_continue_what_another_began() -> None:
    first, second = Server(Reply(WORDS, drop())), other(FALLBACK)
    [whole] = ask(first, second, stream=False)
    assert whole.json["choices"][0]["message"]["content"] == FALLBACK
    [received] = second.script.requests
    assert [message["role"] for message in received.body["messages"]] == ["user"]


def test_15_a_server_that_is_down_is_left_out_and_comes_back() -> None:
    is_down = True
    now = 1000.0
    first, second = Server(lambda: Status(503) if is_down else WORDS), other(FALLBACK)

    async def test(browser: Browser) -> None:
        nonlocal is_down, now

        async def text() -> str:
            return text_of((await browser.post("/v1/chat/completions", chat())).body)

        for _ in range(circuit.FAILURES + 3):
            assert await text() == FALLBACK
        asked = first.attempts
        assert await text() == FALLBACK
        assert first.attempts == asked, "the circuit is open"
        now += circuit.OPEN_SECONDS
        assert await text() == FALLBACK
        assert first.attempts > asked, "the probe"
        is_down = False
        assert await text() == FALLBACK, "the probe has failed"
        now += circuit.OPEN_SECONDS
        assert [await text() for _ in range(3)] == [WORDS] * 3

    app = gateway(first.upstream, second.upstream)
    app.context.circuits.clock = lambda: now
    run(app, test)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_server_that_breaks_off_its_responses_is_left_out(stream: bool) -> None:
    broken, second = Server(Reply(WORDS, drop())), other(FALLBACK)
    ask(broken, second, times=circuit.FAILURES + 2, stream=stream)
    assert (broken.attempts, second.attempts) == (circuit.FAILURES, 2 if stream else circuit.FAILURES + 2)
    unstable = Server(*[Reply(WORDS, drop()), WORDS] * circuit.FAILURES)
    ask(unstable, other(FALLBACK), times=2 * circuit.FAILURES, stream=stream)
    assert unstable.attempts == 2 * circuit.FAILURES, "a response that ends well counts"


def test_16_the_response_names_the_model_that_answered_and_its_usage() -> None:
    [reply] = ask(Server(Status(503)), other(FALLBACK), stream_options={"include_usage": True})
    assert {event["model"] for event in events(reply.body)} == {"second"}
    assert events(reply.body)[-1]["usage"]["completion_tokens"] > 0
    assert reply.headers["x-penstock-upstream"] == "second"


def healed_after(*servers: Server, times: int = 1, stream: bool = True) -> list[Any]:
    """What `/healed` says of each of some requests."""
    found: list[Any] = []

    async def test(browser: Browser) -> None:
        for _ in range(times):
            reply = await browser.post("/v1/chat/completions", chat(stream=stream))
            found.append((await browser.get(f"/healed/{reply.headers['x-request-id']}")).json)

    run(gateway(*(server.upstream for server in servers)), test)
    return found


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_healed_says_who_was_asked_in_order_and_who_answered(stream: bool, caplog: pytest.LogCaptureFixture) -> None:
    full = Server(Status(503, "the cluster is full"), retries=0)
    with caplog.at_level("INFO", "penstock.gateway"):
        *_, fallen, skipped = healed_after(full, other(FALLBACK), times=circuit.FAILURES + 1, stream=stream)
    failure = "HTTP 503: the cluster is full"
    first = {"upstream": "first", "model": "first"}
    answered = {"upstream": "second", "model": "second"}
    assert fallen["asked"] == [{**first, "failure": failure}, answered]
    assert (fallen["upstream"], fallen["answered_by"], fallen["problem"]) == ("second", "second", "")
    assert skipped["asked"] == [{**first, "failure": "not asked: it failed several times in a row"}, answered]
    assert f"asked: first ({failure}), second" in caplog.text
    [cut] = healed_after(Server(Reply(WORDS, drop())), other(FALLBACK), stream=False)
    assert cut["asked"] == [{**first, "failure": "its response broke off"}, answered]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_healed_says_why_a_request_failed(stream: bool) -> None:
    [refused] = healed_after(Server(Status(503, "the cluster is full"), retries=0), stream=stream)
    assert refused["problem"] == "HTTP 503: the cluster is full"
    assert refused["asked"] == [{"upstream": "first", "model": "m", "failure": "HTTP 503: the cluster is full"}]
    assert (refused["upstream"], refused["answered_by"], refused["status"]) == ("", "", 503)
    [cut] = healed_after(Server(Reply(WORDS, drop())), stream=stream)
    assert "the response ended with an error: " in cut["problem"]
    assert cut["upstream"] == "first"


def test_the_tokens_of_whole_responses_are_counted() -> None:
    async def test(browser: Browser) -> None:
        for stream in (True, False):
            await browser.post("/v1/chat/completions", chat(stream=stream))
        metrics = (await browser.get("/metrics")).body.decode()
        counts = [line for line in metrics.splitlines() if line.startswith("penstock_gateway_tokens")]
        assert {line.split()[-1] for line in counts} == {"14", "4"}

    usage = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}}
    run(gateway(Server(Raw(sse(delta(content=WORDS), delta("stop"), usage))).upstream), test)


@pytest.mark.parametrize(
    ("step", "status"),
    [
        (HTMLPage(200), 502),
        (HTMLPage(502), 502),
        (Raw(b""), 502),
        (Raw(b"", content_type="application/json"), 502),
        (Raw(b"\x1f\x8b\x08nonsense"), 502),
        (Status(404, "no such model"), 404),
        (Status(401, "bad key"), 502),
        (Status(301), 502),
        (fail("server_error", "the model crashed"), 502),
    ],
)
def test_an_upstream_that_is_not_a_model_is_an_error_in_the_shape_of_the_protocol(step: Any, status: int) -> None:
    step = Reply(step) if not isinstance(step, HTMLPage | Raw | Status) else step
    [reply] = ask(Server(step))
    assert reply.status in (status, 503)
    assert reply.json["error"]["message"]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("kind", ["text/html", "application/json", "text/event-stream", "image/png", ""])
def test_a_server_that_lies_about_its_content_type_is_understood(kind: str, stream: bool) -> None:
    """Its body is what counts: a stream, or a whole response."""
    message = {"role": "assistant", "content": WORDS}
    whole = {"id": "x", "model": "m", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    for body in (sse(delta(content=WORDS), delta("stop")), json.dumps(whole).encode()):
        [reply] = ask(Server(Raw(body, content_type=kind)), stream=stream)
        assert reply.status == 200
        assert WORDS in (text_of(reply.body) if stream else reply.json["choices"][0]["message"]["content"])


def test_an_endless_response_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.transport.attempt.MAX_RESPONSE_BYTES", 20_000)
    [reply] = ask(Server(Raw(sse(*(delta(content="word " * 20) for _ in range(1000))))))
    assert reply.status == 502
    assert "larger than" in reply.json["error"]["message"]


def test_an_error_after_a_keep_alive_is_in_the_stream() -> None:
    async def test(browser: Browser) -> None:
        for path, body in (
            ("/v1/chat/completions", chat()),
            ("/v1/responses", {"model": "m", "input": "Hi", "stream": True}),
            ("/v1/messages", {**chat(), "max_tokens": 9}),
        ):
            reply = await browser.post(path, body)
            assert reply.status == 200
            assert reply.body.startswith(b": keep-alive\n\n")
            assert "error" in json_of_last(reply.body)

    run(gateway(Server(Hang(), first_token=0.5).upstream, limits=IMPATIENT), test)


def json_of_last(body: bytes) -> str:
    return str(events(body)[-1])


def test_keep_alives_are_sent_while_a_call_is_held_back() -> None:
    call = '<tool_call>{"name": "shell", "arguments": {"command": "', 'ls"}}</tool_call>'

    async def test(browser: Browser) -> None:
        reply = await browser.post("/v1/chat/completions", chat(tools=TOOLS))
        assert b": keep-alive\n\n" in reply.body
        assert b'"tool_calls"' in reply.body
        assert is_whole(reply)

    run(gateway(Server(Reply("Hm. ", call[0], wait(1), call[1])).upstream, limits=IMPATIENT), test)


async def text_for_openai(browser: Browser) -> str:
    stream = await openai_client(browser).chat.completions.create(model="m", messages=ASK, stream=True)
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])


async def text_for_responses(browser: Browser) -> str:
    async with openai_client(browser).responses.stream(model="m", input="Hi") as stream:
        return (await stream.get_final_response()).output_text


async def text_for_anthropic(browser: Browser) -> str:
    async with anthropic_client(browser).messages.stream(model="m", max_tokens=9, messages=ASK) as stream:
        return await stream.get_final_text()


async def text_for_google(browser: Browser) -> str:
    stream = await gemini_client(browser).aio.models.generate_content_stream(model="m", contents="Hi")
    return "".join([chunk.text or "" async for chunk in stream])


async def text_for_ollama(browser: Browser) -> str:
    client = ollama.AsyncClient("http://localhost", transport=httpx.ASGITransport(app=browser.app))
    stream = await client.chat("m", messages=ASK, stream=True)
    return "".join([part.message.content or "" async for part in stream])


CLIENTS = text_for_openai, text_for_responses, text_for_anthropic, text_for_google, text_for_ollama


@pytest.mark.parametrize("text_for", CLIENTS)
def test_keep_alives_do_not_disturb_the_clients_of_vendors(
    text_for: Callable[[Browser], Coroutine[Any, Any, str]],
) -> None:
    async def test(browser: Browser) -> None:
        assert await text_for(browser) == "Well. Yes."

    run(gateway(Server(Reply(wait(0.5), "Well. ", wait(0.5), "Yes.")).upstream, limits=IMPATIENT), test)


def test_keep_alives_between_lines_of_json_are_white_space() -> None:
    async def test(browser: Browser) -> None:
        reply = await browser.post("/api/chat", chat())
        assert reply.body.startswith(b" ")
        lines = [json.loads(line) for line in reply.body.splitlines()]
        assert "".join(line["message"]["content"] for line in lines) == "Well. Yes."
        assert len(reply.body.split(b"\n ")) > 1  # also between two lines

    run(gateway(Server(Reply(wait(0.5), "Well. ", wait(0.5), "Yes.")).upstream, limits=IMPATIENT), test)


WHOLE = {
    "/v1/chat/completions": chat(stream=False),
    "/v1/responses": {"model": "m", "input": "Hi"},
    "/v1/messages": {**chat(stream=False), "max_tokens": 9},
    "/v1beta/models/m:generateContent": {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
    "/api/chat": chat(stream=False),
}


@pytest.mark.parametrize("path", WHOLE)
def test_a_response_that_is_not_streamed_has_keep_alives_before_its_json(path: str) -> None:
    replies: list[HTTPReply] = []

    async def test(browser: Browser) -> None:
        replies.append(await browser.post(path, WHOLE[path]))

    run(gateway(Server(Reply(wait(0.5), WORDS)).upstream, limits=IMPATIENT), test)
    run(gateway(Server(WORDS).upstream), test)
    slow, fast = replies
    assert slow.is_complete
    assert slow.body.startswith(b" ")
    assert int(fast.headers["content-length"]) == len(fast.body)
    for reply in replies:
        assert reply.status == 200
        assert reply.headers["content-type"] == "application/json"
        assert WORDS.strip() in str(reply.json)


@pytest.mark.parametrize("path", WHOLE)
def test_an_error_after_a_keep_alive_is_not_a_complete_response(path: str) -> None:
    async def test(browser: Browser) -> None:
        late = await browser.post(path, WHOLE[path])
        assert late.status == 200  # it was sent with the first keep-alive
        assert not late.is_complete
        assert "error" in late.json
        report = (await browser.get(f"/healed/{late.headers['x-request-id']}")).json
        assert report["problem"]

    run(gateway(Server(Hang(), first_token=0.5).upstream, limits=IMPATIENT), test)


@pytest.mark.parametrize("path", WHOLE)
def test_an_error_before_a_keep_alive_has_its_status(path: str) -> None:
    async def test(browser: Browser) -> None:
        early = await browser.post(path, WHOLE[path])
        assert (early.status, early.is_complete) == (429, True)
        assert early.headers["retry-after"] == "60"
        assert "error" in early.json

    run(gateway(Server(Status(429, "slow down", retry_after=60)).upstream), test)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("key", ["", "Bearer key-of-the-client"], ids=["without a key", "with a key"])
def test_a_key_that_the_gateway_lacks_is_named_to_clients(
    key: str, stream: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLOUD_KEY", raising=False)

    async def test(browser: Browser) -> None:
        reply = await browser.post("/v1/chat/completions", chat(stream=stream), authorization=key)
        assert reply.status == 502
        assert reply.json["error"]["message"] == "the gateway has no key for cloud: set CLOUD_KEY where it runs"

    run(gateway(upstream([WORDS], "cloud", key="env:CLOUD_KEY")), test)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_an_upstream_without_its_key_is_replaced(stream: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CLOUD_KEY", raising=False)
    first = Server(WORDS, key="env:CLOUD_KEY")
    [healed] = healed_after(first, other(FALLBACK), stream=stream)
    assert (healed["upstream"], healed["status"], first.attempts) == ("second", 200, 0)
    assert "set CLOUD_KEY" in healed["asked"][0]["failure"]


def test_a_key_that_an_upstream_refuses_is_that_of_the_gateway_or_of_the_client(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CLOUD_KEY", "sk-of-the-gateway")
    refused = "HTTP 401: bad key (check the API key and its permissions)"

    async def test(browser: Browser, status: int, message: str) -> None:
        reply = await browser.post("/v1/chat/completions", chat(), authorization="Bearer key-of-the-client")
        assert (reply.status, reply.json["error"]["message"]) == (status, message)

    for key, status, message in (
        ("env:CLOUD_KEY", 502, f"the upstream refused the key of the gateway: {refused}"),
        ("client", 401, refused),
    ):
        server = Server(Status(401, "bad key"), key=key)
        run(gateway(server.upstream), partial(test, status=status, message=message))


def test_the_log_says_once_why_the_only_upstream_failed(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "penstock.gateway"):
        ask(Server(Status(503, "the cluster is full"), retries=0))
    assert caplog.text.count("the cluster is full") == 1
    assert "| asked: first" in caplog.text

"""The transport over HTTP: error responses, retries, timeouts, broken connections, unexpected bodies and secrets."""

from __future__ import annotations

import asyncio
import errno
import gc
import gzip
import json
import logging
import os
import pickle
import socket
import threading
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock import (
    AuthenticationError,
    BadRequestError,
    ConnectionFailed,
    ContextLengthError,
    Error,
    Finish,
    Model,
    NotFoundError,
    OverloadedError,
    RateLimitError,
    Retries,
    Retry,
    TimedOut,
    Timeouts,
    ToolCallInvalid,
    UnexpectedReplyError,
    Usage,
)
from penstock.testing import (
    Hang,
    HTMLPage,
    Loopback,
    Mislabelled,
    Raw,
    Redirect,
    Reply,
    Reset,
    Scripted,
    Status,
    Step,
    always,
    call,
    drop,
    frames,
    say,
    wait,
)
from penstock.transport.error_responses import response_error
from penstock.transport.retry_delay import MAX_DELAY, retry_delay
from penstock.transport.threads.watchdog import Watchdog
from tests.agent.test_streams import until
from tests.asking import (
    AT_ONCE,
    FOREVER,
    KEY,
    LONG,
    ONCE,
    PATIENCE,
    SOON,
    aread,
    every_wire,
    failure,
    full_backlog,
    is_gone,
    model_at,
    model_on,
    read,
    request_of,
    serving,
    sync_and_async,
    within,
)
from tests.growth import assert_linear
from tests.sanity import assert_sane

# Error responses.


@every_wire
@sync_and_async
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequestError),
        (401, AuthenticationError),
        (403, AuthenticationError),
        (404, NotFoundError),
        (429, RateLimitError),
        (500, OverloadedError),
        (503, OverloadedError),
        (529, OverloadedError),
    ],
)
def test_an_error_response_is_raised_with_the_provider_s_message(wire: str, mode: str, status: int, kind: type) -> None:
    with Loopback(Status(status, "The words of the provider.")) as server:
        error = failure(mode, kind, model_at(server, wire, retries=ONCE))
    assert "The words of the provider." in error.message
    assert (error.status, f"HTTP {status}" in error.message) == (status, True)
    assert error.retryable == (status in (429, 500, 503, 529))
    assert error.raw is not None
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), vars(again), str(again)) == (kind, vars(error), str(error))


@sync_and_async
def test_permanent_errors_are_not_retried(mode: str) -> None:
    for step, kind in (
        (Status(401), AuthenticationError),
        (Status(404), NotFoundError),
        (Status(400), BadRequestError),
        (Redirect(), UnexpectedReplyError),
        (Raw(b'{"error": {"message": "No money.", "code": "insufficient_quota"}}', status=429), RateLimitError),
    ):
        with Loopback(always(step)) as server:
            failure(mode, kind, model_at(server, retries=SOON))
        assert len(server.requests) == 1


@sync_and_async
@pytest.mark.parametrize(
    ("first", "kind"),
    [
        (Status(429), RateLimitError),
        (Status(503), OverloadedError),
        (HTMLPage(500), OverloadedError),
        (Reset(), ConnectionFailed),
        (Hang(seconds=0.001), ConnectionFailed),
    ],
    ids=["429", "503", "page", "reset", "hang"],
)
def test_transient_errors_are_retried_and_raised_in_the_end(mode: str, first: Step, kind: type) -> None:
    with Loopback([first, first, "Sunny.", *[first] * 3]) as server:
        model = model_at(server, retries=SOON)
        chunks, stream = read(mode, model)
        assert (stream.text, stream.error) == ("Sunny.", None)
        assert not any(isinstance(chunk, Retry | Error) for chunk in chunks)
        assert failure(mode, kind, model).retryable
    assert len(server.requests) == 6


@sync_and_async
def test_retry_after_is_honoured(mode: str) -> None:
    with Loopback([Status(429, retry_after=0.3), "Sunny."]) as server:
        started = time.monotonic()
        assert read(mode, model_at(server, retries=Retries(first_delay=LONG)))[1].text == "Sunny."
        assert 0.3 <= time.monotonic() - started < LONG


@sync_and_async
def test_a_retry_after_beyond_the_limit_is_raised_at_once(mode: str) -> None:
    with Loopback(always(Status(429, retry_after=61))) as server, within(LONG):
        error = failure(mode, RateLimitError, model_at(server))
    assert (error.retry_after, error.retryable, len(server.requests)) == (61, True, 1)


@sync_and_async
def test_an_html_error_page_is_reported_without_its_markup(mode: str) -> None:
    html = (
        "<!DOCTYPE html><html><head><title>502 Bad Gateway</title><style>body{color:red}</style>"
        "<SCRIPT>if (1 < 2) alert('x')</SCRIPT></head><body><!-- <b>hidden</b> > not here -->"
        "<h1>Bad&nbsp;gateway</h1><p>Tom &amp; Jerry</p><script>never closed"
    )
    with Loopback(HTMLPage(500, html)) as server:
        error = failure(mode, OverloadedError, model_at(server, retries=ONCE))
    assert error.message == "HTTP 500: 502 Bad Gateway Bad gateway Tom & Jerry"


@sync_and_async
def test_a_long_error_response_is_truncated(mode: str) -> None:
    with Loopback(Raw(b"no " * 1_000_000, "text/plain", 400)) as server:
        error = failure(mode, BadRequestError, model_at(server))
    assert error.message.startswith("HTTP 400: no no no")
    assert len(error.message) < 1000


@sync_and_async
def test_an_error_response_with_an_endless_body_is_raised(mode: str) -> None:
    def serve(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(b'HTTP/1.1 401 No\r\ncontent-length: 100\r\n\r\n{"error"')
        is_gone(connection)

    with serving(serve) as url, within(LONG):
        model = Model("openai:gpt", url, KEY, timeouts=Timeouts(first_event=0.3))
        assert failure(mode, AuthenticationError, model).status == 401


@sync_and_async
def test_a_redirect_is_an_error_and_not_followed(mode: str) -> None:
    with Loopback(Redirect("https://elsewhere.example/v2")) as server:
        error = failure(mode, UnexpectedReplyError, model_at(server))
    assert "redirected to https://elsewhere.example/v2; set base_url" in error.message
    assert (error.status, len(server.requests)) == (307, 1)


def test_error_bodies_are_read_in_the_shapes_of_the_providers() -> None:
    def error(body: bytes, status: int = 400, headers: dict[str, str] | None = None) -> Any:
        return response_error(status, headers or {}, body, 0)

    assert error(b'{"error": {"message": "No.", "code": "bad", "type": "t"}}').code == "bad"
    assert error(b'{"error": {"message": "No.", "type": "t"}}').code == "t"
    assert error(b'[{"error": {"message": "No.", "status": "INVALID"}}]').message == "HTTP 400: No."
    assert error(b'{"error": "No.", "code": 7}').code == "7"
    assert error(b'{"message": "No."}').message == "HTTP 400: No."
    assert error(b'{"detail": "No."}').message == "HTTP 400: No."
    assert error(b'{"detail": [{"msg": "No."}]}').message == 'HTTP 400: {"detail": [{"msg": "No."}]}'
    assert error(b'{"error": null}').message == 'HTTP 400: {"error": null}'
    assert error(b"[]").message == "HTTP 400: []"
    assert error(b"").message == "HTTP 400"
    assert error(b"\xff\xfe").message == "HTTP 400: ��"
    assert error(b"[" * 100_000).status == 400
    assert error(b"{}", headers={"X-Request-Id": "req_1"}).request_id == "req_1"
    too_long = b'{"error": {"message": "This model\'s maximum context length is 8192 tokens."}}'
    assert type(error(too_long)) is ContextLengthError
    assert type(error(b'{"error": {"message": "No.", "code": "context_length_exceeded"}}')) is ContextLengthError
    too_large = b"<html><head><title>413 Request Entity Too Large</title></head><center>nginx</center></html>"
    for body in (b"", too_large, b'{"message": "Request size limit exceeded"}'):
        assert type(error(body, 413)) is BadRequestError
    assert type(error(b'{"error": {"type": "request_too_large", "message": "too many bytes"}}', 413)) is BadRequestError
    tokens = (
        b'{"error": {"message": "Request too large for model `m` on tokens per minute: Limit 6000, Requested 9000"}}'
    )
    assert type(error(tokens, 413)) is ContextLengthError
    assert type(error(b"The request is too large: the header X-Token exceeds 8 KB", 413)) is BadRequestError
    assert type(error(b"the input token count (9000) exceeds the limit", 400)) is ContextLengthError
    assert type(error(b'{"error": {"message": "prompt is too long: 9 tokens > 8 maximum"}}')) is ContextLengthError


def test_retry_after_is_read_as_seconds_milliseconds_or_a_date() -> None:
    def read(value: str, now: float = 0) -> float | None:
        return retry_delay({"Retry-After": value}, None, now)

    date = format_datetime(datetime.fromtimestamp(1_000_030, UTC), usegmt=True)
    for value, seconds in (
        ("12", 12),
        (" 1.5 ", 1.5),
        ("2s", 2),
        ("1m30s", 90),
        ("250ms", 0.25),
        ("5, 60", 5),
        ("0", 0),
    ):
        assert read(value) == seconds
    assert retry_delay({"retry-after-ms": "250", "retry-after": "9"}, None, 0) == 0.25
    assert read(date, 1_000_000) == 30
    assert read(date, 2_000_000) == 0
    assert read("Mon, 12 Jan 1970 13:47:10 -0000", 1_000_000) == 30  # without a time zone
    assert read("1970-01-12T13:47:10Z", 1_000_000) == 30
    for nonsense in ("", "soon", "-1", "nan", "inf", "٣٠", "1e", "\x00", "Mon", "31 Feb 2026", "0x10", "1:30", "1.5.5",
                     "1 2"):  # fmt: skip
        assert read(nonsense) is None
    for long in ("9" * 400, "1e300", "1e999", "Fri, 31 Dec 9999 23:59:59 GMT", "9" * 5000):
        assert read(long) == MAX_DELAY
    for odd in ("Sat, 01 Jan 0001 00:00:00 +2359", "Fri, 31 Dec 9999 23:59:59 -2359"):
        assert read(odd) is None or read(odd) in (0, MAX_DELAY)


@given(st.text() | st.from_regex(r"[\w :,+-]*[0-9]+[\w :,+-]*"))
def test_no_value_of_retry_after_raises(value: str) -> None:
    delay = retry_delay({"Retry-After": value, "retry-after-ms": value}, None, 0)
    assert delay is None or 0 <= delay <= MAX_DELAY


FIELDS = st.sampled_from(["error", "details", "retryDelay", "seconds", "@type"])
BODIES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(FIELDS, inner)
)


@given(BODIES)
def test_no_error_body_raises(body: Any) -> None:
    delay = retry_delay({}, body, 0)
    assert delay is None or 0 <= delay <= MAX_DELAY


def test_the_retry_info_of_google_is_read() -> None:
    def body(delay: Any) -> Any:
        info = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}
        help_link = {"@type": "type.googleapis.com/google.rpc.Help", "links": []}
        return [{"error": {"code": 429, "message": "Quota exceeded.", "details": [help_link, "?", info]}}]

    for delay, seconds in (("34.074s", 34.074), ("0s", 0), ({"seconds": "7"}, 7), (9, 9), ({"seconds": None}, None)):
        error = response_error(429, {}, json.dumps(body(delay)).encode(), 0)
        assert (type(error), error.retry_after) == (RateLimitError, seconds)
        error = response_error(503, {}, json.dumps(body(delay)[0]).encode(), 0)
        assert (type(error), error.retry_after) == (OverloadedError, seconds)


@sync_and_async
def test_a_delay_of_any_length_can_be_waited_for(mode: str) -> None:
    """The longest delay is one that every timer of the system can wait for, and a cancel still ends it."""
    retries = Retries(longest_wait=1e300)
    with Loopback(always(Status(429, retry_after=1e200))) as server:
        model = model_at(server, retries=retries, timeouts=Timeouts(total=None))
        if mode == "sync":
            stream = model.stream("Hi.")
            timer = threading.Timer(0.2, stream.cancel)
            timer.start()
            with pytest.raises(ConnectionFailed), stream:
                pass
        else:
            with pytest.raises(TimeoutError):
                asyncio.run(asyncio.wait_for(model.acomplete("Hi."), 0.2))


# Timeouts.


SILENT = Timeouts(first_event=0.3)


@sync_and_async
def test_a_server_that_hangs_exceeds_the_first_event_timeout(mode: str) -> None:
    with Loopback(always(Hang())) as server, within(LONG):
        error = failure(mode, TimedOut, model_at(server, timeouts=SILENT, retries=ONCE))
    assert error.message == "no event received within 0.3 seconds (timeouts.first_event)"
    assert error.retryable


@sync_and_async
def test_a_request_that_timed_out_is_retried(mode: str) -> None:
    with Loopback([Hang(), "Sunny."]) as server, within(LONG):
        assert read(mode, model_at(server, timeouts=SILENT, retries=SOON))[1].text == "Sunny."


@sync_and_async
def test_a_connection_that_is_never_established_times_out(mode: str) -> None:
    with full_backlog() as url, within(LONG):
        slow = Model("openai:gpt", url, KEY, timeouts=Timeouts(connect=0.2), retries=ONCE)
        error = failure(mode, TimedOut, slow)
        assert error.message == "no connection within 0.2 seconds (timeouts.connect)"
        assert error.retryable
        for times, words in (
            (Timeouts(first_event=0.2), "no event received within 0.2 seconds (timeouts.first_event)"),
            (Timeouts(total=0.2), "the response took longer than 0.2 seconds (timeouts.total)"),
            (Timeouts(connect=None, total=0.2), "the response took longer than 0.2 seconds (timeouts.total)"),
        ):
            error = failure(mode, TimedOut, Model("openai:gpt", url, KEY, timeouts=times, retries=ONCE))
            assert error.message == words


@sync_and_async
def test_a_refused_connection_is_reported_with_its_address(mode: str) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        error = failure(mode, ConnectionFailed, Model("openai:gpt", f"http://{address}/v1", KEY, retries=SOON))
    assert error.message == f"the connection to {address} failed: {os.strerror(errno.ECONNREFUSED)}"
    assert (error.retryable, error.status) == (True, 0)


@sync_and_async
def test_an_unknown_host_is_an_error(mode: str) -> None:
    model = Model("openai:gpt", "http://nowhere.invalid/v1", KEY, retries=ONCE)
    assert "nowhere.invalid" in failure(mode, ConnectionFailed, model).message


@every_wire
@sync_and_async
def test_an_idle_response_ends_with_an_error_and_keeps_its_text(wire: str, mode: str) -> None:
    script = Scripted(Reply(say("Let me look."), FOREVER, say("Never.")))
    with within(LONG):
        chunks, stream = read(mode, model_on(wire, via=script, timeouts=Timeouts(idle=0.02)))
    assert_sane(chunks)
    assert (stream.text, stream.finish_reason) == ("Let me look.", "cut")
    assert stream.error == Error("no data received for 0.02 seconds (timeouts.idle)", "TimedOut", retryable=True)


@sync_and_async
def test_the_idle_timeout_applies_after_a_late_first_event(mode: str) -> None:
    script = always(Reply(wait(0.2), say("Let me look."), FOREVER))
    with Loopback(script) as server:
        for first_event in (60, None):
            with within(LONG):
                times = Timeouts(first_event=first_event, idle=0.2)
                _, stream = read(mode, model_at(server, timeouts=times))
            assert stream.error.message == "no data received for 0.2 seconds (timeouts.idle)"


@sync_and_async
def test_the_first_event_timeout_does_not_apply_to_later_reads(mode: str) -> None:
    with Loopback(Reply(say("Let me look."), wait(0.6), say(" Sunny."))) as server:
        _, stream = read(mode, model_at(server, timeouts=Timeouts(first_event=0.3, idle=LONG)))
    assert (stream.text, stream.error) == ("Let me look. Sunny.", None)


@sync_and_async
def test_the_total_timeout_ends_a_response_that_never_pauses(mode: str) -> None:
    with Loopback(Reply("One word after another. " * 2000), pace=0.01) as server, within(LONG):
        chunks, stream = read(mode, model_at(server, timeouts=Timeouts(total=3)))
    assert stream.text.startswith("One word")
    assert stream.finish_reason == "cut"
    assert stream.error.message == "the response took longer than 3 seconds (timeouts.total)"
    assert not stream.error.retryable
    assert_sane(chunks)


def test_a_slow_reader_does_not_exceed_the_idle_timeout() -> None:
    script = always(Reply("One word after another, as they come. " * 10))
    times = Timeouts(first_event=0.25, idle=0.25)

    async def slowly(model: Model) -> Any:
        async with model.astream("Hi.") as stream:
            await asyncio.sleep(0.4)
            await anext(stream)
            await asyncio.sleep(0.4)
            while await anext(stream, None):
                pass
            return stream

    with Loopback(script, pace=0.002) as server:
        model = model_at(server, timeouts=times)
        with model.stream("Hi.") as stream:
            time.sleep(0.4)
            next(stream)
            time.sleep(0.4)
            while next(stream, None):
                pass
        async_stream = asyncio.run(slowly(model))
    assert (stream.finish_reason, stream.error) == ("stop", None)
    assert (async_stream.finish_reason, async_stream.error) == ("stop", None)


def test_the_watchdog_honours_deadlines_that_are_set_later() -> None:
    class Waiting:
        def __init__(self) -> None:
            self.deadline: float | None = None
            self.expired = threading.Event()

        def expire(self) -> None:
            self.expired.set()

    dog = Watchdog()

    def wait_until(deadline: float) -> None:  # as a connection does
        if deadline < dog.next_check:
            dog.wake()

    one, other = Waiting(), Waiting()
    for waiting in (one, other):
        dog.watch(waiting)
    time.sleep(0.05)  # it checks, and there is no deadline
    one.deadline = time.monotonic() + 3600
    wait_until(one.deadline)
    time.sleep(0.05)  # now it sleeps for an hour
    other.deadline = time.monotonic() + 0.05
    wait_until(other.deadline)
    assert other.expired.wait(PATIENCE)
    assert not one.expired.is_set()
    one.deadline = time.monotonic()
    wait_until(one.deadline)
    assert one.expired.wait(PATIENCE)


# Responses that break off.


@every_wire
@sync_and_async
def test_a_reset_in_a_call_is_an_error_and_the_call_is_invalid(wire: str, mode: str) -> None:
    with Loopback(Reply(say("Let me look."), call("weather", '{"city": "Ro'), drop())) as server:
        chunks, stream = read(mode, model_at(server, wire, retries=SOON))
    assert_sane(chunks)
    assert (stream.text, stream.tool_calls, stream.finish_reason) == ("Let me look.", [], "cut")
    assert isinstance(stream.error, Error)
    assert (stream.error.code, stream.error.retryable) == ("ConnectionFailed", True)
    is_whole_or_nothing = wire in ("gemini", "mistral", "ollama")
    assert [call.why for call in stream.turn.invalid_calls] == ([] if is_whole_or_nothing else ["cut"])
    assert len(server.requests) == 1
    order = [type(chunk) for chunk in chunks if isinstance(chunk, Error | ToolCallInvalid | Finish)]
    assert order[-1] is Finish


@sync_and_async
def test_a_response_that_breaks_off_is_retried_over_http(mode: str) -> None:
    replies = [Reply(say("Let me loo"), drop()), Reply(say("Let me look."), call("weather", {"city": "Rome"}))]
    with Loopback(replies) as server:
        chunks, stream = read(mode, model_at(server, retries=Retries(first_delay=0.001, after_start=True)))
    assert [type(chunk) for chunk in chunks].count(Retry) == 1
    assert (stream.text, stream.finish_reason, len(stream.tool_calls)) == ("Let me look.", "tool_calls", 1)
    assert stream.error is None
    assert len(server.requests) == 2


@sync_and_async
def test_a_response_that_ends_too_early_is_cut_without_an_error(mode: str) -> None:
    with Loopback(Reply(say("Let me look."), drop(clean=True))) as server:
        _, stream = read(mode, model_at(server))
    assert (stream.text, stream.finish_reason, stream.error) == ("Let me look.", "cut", None)


def test_data_before_a_reset_reaches_a_slow_reader() -> None:
    words = [f"word{at} " for at in range(50)]

    async def slowly(model: Model) -> Any:
        async with model.astream("Hi.") as stream:
            await asyncio.sleep(0.3)  # by now all data has arrived, and the connection is broken
            async for _ in stream:
                await asyncio.sleep(0.001)
            return stream

    with Loopback(always(Reply(*words, drop())), pace=0.001) as server:
        model = model_at(server)
        stream = asyncio.run(slowly(model))
        with model.stream("Hi.") as sync_stream:
            time.sleep(0.3)
            for _ in sync_stream:
                pass
    assert stream.text == sync_stream.text == "".join(words)
    assert stream.finish_reason == sync_stream.finish_reason == "cut"
    assert (stream.error.code, sync_stream.error is not None) == ("ConnectionFailed", True)


# Unexpected bodies.


@every_wire
@sync_and_async
def test_a_200_response_with_an_error_body_is_an_error(wire: str, mode: str) -> None:
    with Loopback(Status(200, "The model is on leave.")) as server:
        _, stream = read(mode, model_at(server, wire))
    assert stream.finish_reason == "error"
    assert stream.error.message == "The model is on leave."


def test_a_page_of_unclosed_tags_is_linear() -> None:
    def work(size: int) -> Callable[[], object]:
        page = b"<html" + b"<" * size
        return lambda: response_error(500, {"content-type": "text/html"}, page, 0.0)

    assert_linear(work, 4_000)


@every_wire
@sync_and_async
@pytest.mark.parametrize("content_type", ["text/html", "application/json", "text/event-stream", "nonsense"])
def test_the_framing_of_a_body_is_detected_despite_its_content_type(wire: str, mode: str, content_type: str) -> None:
    reply = Reply(say("Let me look."), call("weather", {"city": "Rome"}))
    with Loopback(always(Mislabelled(reply, content_type))) as server:
        model = model_at(server, wire)
        for streaming in (True, False):
            _, stream = read(mode, model, streaming=streaming)
            assert (stream.text, len(stream.tool_calls)) == ("Let me look.", 1)


@every_wire
@sync_and_async
@pytest.mark.parametrize("body", [b"<html><body>Log in, please.</body></html>", b"\x00\x01\x02", b"{", b"null", b"[]"])
def test_a_body_that_is_not_a_response_is_an_error(wire: str, mode: str, body: bytes) -> None:
    with Loopback(Raw(body, "text/html")) as server:
        chunks, stream = read(mode, model_at(server, wire, retries=ONCE))
    assert (stream.text, stream.tool_calls) == ("", [])
    assert stream.finish_reason in ("cut", "error")
    assert isinstance(chunks[-1], Finish)


@sync_and_async
@pytest.mark.parametrize("client", [None, "httpx"])
def test_a_compressed_body_is_read(mode: str, client: str | None) -> None:
    body = gzip.compress(b"".join(frames("openai-chat", Reply("Sunny."))))
    script: list[Step] = [
        Raw(body, headers={"content-encoding": "gzip"}),
        Raw(body[:-20] + b"\x00" * 20, headers={"content-encoding": "gzip"}),
    ]

    async def ask(model: Callable[..., Model]) -> Any:
        async with httpx.AsyncClient() as theirs:
            return (await aread(model(client=theirs if client else None)))[1].turn

    def turn(model: Callable[..., Model]) -> Any:
        if mode == "async":
            return asyncio.run(ask(model))
        with httpx.Client() as theirs:
            return read("sync", model(client=theirs if client else None))[1].turn

    with Loopback(script) as server:
        assert turn(lambda **options: model_at(server, retries=ONCE, **options)).text == "Sunny."
        try:
            broken = turn(lambda **options: model_at(server, retries=ONCE, **options))
        except ConnectionFailed:
            pass
        else:
            assert broken.error is not None or broken.text == "Sunny."
    headers = {name.lower(): value for name, value in server.requests[0].headers.items()}
    assert headers["accept-encoding"] == "identity"


@sync_and_async
@pytest.mark.parametrize(
    "greeting", [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 abc\r\n\r\n", b"\x15\x03\x01\x00\x02\x02\x16"]
)
def test_a_server_of_another_protocol_is_an_error(mode: str, greeting: bytes) -> None:
    def serve(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(greeting)

    with serving(serve) as url, within(LONG):
        failure(mode, ConnectionFailed, Model("openai:gpt", url, KEY, retries=ONCE))


# Secrets.


@sync_and_async
@pytest.mark.parametrize("status", [401, 500, 302])
def test_a_key_that_the_server_repeats_is_masked(mode: str, status: int) -> None:
    body = f'{{"error": {{"message": "Wrong: Bearer {KEY}", "code": "{KEY}", "more": ["{KEY}", "other-secret-key"]}}}}'
    kinds = {401: AuthenticationError, 500: OverloadedError, 302: UnexpectedReplyError}
    with Loopback(Raw(body.encode(), "application/json", status)) as server:
        model = model_at(server, retries=ONCE, headers={"X-Proxy-Key": "other-secret-key"})
        error = failure(mode, kinds[status], model)
    assert "other-secret-key" not in f"{error} {vars(error)}"
    assert "Wrong: ***" in error.message
    assert KEY not in repr(error.raw)


@every_wire
@sync_and_async
def test_a_key_in_an_in_band_error_is_masked(wire: str, mode: str) -> None:
    with Loopback(Status(200, f"Wrong key: {KEY}")) as server:
        chunks, stream = read(mode, model_at(server, wire))
    assert stream.error.message == "Wrong key: ***"
    assert KEY not in repr(chunks) + repr(stream.turn)


@sync_and_async
def test_a_short_word_in_place_of_a_key_is_not_masked(mode: str) -> None:
    with Loopback(Raw(b'{"error": {"message": "This is a test error."}}', status=400)) as server:
        model = Model("vllm:m", server.base_url("openai-chat"), "error")
        with pytest.raises(BadRequestError, match="HTTP 400: This is a test error"):
            read(mode, model)


@sync_and_async
def test_nothing_logs_the_key(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with Loopback([Status(401), Reset(), "Hi."]) as server:
        for wire in ("anthropic", "openai-chat"):
            try:
                read(mode, model_at(server, wire, retries=SOON))
            except AuthenticationError:
                pass
    assert KEY not in caplog.text
    assert not any(KEY in repr(vars(record)) for record in caplog.records)


# Stopping the loopback server.


@pytest.mark.parametrize(
    "step",
    [Hang(), Reply(FOREVER, say("Hi.")), Reply(say("Hi."), FOREVER), Raw(b"word " * 8_000_000), Reply("Hi.")],
    ids=["hangs", "waits", "pauses", "is not read", "is whole"],
)
@pytest.mark.parametrize("sent", [0, 40, -5, None], ids=["nothing", "half a head", "half a body", "all"])
@pytest.mark.filterwarnings("error")
def test_the_loopback_server_stops_at_once_with_open_connections(step: Step, sent: int | None) -> None:
    body = b'{"model": "m", "stream": true, "messages": [{"role": "user", "content": "Hi."}]}'
    head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body)
    with Loopback(step) as server:
        address = urlsplit(server.url)
        with socket.create_connection((str(address.hostname), address.port or 0)) as client:
            client.sendall((head + body)[:sent])
            if sent is None:
                until(lambda: bool(server.requests))
            time.sleep(0.05)  # until it is in the middle of it
            with within(AT_ONCE):
                server.__exit__()
            gc.collect()  # anything left open warns here


@sync_and_async
@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
@pytest.mark.parametrize("form", ["{}", "http://{}"])
@pytest.mark.parametrize("is_exempt", [False, True])
def test_the_proxy_of_the_environment_is_used(
    mode: str, name: str, form: str, is_exempt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in list(os.environ):
        if variable.lower().endswith("_proxy"):
            monkeypatch.delenv(variable)
    host = f"{uuid.uuid4().hex}.invalid"  # the connections of a host are opened with the proxy that they began with
    with Loopback(always("Through the proxy.")) as server:
        monkeypatch.setenv(name, form.format(urlsplit(server.base_url("openai-chat")).netloc))
        if is_exempt:
            monkeypatch.setenv("NO_PROXY", host)
        model = Model("openai-compatible:m", base_url=f"http://{host}/v1", retries=Retries(attempts=0))
        if is_exempt:
            failure(mode, ConnectionFailed, model)
        else:
            assert read(mode, model)[1].turn.text == "Through the proxy."


@sync_and_async
def test_usage_alone_does_not_begin_a_response(mode: str) -> None:
    """An error after usage alone is retried without an event."""
    start = {"type": "message_start", "message": {"id": "m", "usage": {"input_tokens": 9, "output_tokens": 1}}}
    broken = Raw(f"event: message_start\ndata: {json.dumps(start)}\n\n".encode())
    error = {"type": "error", "error": {"type": "overloaded_error", "message": f"Overloaded, {KEY}."}}
    busy = Raw(broken.body + f"event: error\ndata: {json.dumps(error)}\n\n".encode())
    quick = Retries(attempts=1, first_delay=0.0)
    with Loopback([busy, "Hi."]) as server:
        chunks, stream = read(mode, model_at(server, "anthropic", retries=quick))
    assert stream.turn.text == "Hi."
    assert not any(isinstance(chunk, Retry) for chunk in chunks)
    assert len([chunk for chunk in chunks if isinstance(chunk, Usage) and chunk.input_tokens == 9]) == 0
    with Loopback(always(busy)) as server:
        chunks, stream = read(mode, model_at(server, "anthropic", retries=quick))
    assert KEY not in repr(chunks)
    assert stream.error.code == "overloaded_error"

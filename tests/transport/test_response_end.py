"""The end of a response over real sockets: end marks on open connections, signs of life, and early ends."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from penstock import ConnectionFailed, Decoder, Error, Model, Retries, Retry, TimedOut, Timeouts, collect
from penstock.testing import Loopback, Raw, Reply, Scripted, always, call, drop, frames, say
from penstock.transport import deadlines
from penstock.transport.commands import HTTPRequest, ReadBytes, ReadTimedOut
from penstock.transport.exchange import Exchange
from penstock.wires import wire_name
from tests.asking import (
    KEY,
    LONG,
    ONCE,
    SOON,
    STREAMING,
    aread,
    every_wire,
    failure,
    is_gone,
    model_at,
    model_on,
    read,
    request_of,
    serving,
    sync_and_async,
    within,
)
from tests.transport.test_exchange import OK, Clock, delivered, walk

CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
PATIENT = Timeouts(first_event=60, idle=60)
EAGER = Retries(attempts=2, first_delay=0.001, after_start=True)
REPLY = Reply(say("Let me look."), call("weather", {"city": "Rome"}))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class OpenServer:
    """A server that sends a body and leaves the connection open; `closed` counts the connections that clients close."""

    def __init__(self, wire: str, body: Iterable[bytes], end: Callable[[socket.socket], object] | None = None) -> None:
        self.requests = 0
        self.closed = threading.Semaphore(0)
        self._body = b"".join(body)
        self._end = end
        self.wire = wire

    def __call__(self, connection: socket.socket) -> None:
        request_of(connection)
        self.requests += 1
        connection.sendall(CHUNKED + chunk(self._body))
        if self._end is not None:
            self._end(connection)
        elif is_gone(connection):
            self.closed.release()

    def ask(self, mode: str, retries: Retries = ONCE) -> Any:
        """The stream of one response, which must end long before the timeouts."""
        with serving(self) as url, within(LONG):
            model = model_on(self.wire, url, api_key=KEY, timeouts=PATIENT, retries=retries)
            return read(mode, model)[1]


def reset(connection: socket.socket) -> None:
    """Close a connection with a TCP reset."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def without_mark(wire: str, reply: Reply = REPLY) -> list[bytes]:
    """The frames of a response up to the reason for its end."""
    body = frames(wire, reply)
    marks = {"openai-chat": 1, "mistral": 1, "anthropic": 1, "bedrock": 1}
    return body[: len(body) - marks.get(wire, 0)]


def chat(*chunks: dict[str, Any]) -> bytes:
    return b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in chunks)


def delta(finish: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": fields, "finish_reason": finish}]}


# The end mark, and the reason for the end.


@every_wire
@sync_and_async
def test_an_end_mark_ends_the_response_on_an_open_connection(wire: str, mode: str) -> None:
    server = OpenServer(wire, frames(wire, REPLY))
    stream = server.ask(mode, EAGER)
    assert (stream.text, stream.finish_reason, stream.error) == ("Let me look.", "tool_calls", None)
    assert [call.arguments for call in stream.tool_calls] == [{"city": "Rome"}]
    assert stream.usage is not None
    assert (server.requests, server.closed.acquire(timeout=LONG)) == (1, True)


@sync_and_async
@pytest.mark.parametrize("wire", ["openai-chat", "anthropic", "bedrock", "gemini"])
def test_a_response_without_an_end_mark_ends_soon_after_its_reason(wire: str, mode: str) -> None:
    server = OpenServer(wire, without_mark(wire))
    stream = server.ask(mode, EAGER)
    assert (stream.text, stream.finish_reason, stream.error) == ("Let me look.", "tool_calls", None)
    assert (server.requests, len(stream.tool_calls)) == (1, 1)


@sync_and_async
@pytest.mark.parametrize("wire", ["openai-chat", "gemini"])
def test_a_reset_after_the_reason_for_the_end_is_not_an_error(wire: str, mode: str) -> None:
    server = OpenServer(wire, without_mark(wire), reset)
    stream = server.ask(mode, EAGER)
    assert (stream.finish_reason, stream.error, server.requests) == ("tool_calls", None, 1)


@sync_and_async
def test_an_error_of_the_provider_ends_the_response_on_an_open_connection(mode: str) -> None:
    server = OpenServer("openai-chat", [chat(delta(content="Hi"), {"error": {"message": "No.", "code": "bad"}})])
    stream = server.ask(mode)
    assert (stream.text, stream.finish_reason, stream.error.message) == ("Hi", "error", "No.")


@sync_and_async
@pytest.mark.parametrize("wire", ["openai-chat", "gemini"])
def test_a_connection_is_reused_after_a_response(wire: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadlines, "REUSE_WAIT", LONG)  # a busy machine sends the end late
    connections = []

    def serve(connection: socket.socket) -> None:
        connections.append(connection)
        for _ in range(3):
            request_of(connection)
            connection.sendall(CHUNKED + chunk(b"".join(frames(wire, Reply("Hi.")))))
            connection.sendall(b"0\r\n\r\n")  # its end comes a little later

    async def thrice(model: Model) -> list[str]:
        return [(await aread(model))[1].text for _ in range(3)]

    with serving(serve) as url:
        model = model_on(wire, url, api_key=KEY)
        texts = asyncio.run(thrice(model)) if mode == "async" else [read(mode, model)[1].text for _ in range(3)]
        assert (texts, len(connections)) == (["Hi."] * 3, 1)


def waits(wire: str, *reads: Any, clock: Clock | None = None) -> tuple[list[float | None], Any]:
    """The timeouts of the reads of a response, and its turn."""
    exchange = Exchange(
        request=HTTPRequest("http://localhost/v1", {}, b"{}"),
        new_decoding=lambda: Decoder(wire_name(wire)),
        timeouts=Timeouts(first_event=60, idle=30, total=None),
        retries=EAGER,
        clock=clock or Clock(),
        calendar=time.time,
    )
    seen = walk(exchange, OK, *reads)
    return [command.timeout for command in seen if isinstance(command, ReadBytes)], collect(delivered(seen))


LATE = ReadTimedOut("late")
USAGE = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}


def test_usage_after_the_reason_for_the_end_is_read() -> None:
    timeouts, turn = waits("openai-chat", chat(delta(content="Hi")), chat(delta("stop")), chat(USAGE), LATE)
    assert timeouts == [60, 30, 0.5, 0.5]
    assert (turn.finish_reason, turn.error, turn.usage.input_tokens) == ("stop", None, 3)
    timeouts, turn = waits("openai-chat", chat(delta(content="Hi")), chat(delta("stop")), b"data: [DONE]\n\n", LATE)
    assert timeouts == pytest.approx([60, 30, 0.5, 0.05])
    assert (turn.finish_reason, turn.error) == ("stop", None)


def test_keep_alives_after_the_reason_do_not_extend_the_grace() -> None:
    clock = Clock()

    def later(data: bytes) -> Any:
        def read() -> bytes:
            clock.now += 0.125
            return data

        return read

    alive = [later(b"data: ping\n\n"), later(b": ping\n\n"), later(b"data: ping\n\n")]
    timeouts, turn = waits("openai-chat", chat(delta(content="Hi")), chat(delta("stop")), *alive, LATE, clock=clock)
    assert timeouts == [60, 30, 0.5, 0.375, 0.25, 0.125]
    assert (turn.finish_reason, turn.error) == ("stop", None)


def test_a_reason_that_content_follows_is_doubtful() -> None:
    def candidate(text: str, **fields: Any) -> bytes:
        return chat({"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, **fields}]})

    stop = {"finishReason": "STOP"}
    early = chat({"candidates": [stop]})
    timeouts, turn = waits("gemini", early, candidate("One "), candidate("two", **stop), LATE)
    assert timeouts == [60, 60, 30, 30]
    assert (turn.text, turn.finish_reason, turn.error) == ("One two", "stop", None)
    timeouts, turn = waits("gemini", candidate("One ", **stop) + candidate("two", **stop), candidate("!", **stop), LATE)
    assert timeouts == [60, 30, 30]
    assert (turn.text, turn.finish_reason, turn.error) == ("One two!", "stop", None)
    broke = ConnectionFailed("the line broke")
    _, turn = waits("gemini", candidate("One ", **stop), candidate("two", **stop), broke)
    assert turn.error.message == "the line broke"


def test_arguments_may_follow_the_reason_for_the_end() -> None:
    def piece(arguments: str, **fields: Any) -> bytes:
        return chat(delta(tool_calls=[{"index": 0, **fields, "function": {"name": "f", "arguments": arguments}}]))

    first, last = piece('{"a":', id="c"), chat(delta(tool_calls=[{"index": 0, "function": {"arguments": "1}"}}]))
    timeouts, turn = waits("openai-chat", first, chat(delta("tool_calls")), last, b"data: [DONE]\n\n", b"")
    assert timeouts == pytest.approx([60, 30, 30, 30, 0.05])
    assert [call.arguments for call in turn.tool_calls] == [{"a": 1}]


def test_all_arguments_of_a_call_may_follow_the_reason_for_the_end() -> None:
    first = chat(delta(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]))
    last = chat(delta(tool_calls=[{"index": 0, "function": {"arguments": '{"a":1}'}}]))
    timeouts, turn = waits("openai-chat", first, chat(delta("tool_calls")), last, b"data: [DONE]\n\n", b"")
    assert timeouts == pytest.approx([60, 30, 30, 30, 0.05])
    assert [call.arguments for call in turn.tool_calls] == [{"a": 1}]
    _, turn = waits("openai-chat", first, chat(delta("tool_calls")), ConnectionFailed("the line broke"))
    assert turn.type == "error", "no tool runs"
    _, turn = waits("openai-chat", first, chat(delta("tool_calls")), b"")
    assert [call.arguments for call in turn.tool_calls] == [{}], "the server has closed the connection"


@every_wire
def test_the_decoder_says_when_a_response_has_ended(wire: str) -> None:
    kind: Any = "openai-chat" if wire == "mistral" else wire
    decoder, seen = Decoder(kind), []
    for frame in frames(kind, REPLY):
        decoder.feed(frame)
        seen.append(decoder.progress())
    assert seen[0] == "open"
    assert seen[-1] == ("finished" if wire == "gemini" else "ended")
    assert decoder.progress() == seen[-1]


# Signs of life.


@sync_and_async
@pytest.mark.parametrize(
    ("wire", "sign"),
    [
        ("openai-chat", b": keep-alive\n\n"),
        ("openai-responses", chat({"type": "response.in_progress", "response": {"id": "r", "status": "in_progress"}})),
    ],
    ids=["comment", "in_progress"],
)
def test_signs_of_life_extend_the_wait_for_the_first_event(wire: str, sign: bytes, mode: str) -> None:
    requests = []

    def serve(connection: socket.socket) -> None:
        requests.append(request_of(connection))
        connection.sendall(STREAMING)
        for _ in range(30):
            connection.sendall(sign)
            time.sleep(0.05)
        connection.sendall(b"".join(frames(wire, REPLY)))

    with serving(serve) as url, within(LONG):
        times = Timeouts(first_event=1, idle=1)
        stream = read(mode, model_on(wire, url, api_key=KEY, timeouts=times, retries=SOON))[1]
    assert (stream.text, stream.error, len(requests)) == ("Let me look.", None, 1)


def test_a_keep_alive_that_is_sent_as_data_is_not_the_first_event() -> None:
    ping, start = b"data: ping\n\n", chat({"choices": [], "usage": {"prompt_tokens": 3}})
    timeouts, turn = waits("openai-chat", ping, start, chat(delta(content="Hi")), chat(delta("stop")), LATE)
    assert timeouts == [60, 60, 60, 30, 0.5]
    assert (turn.text, len(turn.unknown), turn.usage.input_tokens) == ("Hi", 1, 3)


@sync_and_async
def test_an_overload_after_a_keep_alive_that_is_sent_as_data_is_retried(mode: str) -> None:
    overload = chat({"error": {"message": "Overloaded", "type": "overloaded_error"}})
    with Loopback([Raw(b"data: ping\n\n" + overload), "Sunny."]) as server:
        stream = read(mode, model_at(server, retries=SOON))[1]
        assert (stream.text, stream.error, len(server.requests)) == ("Sunny.", None, 2)


@sync_and_async
def test_signs_of_life_are_bounded_by_the_total_timeout(mode: str) -> None:
    def serve(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(STREAMING)
        for _ in range(1000):
            connection.sendall(b": ping\n\n")
            time.sleep(0.02)

    with serving(serve) as url, within(LONG):
        model = Model("anthropic:claude", url, KEY, timeouts=Timeouts(first_event=60, total=0.4), retries=SOON)
        error = failure(mode, TimedOut, model)
    assert error.message == "the response took longer than 0.4 seconds (timeouts.total)"
    assert Timeouts().total == 1800


@sync_and_async
@pytest.mark.parametrize("start", [b"", b": keep-alive\n\n"], ids=["nothing", "keep-alive"])
def test_an_accepted_request_is_sent_again_only_on_demand(start: bytes, mode: str) -> None:
    requests = []

    def serve(connection: socket.socket) -> None:
        requests.append(request_of(connection))
        connection.sendall(STREAMING + start)
        is_gone(connection)

    def model(**retries: Any) -> Model:
        return Model(
            "anthropic:claude", url, KEY,
            timeouts=Timeouts(first_event=0.2), retries=Retries(attempts=1, first_delay=0.001, **retries),
        )  # fmt: skip

    with serving(serve) as url, within(LONG):
        assert failure(mode, TimedOut, model()).retryable
        assert len(requests) == 1
        failure(mode, TimedOut, model(after_start=True))
        assert len(requests) == 3


@sync_and_async
def test_an_empty_response_is_an_error_and_retried_on_demand(mode: str) -> None:
    with Loopback([Raw(b""), Raw(b""), "Sunny."]) as server:
        assert failure(mode, ConnectionFailed, model_at(server, retries=SOON)).retryable
        assert read(mode, model_at(server, retries=EAGER))[1].text == "Sunny."
    assert len(server.requests) == 3


# Responses that fail after their start.


@every_wire
@sync_and_async
def test_a_clean_early_end_is_retried_with_after_start(wire: str, mode: str) -> None:
    script = Scripted([Reply(say("Hel"), drop(clean=True)), Reply(drop(clean=True)), "Hello.", *["Never."] * 2])
    chunks, stream = read(mode, model_on(wire, via=script, retries=EAGER))
    assert (stream.text, stream.finish_reason, stream.error) == ("Hello.", "stop", None)
    retries = [chunk.reason for chunk in chunks if isinstance(chunk, Retry)]
    assert (retries[0], len(retries)) == ("the response ended before it was complete", 2)


@sync_and_async
def test_an_early_end_after_the_last_attempt_is_delivered_as_it_is(mode: str) -> None:
    script = Scripted(always(Reply(say("Hel"), drop(clean=True))))
    _, stream = read(mode, model_on("openai-chat", via=script, retries=EAGER))
    assert (stream.text, stream.finish_reason, stream.error, len(script.requests)) == ("Hel", "cut", None, 3)


OVERLOADED: dict[str, bytes] = {
    "anthropic": b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}\n\n',
    "openai-chat": chat({"error": {"message": "Overloaded", "code": 503}}),
    "openai-responses": chat({"type": "error", "code": "server_is_overloaded", "message": "Overloaded"}),
    "gemini": chat({"error": {"code": 503, "message": "Overloaded", "status": "UNAVAILABLE"}}),
}


@sync_and_async
@pytest.mark.parametrize("wire", OVERLOADED)
@pytest.mark.parametrize("is_one_read", [True, False], ids=["one read", "byte by byte"])
def test_an_overload_after_text_is_retried_with_after_start(wire: str, mode: str, is_one_read: bool) -> None:
    begun = b"".join(frames(wire, Reply(say("Hel"), drop())))
    busy = Raw(begun + OVERLOADED[wire])
    script = Scripted([busy, "Hello.", busy], cuts=None if is_one_read else "bytes")
    chunks, stream = read(mode, model_on(wire, via=script, retries=EAGER))
    assert (stream.text, stream.finish_reason, stream.error) == ("Hello.", "stop", None)
    assert not any(isinstance(chunk, Error) for chunk in chunks)
    assert [chunk.reason for chunk in chunks if isinstance(chunk, Retry)] == ([] if is_one_read else ["Overloaded"])
    _, stream = read(mode, model_on(wire, via=script, retries=SOON))
    assert (stream.text, stream.finish_reason, stream.error.message) == ("Hel", "error", "Overloaded")


@sync_and_async
def test_a_call_before_an_overload_prevents_the_retry(mode: str) -> None:
    body = b"".join(frames("anthropic", Reply(call("pay", {"n": 1}), drop())))
    script = Scripted([Raw(body + OVERLOADED["anthropic"]), "Never."])
    _, stream = read(mode, model_on("anthropic", via=script, retries=EAGER))
    assert (len(stream.tool_calls), stream.error.message, len(script.requests)) == (1, "Overloaded", 1)


@sync_and_async
def test_a_reset_of_a_body_without_a_length_is_an_error(mode: str) -> None:
    begun = b"".join(frames("openai-chat", Reply(say("Hel"), drop())))
    requests = []

    def serve(connection: socket.socket) -> None:
        requests.append(request_of(connection))
        connection.sendall(STREAMING + begun)
        reset(connection)

    with serving(serve) as url, within(LONG):
        stream = read(mode, model_on("openai-chat", url, api_key=KEY))[1]
        assert (stream.text, stream.finish_reason, stream.error.code) == ("Hel", "cut", "ConnectionFailed")
        chunks, _ = read(mode, model_on("openai-chat", url, api_key=KEY, retries=EAGER))
    assert [type(chunk) for chunk in chunks].count(Retry) == 2
    assert len(requests) == 4

"""Cancelling a stream from another thread: the socket closes at once, wherever the request is."""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import httpx
import httpx2
import pytest

import penstock
from penstock import (
    ConnectionFailed,
    Model,
    Stream,
    Timeouts,
)
from penstock.testing import (
    Hang,
    Loopback,
    Reply,
    Step,
    frames,
    say,
    wait,
)
from penstock.transport.commands import (
    HTTPRequest,
    OpenRequest,
)
from penstock.transport.http.sync_http import HTTPConnection
from tests.agent.test_streams import until
from tests.asking import (
    AT_ONCE,
    KEY,
    LONG,
    PATIENCE,
    full_backlog,
    in_thread,
    model_at,
    read,
    request_of,
    serving,
    within,
)

CLIENTS: dict[str, Callable[..., Any]] = {"ours": nullcontext, "httpx": httpx.Client, "httpx2": httpx2.Client}
every_client = pytest.mark.parametrize("client", CLIENTS)
new_or_reused = pytest.mark.parametrize("answers", [0, 2], ids=["new", "reused"])
BODY = b"".join(frames("openai-chat", Reply("Hi.")))
WHOLE = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n%b" % (len(BODY), BODY)
"""A response after which the connection can be reused."""


class Staller:
    """A server that responds to some requests on a connection, then reads the start of another and does not respond."""

    def __init__(self, answers: int = 0, begin: Callable[[socket.socket], object] = request_of) -> None:
        self.connections = 0
        self.reached, self.may_go_on, self.gone = threading.Event(), threading.Event(), threading.Event()
        self._answers = answers
        self._begin = begin

    def __call__(self, connection: socket.socket) -> None:
        self.connections += 1
        for _ in range(self._answers):
            request_of(connection)
            connection.sendall(WHOLE)
        self._begin(connection)
        self.reached.set()
        assert self.may_go_on.wait(PATIENCE)
        connection.settimeout(PATIENCE)
        with suppress(ConnectionError):
            while connection.recv(1 << 20):
                pass
        self.gone.set()

    def cancel(self, model: Model, message: str = "Hi.") -> None:
        """Send a request in a thread and cancel it when it waits: the thread and the connection end at once."""
        cancel_when(self.reached, model, message)
        self.may_go_on.set()
        assert self.gone.wait(AT_ONCE)


def cancel_when(reached: threading.Event, model: Model, message: str = "Hi.") -> None:
    stream, raised = model.stream(message), list[ConnectionFailed]()
    thread = in_thread(partial(enter, stream, raised))
    assert reached.wait(PATIENCE)
    time.sleep(0.1)  # until it waits
    stream.cancel()
    thread.join(AT_ONCE)
    assert not thread.is_alive()
    assert [error.code for error in raised] == ["cancelled"]


def enter(stream: Stream, raised: list[ConnectionFailed]) -> None:
    try:
        stream.__enter__()
    except ConnectionFailed as error:
        raised.append(error)


def a_byte_of(connection: socket.socket) -> None:
    connection.recv(1)


def head_of(connection: socket.socket) -> None:
    data = b""
    while b"\r\n\r\n" not in data:
        data += connection.recv(65536)


def chat(url: str, **options: Any) -> Model:
    return Model("openai:gpt", url, KEY, wire="openai-chat", **options)


@every_client
@new_or_reused
@pytest.mark.parametrize(
    ("begin", "message"), [(request_of, "Hi."), (a_byte_of, "word " * 8_000_000)], ids=["waiting", "writing"]
)
def test_a_cancel_before_the_headers_ends_the_request_at_once(
    client: str, answers: int, begin: Callable[[socket.socket], object], message: str
) -> None:
    staller = Staller(answers, begin)
    with serving(staller) as url, CLIENTS[client]() as theirs:
        model = chat(url, client=theirs)
        for _ in range(answers):
            assert read("sync", model)[1].text == "Hi."
        staller.cancel(model, message)
    assert staller.connections == 1


def without_certificates(side: Any) -> ssl.SSLContext:
    """TLS contexts that do not verify each other."""
    context = ssl.SSLContext(side)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.set_ciphers("aNULL:@SECLEVEL=0")
    except ssl.SSLError:
        pytest.skip("this OpenSSL does no TLS without certificates")
    return context


@new_or_reused
@pytest.mark.parametrize("client", [httpx.Client, httpx2.Client])
def test_a_cancel_before_the_headers_reaches_through_tls(client: Any, answers: int) -> None:
    context, staller = without_certificates(ssl.PROTOCOL_TLS_SERVER), Staller(answers)

    def serve(connection: socket.socket) -> None:
        with context.wrap_socket(connection, server_side=True) as secured:
            staller(secured)

    with serving(serve) as url, client(verify=without_certificates(ssl.PROTOCOL_TLS_CLIENT)) as theirs:
        model = chat(url.replace("http:", "https:"), client=theirs)
        for _ in range(answers):
            assert read("sync", model)[1].text == "Hi."
        staller.cancel(model)
    assert staller.connections == 1


@every_client
def test_a_cancel_ends_a_handshake(client: str) -> None:
    staller = Staller(begin=a_byte_of)
    with serving(staller) as url, CLIENTS[client]() as theirs:
        staller.cancel(chat(url.replace("http:", "https:"), client=theirs))


@pytest.mark.parametrize("client", [httpx.Client, httpx2.Client])
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_cancel_ends_the_wait_for_a_proxy(client: Any, scheme: str) -> None:
    staller = Staller(begin=head_of)
    with serving(staller) as url, client(proxy=url.removesuffix("/v1")) as theirs:
        staller.cancel(chat(f"{scheme}://nowhere.invalid/v1", client=theirs))


@pytest.mark.parametrize("client", [httpx.Client, httpx2.Client])
def test_a_cancel_reaches_a_connection_that_the_caller_s_client_opened(client: Any) -> None:
    staller = Staller(2)
    with serving(staller) as url, client() as theirs:
        assert theirs.post(url, content=b"{}").content == BODY
        model = chat(url, client=theirs)
        assert read("sync", model)[1].text == "Hi."
        staller.cancel(model)
    assert staller.connections == 1


def test_a_connection_established_after_a_cancel_is_closed_unused(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up, cancelled, find = threading.Event(), threading.Event(), socket.getaddrinfo
    received: list[bytes] = []

    def find_slowly(*args: Any, **options: Any) -> Any:
        looked_up.set()
        assert cancelled.wait(PATIENCE)
        return find(*args, **options)

    def serve(connection: socket.socket) -> None:
        connection.settimeout(PATIENCE)
        received.append(connection.recv(65536))

    def cancel() -> None:
        assert looked_up.wait(PATIENCE)
        stream.cancel()
        cancelled.set()

    with serving(serve) as url:
        stream = chat(url).stream("Hi.")
        monkeypatch.setattr(socket, "getaddrinfo", find_slowly)
        in_thread(cancel)
        with within(LONG), pytest.raises(ConnectionFailed, match="the stream was cancelled"):
            stream.__enter__()
        until(lambda: bool(received))
    assert received == [b""]


def test_a_cancel_while_connecting_takes_at_most_the_connect_timeout_and_is_not_retried() -> None:
    with full_backlog() as url:
        begun = threading.Event()
        begun.set()
        cancel_when(begun, chat(url, timeouts=Timeouts(connect=0.4)))


def test_an_aborted_connection_does_not_connect() -> None:
    staller = Staller()
    with serving(staller) as url:
        connection = HTTPConnection()
        connection.abort()
        with pytest.raises(ConnectionFailed):
            connection.open(OpenRequest(HTTPRequest(url, {}, b"{}"), LONG, LONG))
    assert staller.connections == 0


def test_a_cancel_does_not_break_other_streams() -> None:
    replies: list[Step] = [Reply("One."), Reply("Two."), Hang(), Reply(say("Th"), wait(0.4), say("ree."))]
    with Loopback(replies) as server:
        model = model_at(server)
        with model.stream("Hi.") as first, model.stream("Hi.") as second:  # two connections
            assert (penstock.collect(first).text, penstock.collect(second).text) == ("One.", "Two.")
        hanging = model.stream("Hi.")
        thread = in_thread(partial(enter, hanging, []))
        until(lambda: len(server.requests) == 3)
        with model.stream("Hi.") as other:
            next(other)
            for stream in (first, second, hanging):
                stream.cancel()
            thread.join(AT_ONCE)
            assert not thread.is_alive()
            while next(other, None):
                pass
    assert (other.text, other.error) == ("Three.", None)


def test_a_stream_that_was_read_to_its_end_releases_its_connection() -> None:
    is_aborted, connections = threading.Event(), []

    def answer(connection: socket.socket) -> None:
        connections.append(connection)
        request_of(connection)
        connection.sendall(WHOLE)
        request_of(connection)
        connection.sendall(WHOLE[:-1])
        assert is_aborted.wait(PATIENCE)
        connection.sendall(WHOLE[-1:])

    def body_of(connection: HTTPConnection) -> bytes:
        return b"".join(iter(partial(connection.read, LONG), b""))

    with serving(answer) as url:
        command = OpenRequest(HTTPRequest(url, {}, b"{}"), LONG, LONG)
        first, second = HTTPConnection(), HTTPConnection()
        first.open(command)
        assert body_of(first) == BODY
        second.open(command)
        first.abort()
        is_aborted.set()
        assert body_of(second) == BODY
        first.close()
        second.close()
    assert len(connections) == 1

"""Shared connection pools: cookies, event loops that end in any way, proxies, and closing."""

from __future__ import annotations

import asyncio
import gc
import os
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

import penstock
from penstock import ConnectionFailed, Model, Retries, Text, UsageError
from penstock.testing import Loopback, Reply, always, frames
from penstock.transport.http import async_pool
from tests.agent.test_streams import until
from tests.asking import KEY, PATIENCE, failure, is_gone, model_at, read, request_of, serving, sync_and_async

BODY = b"".join(frames("openai-chat", Reply("Hi.")))


def head(*lines: bytes) -> bytes:
    return b"\r\n".join([b"HTTP/1.1 200 OK", b"content-length: %d" % len(BODY), *lines, b"", b""])


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


has_proc = pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="no list of descriptors")  # noqa: PTH112


@sync_and_async
def test_a_cookie_for_one_key_is_not_sent_with_another(mode: str) -> None:
    requests: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        requests.append(request_of(connection))
        connection.sendall(head(b"set-cookie: session=A; Path=/", b"set-cookie: route=B", b"connection: close") + BODY)

    async def twice(url: str) -> None:
        for key in ("first-key", "second-key"):
            await Model("openai-compatible:m", url, key).acomplete("Hi.")

    with serving(serve) as url:
        if mode == "async":
            asyncio.run(twice(url))
        else:
            for key in ("first-key", "second-key"):
                read("sync", Model("openai-compatible:m", url, key))
        assert len(requests) == 2
        assert not any(b"cookie" in request.lower() for request in requests)
        with_own = Model("openai-compatible:m", url, "third-key", headers={"Cookie": "mine=1"})
        read(mode, with_own)
        assert b"mine=1" in requests[-1]
        assert b"session" not in requests[-1]


# Event loops.


def close_loop(loop: asyncio.AbstractEventLoop) -> None:
    loop.close()


def shut_down(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.close()


@has_proc
@pytest.mark.parametrize("end", [close_loop, shut_down])
def test_a_loop_that_is_closed_leaves_no_socket(end: Callable[[asyncio.AbstractEventLoop], None]) -> None:
    others = {*async_pool._owners}
    with Loopback(always("Hi.")) as server:
        model = model_at(server)

        def ask() -> None:
            loop = asyncio.new_event_loop()
            assert loop.run_until_complete(model.acomplete("Hi.")).text == "Hi."
            end(loop)

        ask()
        before = descriptors()
        for _ in range(30):
            ask()
        until(lambda: descriptors() <= before + 2)  # the server closes its side in its own time
        gc.collect()  # nothing warns
    assert {*async_pool._owners} <= others


@has_proc
def test_leaving_async_with_has_closed_the_socket() -> None:
    def serve(connection: socket.socket) -> None:
        request_of(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(BODY), BODY))
        is_left.wait(PATIENCE)
        connection.settimeout(PATIENCE)
        ends.append(connection.recv(1))

    async def leave(model: Model) -> None:
        own = descriptors()
        async with model.astream("Hi.") as stream:
            async for _ in stream:
                break
            during = descriptors()
        assert descriptors() < during, own
        is_left.set()
        while not ends:  # the loop does not run: the socket is closed already
            is_seen.wait(0.01)

    is_left, is_seen, ends = threading.Event(), threading.Event(), list[Any]()
    with serving(serve) as url:
        model = Model("openai:gpt", url, KEY, wire="openai-chat")
        asyncio.run(leave(model))
    assert ends == [b""]


# Closing.


def keeps_open(closed: list[int]) -> Callable[[socket.socket], None]:
    """A server that keeps connections open, and notes when the client closes one."""

    def serve(connection: socket.socket) -> None:
        connection.settimeout(PATIENCE)
        while data := connection.recv(65536):
            if data.endswith(b"}"):  # the end of the body
                connection.sendall(head() + BODY)
        closed.append(1)

    return serve


@pytest.mark.parametrize("way", ["penstock", "model"])
def test_a_pool_can_be_closed(way: str) -> None:
    closed: list[int] = []
    with serving(keeps_open(closed)) as url:
        model = Model("openai-compatible:m", url, KEY)
        other = Model("openai-compatible:other", url, KEY)
        for _ in range(2):
            closed.clear()
            assert model.complete("Hi.").text == other.complete("Hi.").text == "Hi."
            penstock.close() if way == "penstock" else model.close()
            until(lambda: len(closed) == 1)


@has_proc
@pytest.mark.parametrize("way", ["penstock", "model"])
def test_a_pool_can_be_closed_in_async_code(way: str) -> None:
    closed: list[int] = []

    async def ask_and_close(model: Model) -> None:
        before = descriptors()
        for _ in range(2):
            assert (await model.acomplete("Hi.")).text == "Hi."
            count = descriptors()
            await (penstock.aclose() if way == "penstock" else model.aclose())
            assert descriptors() < count, before

    with serving(keeps_open(closed)) as url:
        asyncio.run(ask_and_close(Model("openai-compatible:m", url, KEY)))
        until(lambda: len(closed) == 2)


def test_closing_reaches_the_pools_of_other_event_loops() -> None:
    closed: list[int] = []
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    with serving(keeps_open(closed)) as url:
        model = Model("openai-compatible:m", url, KEY)
        asyncio.run_coroutine_threadsafe(model.acomplete("Hi."), loop).result(PATIENCE)
        penstock.close()
        until(lambda: len(closed) == 1)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.run_until_complete(model.acomplete("Hi."))
        penstock.close()  # the loop does not run
        until(lambda: len(closed) == 2)
        loop.close()


@sync_and_async
def test_closing_does_not_break_a_response_that_is_being_read(mode: str) -> None:
    ends: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        request_of(connection)
        half = len(BODY) // 2
        connection.sendall(head() + BODY[:half])
        is_closed.wait(PATIENCE)
        connection.sendall(BODY[half:])
        connection.settimeout(PATIENCE)
        ends.append(connection.recv(1))

    def in_the_middle(model: Model) -> None:
        model.close()
        penstock.close()
        is_closed.set()

    def read_all(model: Model) -> str:
        with model.stream("Hi.") as stream:
            in_the_middle(model)
            return "".join(chunk.text for chunk in stream if isinstance(chunk, Text))

    async def aread_all(model: Model) -> str:
        async with model.astream("Hi.") as stream:
            in_the_middle(model)
            text = "".join([chunk.text async for chunk in stream if isinstance(chunk, Text)])
        await asyncio.to_thread(until, lambda: ends)
        return text

    is_closed = threading.Event()
    with serving(serve) as url:
        model = Model("openai-compatible:m", url, KEY)
        assert (read_all(model) if mode == "sync" else asyncio.run(aread_all(model))) == "Hi."
        until(lambda: ends)  # the connection of a closed pool is not kept
    assert ends == [b""]


def test_the_least_recently_used_pool_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.transport.http.pools.MAX_POOLS", 2)
    closed: dict[str, list[int]] = {"first": [], "second": [], "third": []}
    with ExitStack() as stack:
        urls = {name: stack.enter_context(serving(keeps_open(ends))) for name, ends in closed.items()}
        for name in ("first", "second", "first", "third"):
            Model("openai-compatible:m", urls[name], KEY).complete("Hi.")
        until(lambda: closed["second"])
        assert not closed["first"]
        assert not closed["third"]
        penstock.close()


# Proxies.


def socks_server(connection: socket.socket) -> None:
    """A SOCKS proxy that plays the server behind it."""
    assert connection.recv(16)[0] == 5
    connection.sendall(b"\x05\x00")
    request = connection.recv(300)
    assert b"far.invalid" in request, "the proxy looks up the address"
    connection.sendall(b"\x05\x00\x00\x01" + bytes(6))
    request_of(connection)
    connection.sendall(head(b"connection: close") + BODY)


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Sets the proxy of the environment."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    return lambda url: monkeypatch.setenv("ALL_PROXY", url)


FAR = Model("openai-compatible:m", "http://far.invalid/v1", KEY, retries=Retries(attempts=0))


@sync_and_async
@pytest.mark.parametrize("scheme", ["socks5", "socks5h", "socks", "SOCKS5"])
def test_a_socks_proxy_is_used(mode: str, scheme: str, proxy: Callable[[str], None]) -> None:
    with serving(socks_server) as url:
        proxy(f"{scheme}://{urlsplit(url).netloc}")
        assert read(mode, FAR)[1].text == "Hi."
        FAR.close()


@sync_and_async
@pytest.mark.parametrize("answer", [b"", b"\x05\xff", b"\x05\x00"], ids=["nothing", "refused", "unreachable"])
def test_a_socks_proxy_that_fails_is_a_failed_connection(
    mode: str, answer: bytes, proxy: Callable[[str], None]
) -> None:
    are_gone: list[bool] = []

    def serve(connection: socket.socket) -> None:
        connection.settimeout(PATIENCE)
        connection.recv(16)
        connection.sendall(answer)
        if answer == b"\x05\x00" and connection.recv(300):  # a client that wanted to log in sends nothing more
            connection.sendall(b"\x05\x05\x00\x01" + bytes(6))
        are_gone.append(not answer or is_gone(connection))

    with serving(serve) as url:
        proxy(f"socks5://ada:{KEY}@{urlsplit(url).netloc}")
        error = failure(mode, ConnectionFailed, FAR)
        until(lambda: are_gone)
    assert are_gone == [True], error  # whose traceback still refers to the socket
    proxy(f"socks5://{urlsplit(url).netloc}")  # nobody listens there any more
    failure(mode, ConnectionFailed, FAR)


@sync_and_async
@pytest.mark.parametrize("url", [f"http://ada:{KEY}@[::1", "http://far.invalid:99999", "http://", "socks5://"])
def test_a_proxy_that_is_not_a_url_is_a_clear_error(mode: str, url: str, proxy: Callable[[str], None]) -> None:
    proxy(url)
    assert "of the environment is not a URL" in str(failure(mode, UsageError, FAR))


@sync_and_async
def test_a_socks_proxy_without_its_packages_is_a_clear_error(
    mode: str, proxy: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.transport.http.proxies.find_spec", lambda name: None)
    proxy(f"socks5://ada:{KEY}@127.0.0.1:9")
    with pytest.raises(UsageError, match=r"pip install 'penstock-llm\[socks\]'") as raised:
        read(mode, FAR)
    assert KEY not in str(raised.value)
    proxy("socks4://127.0.0.1:9")
    with pytest.raises(UsageError, match=r"socks4://127\.0\.0\.1:9 of the environment is not supported; use http"):
        read(mode, FAR)

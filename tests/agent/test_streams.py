"""Streams: reading, closing, cancelling, and the HTTP clients that they use."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any
from weakref import ref

import aiohttp
import httpx
import httpx2
import pytest

import penstock
from penstock import (
    AlreadyReadError,
    AsyncStream,
    AuthenticationError,
    ConnectionFailed,
    Error,
    Finish,
    Model,
    Retries,
    Stream,
    Text,
    TimedOut,
    Timeouts,
)
from penstock.testing import (
    Hang,
    Loopback,
    ReceivedRequest,
    Reply,
    Scripted,
    Status,
    Step,
    always,
    call,
    drop,
    frames,
    say,
)
from penstock.testing.server import Player
from penstock.transport.http import async_pool
from penstock.transport.threads.watchdog import watchdog
from tests.asking import (
    FOREVER,
    KEY,
    LONG,
    ONCE,
    PATIENCE,
    STREAMING,
    aread,
    failure,
    in_thread,
    is_gone,
    model_at,
    read,
    request_of,
    serving,
    sync_and_async,
    within,
)

# Reading and closing.


@pytest.fixture
def gone(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when the loopback server sees that the client has closed the connection."""
    seen, send = threading.Event(), Player._send

    async def watched(player: Player, *arguments: Any) -> Any:
        try:
            return await send(player, *arguments)
        except (asyncio.CancelledError, ConnectionError):
            seen.set()
            raise

    monkeypatch.setattr(Player, "_send", watched)
    return seen


SLOW = Reply(say("Let me look, word after word."), FOREVER, say("Never."))


def test_leaving_with_closes_the_socket_at_once(gone: threading.Event) -> None:
    with Loopback(always(SLOW)) as server:
        with model_at(server).stream("Hi.") as stream:
            for _ in stream:
                break
        assert gone.wait(PATIENCE)
    assert (stream.text, stream.finish_reason, stream.tool_calls, stream.usage) == ("Let", "cut", [], None)
    assert stream.turn.error is None


def test_leaving_async_with_closes_the_socket_at_once(gone: threading.Event) -> None:
    async def leave(model: Model) -> Any:
        async with model.astream("Hi.") as stream:
            async for _ in stream:
                break
        assert await asyncio.to_thread(gone.wait, PATIENCE)
        return stream

    with Loopback(always(SLOW)) as server:
        stream = asyncio.run(leave(model_at(server)))
    assert (stream.text, stream.finish_reason) == ("Let", "cut")


def batches(model: Model) -> list[list[Any]]:
    with model.stream("Hi.") as stream:
        read = list(stream.batches())
        assert (stream.text, stream.finish_reason) == ("", "cut")
        with pytest.raises(AlreadyReadError):
            stream.batches()
    return read


async def abatches(model: Model) -> list[list[Any]]:
    async with model.astream("Hi.") as stream:
        read = [chunks async for chunks in stream.batches()]
        assert (stream.text, stream.finish_reason) == ("", "cut")
        with pytest.raises(AlreadyReadError):
            stream.batches()
    return read


@sync_and_async
def test_batches_are_the_chunks_of_each_read_without_the_turn(mode: str) -> None:
    reply = Reply(say("Word after word."), call("weather", {"city": "Rome"}))
    model = Model("openai:gpt-5", wire="openai-chat", via=Scripted(always(reply)))
    read = batches(model) if mode == "sync" else asyncio.run(abatches(model))
    assert all(read)
    assert [chunk for chunks in read for chunk in chunks] == list(model.stream("Hi."))


def test_leaving_the_batches_closes_the_socket(gone: threading.Event) -> None:
    with Loopback(always(SLOW)) as server:
        for _ in model_at(server).stream("Hi.").batches():
            break
        gc.collect()
        assert gone.wait(PATIENCE)


def fail_in_loop(model: Model) -> None:
    with model.stream("Hi.") as stream:
        for _ in stream:
            raise ZeroDivisionError


def test_an_exception_in_the_loop_closes_the_socket_and_propagates(gone: threading.Event) -> None:
    with Loopback(always(SLOW)) as server:
        with pytest.raises(ZeroDivisionError):
            fail_in_loop(model_at(server))
        assert gone.wait(PATIENCE)


def test_leaving_a_loop_without_with_closes_the_socket_on_garbage_collection(gone: threading.Event) -> None:
    with Loopback(always(SLOW)) as server:
        for _ in model_at(server).stream("Hi."):
            break
        gc.collect()
        assert gone.wait(PATIENCE)


def test_leaving_an_async_loop_without_with_closes_the_socket(gone: threading.Event) -> None:
    async def leave(model: Model) -> None:
        async for _ in model.astream("Hi."):
            break
        gc.collect()
        assert await asyncio.to_thread(gone.wait, PATIENCE)

    with Loopback(always(SLOW)) as server:
        asyncio.run(leave(model_at(server)))


@sync_and_async
def test_nothing_is_sent_before_the_stream_is_entered_or_read(mode: str) -> None:
    async def make(model: Model) -> Any:
        return model.astream("Hi.")

    with Loopback(always("Hi.")) as server:
        model = model_at(server)
        stream = model.stream("Hi.") if mode == "sync" else asyncio.run(make(model))
        assert (stream.text, stream.finish_reason, server.requests) == ("", None, [])


def test_an_async_stream_can_be_created_without_an_event_loop() -> None:
    async def text(stream: Any) -> str:
        async with stream:
            async for _ in stream:
                pass
        return str(stream.text)

    with Loopback("Sunny.") as server:
        assert asyncio.run(text(model_at(server).astream("Hi."))) == "Sunny."


def test_entering_waits_for_the_first_event_or_raises() -> None:
    with Loopback([Status(401), "Hi."]) as server:
        model = model_at(server)
        with pytest.raises(AuthenticationError), model.stream("Hi."):
            raise AssertionError("entered")
        with model.stream("Hi.") as stream:
            assert len(server.requests) == 2
            assert list(stream)


@sync_and_async
def test_a_second_pass_raises(mode: str) -> None:
    async def twice(model: Model) -> None:
        async with model.astream("Hi.") as stream:
            assert [chunk async for chunk in stream]
            with pytest.raises(AlreadyReadError, match="can be read only once"):
                async for _ in stream:
                    pass
        with pytest.raises(AlreadyReadError):
            aiter(stream)

    model = Model("openai:gpt", via=Scripted(always("Hi.")))
    if mode == "async":
        asyncio.run(twice(model))
        return
    with model.stream("Hi.") as stream:
        assert list(stream)
        with pytest.raises(AlreadyReadError, match="can be read only once"):
            list(stream)
    with pytest.raises(AlreadyReadError):
        iter(stream)
    assert stream.text == "Hi."


def test_next_returns_one_chunk_after_another() -> None:
    with Loopback(always("Let me look.")) as server:
        model = model_at(server)
        with model.stream("Hi.") as stream:
            first = next(stream)
            assert isinstance(first, Text)
            assert stream.text == first.text
            rest = []
            while (chunk := next(stream, None)) is not None:
                rest.append(chunk)
        assert stream.text == "Let me look."
        assert isinstance(rest[-1], Finish)
        with pytest.raises(StopIteration):
            next(stream)
        with pytest.raises(AlreadyReadError):
            list(stream)

    async def take() -> Any:
        async with Model("openai:gpt", via=Scripted("Let me look.")).astream("Hi.") as stream:
            first = await anext(stream)
            assert stream.text == first.text  # type: ignore[union-attr]
            while await anext(stream, None) is not None:
                pass
            with pytest.raises(StopAsyncIteration):
                await anext(stream)
            return stream

    assert asyncio.run(take()).text == "Let me look."


def test_properties_grow_during_the_loop_and_stay_after_it() -> None:
    reply = Reply(say("Let me look."), call("weather", {"city": "Rome"}))
    with Model("anthropic:claude", via=Scripted(reply)).stream("Hi.") as stream:
        seen = [stream.text for _ in stream]
    assert seen[0] in ("", "Let")
    assert seen == sorted(seen, key=len)
    assert (stream.text, stream.finish_reason, stream.tool_calls[0].name) == ("Let me look.", "tool_calls", "weather")
    assert stream.usage is not None
    assert (stream.reasoning, stream.error, stream.turn.type) == ("", None, "tool_calls")


def live_reasons(stream: Stream) -> list[tuple[Any, Any]]:
    with stream:
        return [(stream.finish_reason, stream.turn.finish_reason) for _ in stream]


async def live_async_reasons(stream: AsyncStream) -> list[tuple[Any, Any]]:
    async with stream:
        return [(stream.finish_reason, stream.turn.finish_reason) async for _ in stream]


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("wire", ["openai:gpt-5", "anthropic:claude", "gemini:gemini-2.5-pro"])
def test_a_live_stream_has_no_finish_reason(mode: str, wire: str) -> None:
    model = Model(wire, via=Scripted(Reply(say("Let me look."), call("weather", {"city": "Rome"}))))
    stream = model.stream("Hi.") if mode == "sync" else model.astream("Hi.")
    assert stream.finish_reason is None
    reasons = live_reasons(stream) if isinstance(stream, Stream) else asyncio.run(live_async_reasons(stream))
    assert set(reasons[:-1]) == {(None, None)}
    assert reasons[-1] == ("tool_calls", "tool_calls"), "the last event is the Finish"


def test_a_stream_that_is_closed_before_its_end_is_cut() -> None:
    with Model("anthropic:claude", via=Scripted(Reply(say("Let me look.")))).stream("Hi.") as stream:
        next(stream)
        assert stream.finish_reason is None
    assert stream.finish_reason == "cut"
    assert stream.turn.finish_reason == "cut"


# Cancelling.


def cancelled(model: Model, when: Callable[[Stream], None]) -> tuple[list[Any], Stream]:
    """The chunks of a loop over a stream that is cancelled from another thread."""
    stream = model.stream("Hi.")

    def cancel() -> None:
        when(stream)
        stream.cancel()

    thread = in_thread(cancel)
    with stream:
        chunks = list(stream)
    thread.join(PATIENCE)
    return chunks, stream


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@pytest.mark.parametrize("retries", [Retries(), Retries(after_start=True)])
def test_cancel_from_another_thread_ends_a_loop(retries: Retries, gone: threading.Event) -> None:
    with Loopback(always(SLOW)) as server, within(LONG):
        model = model_at(server, retries=retries)
        chunks, stream = cancelled(model, lambda stream: until(lambda: stream.text.endswith("word.")))
        assert gone.wait(PATIENCE)
    assert stream.text == "Let me look, word after word."
    assert stream.error == Error("the stream was cancelled", "cancelled", retryable=False)
    assert isinstance(chunks[-1], Finish)
    assert (stream.finish_reason, len(server.requests)) == ("cut", 1)


def a_while_after(server: Loopback, _: Stream) -> None:
    until(lambda: server.requests)
    time.sleep(0.1)  # until it waits again


def test_cancel_ends_the_wait_for_the_first_event_and_for_the_next_attempt() -> None:
    for script, heads in ((Reply(FOREVER, say("Never.")), 1), (Status(429, retry_after=50), 1)):
        with Loopback(always(script)) as server, within(LONG):
            model = model_at(server)
            with pytest.raises(ConnectionFailed, match="the stream was cancelled"):
                cancelled(model, partial(a_while_after, server))
        assert len(server.requests) == heads


def test_a_stream_that_is_cancelled_before_it_begins_sends_nothing() -> None:
    with Loopback(always("Hi.")) as server:
        stream = model_at(server).stream("Hi.")
        stream.cancel()
        with pytest.raises(ConnectionFailed, match="the stream was cancelled"):
            list(stream)
    assert server.requests == []


def test_a_scripted_response_can_be_cancelled() -> None:
    with within(LONG):
        model = Model("openai:gpt", via=Scripted(always(SLOW)))
        _, stream = cancelled(model, lambda stream: until(lambda: stream.text.endswith("word.")))
    assert stream.error == Error("the stream was cancelled", "cancelled", retryable=False)


def leftovers() -> list[Any]:
    """The tasks and timers of penstock that an event loop still has."""
    loop: Any = asyncio.get_running_loop()
    tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    timers = [timer for timer in loop._scheduled if not timer.cancelled() and "AsyncConnection" in repr(timer)]
    return [*tasks, *timers]


@pytest.mark.parametrize("kind", ["aiohttp", "httpx", "httpx2"])
@pytest.mark.parametrize("script", [SLOW, Reply(FOREVER), Hang()], ids=["middle", "first event", "head"])
def test_a_cancelled_task_closes_its_connection_and_leaves_nothing_behind(kind: str, script: Step) -> None:
    async def read_on(model: Model) -> None:
        async with model.astream("Hi.") as stream:
            async for _ in stream:
                pass

    def serve(connection: socket.socket) -> None:
        request_of(connection)
        received.set()
        if not isinstance(script, Hang):
            connection.sendall(STREAMING)
        if script is SLOW:
            connection.sendall(frames("openai-chat", Reply("Let me look."))[1])
        if is_gone(connection):
            closed.set()

    async def cancel(url: str) -> None:
        async with ASYNC[kind]() as client:
            model = Model("openai:gpt", url, KEY, wire="openai-chat", client=client)
            task = asyncio.create_task(read_on(model))
            assert await asyncio.to_thread(received.wait, PATIENCE)
            await asyncio.sleep(0.05)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert await asyncio.to_thread(closed.wait, PATIENCE)
            await asyncio.sleep(0)
            assert leftovers() == []

    received, closed = threading.Event(), threading.Event()
    with serving(serve) as url, within(LONG):
        asyncio.run(cancel(url))
    gc.collect()


@sync_and_async
def test_a_stream_that_was_read_leaves_nothing_behind(mode: str) -> None:
    async def check(model: Model) -> None:
        for _ in range(3):
            await aread(model)
            await asyncio.sleep(0)
            assert leftovers() == []

    with Loopback(always("Hi.")) as server:
        if mode == "async":
            asyncio.run(check(model_at(server)))
        else:
            before = watchdog.count  # other tests of this process may have left theirs to the collector
            for _ in range(3):
                read("sync", model_at(server))
            assert watchdog.count <= before


# Connections, event loops and clients.


def test_connections_are_reused() -> None:
    connections: list[int] = []

    def serve(connection: socket.socket) -> None:
        connections.append(1)
        body = b"".join(frames("openai-chat", Reply("Hi.")))
        for _ in range(3):
            request_of(connection)
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))

    async def thrice(model: Model) -> None:
        for _ in range(3):
            assert (await aread(model))[1].text == "Hi."

    with serving(serve) as url:
        model = Model("openai:gpt", url, KEY, wire="openai-chat")
        for _ in range(3):
            assert model.complete("Hi.").text == "Hi."
        assert len(connections) == 1
        asyncio.run(thrice(model))
        assert len(connections) == 2


def test_many_streams_share_an_event_loop() -> None:
    async def ask_all(model: Model) -> list[str]:
        answers = await asyncio.gather(*(aread(model, f"number {at}") for at in range(150)))
        return [stream.text for _, stream in answers]

    def echo(request: ReceivedRequest) -> str:
        return f"You said {request.prompt}"

    with Loopback(echo) as server:
        texts = asyncio.run(ask_all(model_at(server)))
    assert texts == [f"You said number {at}" for at in range(150)]


def test_each_event_loop_has_its_own_session() -> None:
    async def ask(model: Model) -> ref[asyncio.AbstractEventLoop]:
        loop = asyncio.get_running_loop()
        assert loop not in async_pool._owners
        assert (await aread(model))[1].text == "Hi."
        assert loop in async_pool._owners
        return ref(loop)

    with Loopback(always("Hi.")) as server:
        model = model_at(server)
        for _ in range(3):
            loop = asyncio.run(ask(model))
            gc.collect()
            assert loop() is None, "a loop that is over is not held"


SYNC: dict[str, Any] = {"httpx2": httpx2.Client, "httpx": httpx.Client}
ASYNC: dict[str, Any] = {"httpx2": httpx2.AsyncClient, "httpx": httpx.AsyncClient, "aiohttp": aiohttp.ClientSession}
"""Clients that a caller may pass."""


@pytest.mark.parametrize("kind", sorted(SYNC))
def test_the_caller_s_client_is_used_and_left_open(kind: str) -> None:
    replies: list[Step | str] = ["Hi.", Status(401), SLOW, Reply(say("Let"), drop()), "Hi."]
    with Loopback(replies) as server, SYNC[kind](headers={"x-mine": kind}, timeout=0.2) as client:
        model = model_at(server, client=client, retries=ONCE, timeouts=Timeouts(idle=0.3))
        assert read("sync", model)[1].text == "Hi."
        failure("sync", AuthenticationError, model)
        assert read("sync", model)[1].error.message == "no data received for 0.3 seconds (timeouts.idle)"
        assert read("sync", model)[1].error.code == "ConnectionFailed"
        assert read("sync", model)[1].text == "Hi."
        assert not client.is_closed
    assert [request.headers["x-mine"] for request in server.requests] == [kind] * len(replies)


@pytest.mark.parametrize("kind", sorted(ASYNC))
def test_the_caller_s_async_client_is_used_and_left_open(kind: str) -> None:
    replies: list[Step | str] = ["Hi.", Status(401), SLOW, Reply(say("Let"), drop()), Hang(), "Hi."]

    async def ask(server: Loopback) -> None:
        more: Any = {"raise_for_status": True} if kind == "aiohttp" else {"timeout": 0.2}
        async with ASYNC[kind](headers={"x-mine": kind}, **more) as client:
            times = Timeouts(idle=0.3, first_event=0.5)
            model = model_at(server, client=client, retries=ONCE, timeouts=times)
            assert (await aread(model))[1].text == "Hi."
            with pytest.raises(AuthenticationError):
                await aread(model)
            assert (await aread(model))[1].turn.error.message == "no data received for 0.3 seconds (timeouts.idle)"  # type: ignore[union-attr]
            assert (await aread(model))[1].turn.error.code == "ConnectionFailed"  # type: ignore[union-attr]
            with pytest.raises(TimedOut, match=r"timeouts\.first_event"):
                await aread(model)
            assert (await aread(model))[1].text == "Hi."
            assert not (client.closed if kind == "aiohttp" else client.is_closed)
            assert leftovers() == []

    with Loopback(replies) as server, within(LONG):
        asyncio.run(ask(server))
    assert [request.headers["x-mine"] for request in server.requests] == [kind] * len(replies)


@pytest.mark.parametrize("kind", sorted(SYNC))
def test_a_client_with_a_mock_transport_works(kind: str) -> None:
    body = b"".join(frames("openai-chat", Reply("Sunny.")))
    module: Any = {"httpx": httpx, "httpx2": httpx2}[kind]
    transport = module.MockTransport(lambda request: module.Response(200, content=body))
    with module.Client(transport=transport) as client:
        model = Model("openai:gpt", "http://localhost/v1", KEY, wire="openai-chat", client=client)
        assert read("sync", model)[1].text == "Sunny."


def test_a_client_of_the_other_mode_is_an_error() -> None:
    async def swapped() -> None:
        for kind in ("httpx", "httpx2", "aiohttp"):
            async with ASYNC[kind]() as client:
                with pytest.raises(penstock.UsageError, match=r"stream\(\) needs a sync client of httpx2 or httpx"):
                    Model("openai:gpt", "http://localhost", KEY, client=client).stream("Hi.")
        for module in (httpx, httpx2):
            with (
                module.Client() as client,
                pytest.raises(penstock.UsageError, match=r"astream\(\) needs an async client"),
            ):
                Model("openai:gpt", "http://localhost", KEY, client=client).astream("Hi.")

    asyncio.run(swapped())

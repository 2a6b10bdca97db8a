"""Runs an ASGI app with uvicorn: limits for request heads and connections, and a graceful shutdown."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from importlib import import_module
from types import FrameType
from typing import Any

from penstock.asgi.access import Access
from penstock.asgi.app import ASGIApp
from penstock.asgi.limits import ServerLimits
from penstock.asgi.shares import Connection, Connections
from penstock.asgi.turns import switch_often
from penstock.errors import UsageError

GRACE_SECONDS = 5.0
"""How many seconds responses may take to end when the server stops, after their streams were asked to end."""

COLLECTED = 10_000
"""How many new objects there are before the collector looks for cycles among them. Requests make few cycles, and the
usual 700 objects are there several times in each."""

PING_SECONDS = 20.0
"""How often the server asks whether a WebSocket is still open."""

FRAMING = 16
"""How many bytes a client may send for the framing of a byte of a body."""

FILES_PER_CONNECTION = 2
"""The connection of a client, and one to an upstream or a database."""


def allow_files(count: int) -> None:
    """Raise the limit of open files of this process, as far as the system allows: 1,024 are usual."""
    with suppress(ImportError, ValueError, OSError):
        resource = import_module("resource")  # which Windows does not have, nor such a limit
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = count if hard == resource.RLIM_INFINITY else min(count, hard)
        if soft != resource.RLIM_INFINITY and soft < limit:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))


def listen(host: str, port: int) -> socket.socket:
    """A listening socket on this address; raises a `UsageError` with the reason if that fails."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
            listener.listen(1024)  # clients that come before the app is ready wait
        except BaseException:
            listener.close()
            raise
    except (OSError, UnicodeError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UsageError(f"cannot listen on {host}, port {port}: {why}; use another --port") from None
    return listener


def address_of(listener: socket.socket) -> str:
    """The address of a socket as a URL."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run_server(
    app: Any, listener: socket.socket, limits: ServerLimits, signals: Iterable[int] = (), *,
    access: Access | None = None, on_stop: Callable[[], None] = lambda: None, drain_seconds: float = 0.0,
    is_logging: bool = False,
) -> None:  # fmt: skip
    """Serve an app until the process gets SIGINT, SIGTERM or one of these signals.

    `access` tells whose connections are limited. `on_stop` ends the streams that would never end by themselves. If a
    load balancer probes the app, it still answers for `drain_seconds` after it has said that it is about to stop; not
    after Ctrl-C, nor after a second signal. A process that `is_logging` prints the records of the web server itself.
    """
    allow_files(limits.connections * FILES_PER_CONNECTION)
    server = _new_server(app, limits, access, signals, on_stop, drain_seconds, is_logging)
    switch_often()
    gc.freeze()  # what is loaded stays: the collector need not look at it again and again
    gc.set_threshold(COLLECTED)
    with suppress(KeyboardInterrupt):  # which uvicorn raises again when it has stopped
        server.run(sockets=[listener])


@contextmanager
def serving_beside(app: ASGIApp, listener: socket.socket, *, is_logging: bool = False) -> Generator[None]:
    """Serve an app in a thread with a loop of its own, beside the work of this process."""
    server = _new_server(app, app.limits, app.access, is_logging=is_logging)
    thread = threading.Thread(target=server.run, args=([listener],), name="penstock-http", daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.should_exit = True
        thread.join(GRACE_SECONDS + 1)


def _new_server(
    app: Any, limits: ServerLimits, access: Access | None, signals: Iterable[int] = (),
    on_stop: Callable[[], None] = lambda: None, drain_seconds: float = 0.0, is_logging: bool = False,
) -> Any:  # fmt: skip
    uvicorn = _web_server()
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="on", server_header=False, date_header=False,
        timeout_graceful_shutdown=int(GRACE_SECONDS), proxy_headers=False,
        ws_max_size=limits.body, ws_per_message_deflate=False, ws_ping_interval=PING_SECONDS,
        log_config=None if is_logging else uvicorn.config.LOGGING_CONFIG,
    )  # fmt: skip
    config.load()
    timed = _timed(config.http_protocol_class, limits.head_seconds)
    connections = _connections(limits, access or Access(auth=lambda scope: None))
    config.http_protocol_class = _counted(_measured(_without_trailers(timed), limits.head), connections)

    class Server(uvicorn.Server):  # type: ignore[misc,name-defined]
        async def serve(self, sockets: list[socket.socket] | None = None) -> None:
            self.loop = asyncio.get_running_loop()
            closing = ClosingConnections(limits.write_seconds).watch(self.server_state.connections)
            watcher = asyncio.create_task(closing)
            try:
                await super().serve(sockets)
            finally:
                watcher.cancel()

        @contextmanager
        def capture_signals(self) -> Generator[None]:
            with super().capture_signals(), _handled(signals, self.handle_exit):  # it captures SIGINT and SIGTERM
                yield

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            if sig != signal.SIGINT and _may_drain(app) and drain_seconds > 0:
                app.readiness.is_draining = True  # at once: the next signal does not wait
                self.loop.call_soon_threadsafe(self.drain, sig)
                return
            super().handle_exit(sig, frame)
            self.loop.call_soon_threadsafe(on_stop)

        def drain(self, sig: int) -> None:
            app.drain()
            self.loop.call_later(drain_seconds, self.handle_exit, sig, None)

    return Server(config)


def _connections(limits: ServerLimits, access: Access) -> Connections:
    return Connections(limits, is_trusted=access.is_trusted, is_proxy=access.is_proxy)


def _web_server() -> Any:
    try:
        return import_module("uvicorn")
    except ImportError:
        raise UsageError("this needs a web server: pip install 'penstock-llm[serve]'") from None


def _may_drain(app: Any) -> bool:
    """Whether somebody would notice that the app is about to stop, and does not know it yet."""
    return isinstance(app, ASGIApp) and app.readiness.is_watched and not app.readiness.is_draining


@contextmanager
def _handled(signals: Iterable[int], handler: Callable[[int, FrameType | None], None]) -> Generator[None]:
    """Handles these signals with a function, and restores the handlers from before at the end."""
    before = {number: signal.signal(number, handler) for number in signals}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


def _timed(protocol: Any, seconds: float) -> Any:
    """A uvicorn protocol that closes a connection if the head of a request takes longer than this."""

    class TimedProtocol(protocol):  # type: ignore[misc]
        head_timer: asyncio.TimerHandle | None = None
        is_upgraded = False  # then the connection is a WebSocket, and not closed here

        def handle_websocket_upgrade(self) -> None:
            self.is_upgraded = True
            super().handle_websocket_upgrade()

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self.start_head_timer()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            is_answering = self.cycle is not None and not self.cycle.response_complete
            if is_answering and self.head_timer is not None:
                self.head_timer.cancel()
                self.head_timer = None
            elif not is_answering and self.head_timer is None:
                self.start_head_timer()

        def start_head_timer(self) -> None:
            self.head_timer = asyncio.get_running_loop().call_later(seconds, self.head_is_late)

        def head_is_late(self) -> None:
            self.head_timer = None
            if not self.is_upgraded and (self.cycle is None or self.cycle.response_complete):
                self.transport.close()

        def connection_lost(self, exc: Exception | None) -> None:
            if self.head_timer is not None:
                self.head_timer.cancel()
            super().connection_lost(exc)

    return TimedProtocol


def _without_trailers(protocol: Any) -> Any:
    """A uvicorn protocol that ignores trailers: the app would take them for headers of a trusted proxy."""

    class HeadersOnlyProtocol(protocol):  # type: ignore[misc]
        is_head_over = False

        def on_message_begin(self) -> None:
            self.is_head_over = False
            super().on_message_begin()

        def on_header(self, name: bytes, value: bytes) -> None:
            if not self.is_head_over:
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self.is_head_over = True
            super().on_headers_complete()

    return HeadersOnlyProtocol


def _measured(protocol: Any, most: int) -> Any:
    """A uvicorn protocol that closes a connection if the head of a request has more bytes than this.

    The parser keeps heads and trailers in memory, without a limit. Every byte of a request counts except its body.
    Reads shared with another request are not counted; chunked bodies get an allowance per byte. The trailers after such
    a body may have as many bytes as a head, however long the body was.
    """

    class MeasuredProtocol(protocol):  # type: ignore[misc]
        messages = 0  # the requests that have begun
        is_in_message = False
        is_chunk_empty = False  # whether the open chunk has no data yet
        head_size = body_size = trailers_size = 0

        def on_message_begin(self) -> None:
            self.messages, self.is_in_message, self.is_chunk_empty = self.messages + 1, True, False
            self.head_size = self.body_size = self.trailers_size = 0
            super().on_message_begin()

        def on_chunk_header(self) -> None:
            self.is_chunk_empty = True

        def on_body(self, body: bytes) -> None:
            self.is_chunk_empty = False
            self.body_size += len(body)
            super().on_body(body)

        def on_message_complete(self) -> None:
            self.is_in_message = False
            super().on_message_complete()

        def data_received(self, data: bytes) -> None:
            messages, body_size, was_chunk_empty = self.messages, self.body_size, self.is_chunk_empty
            super().data_received(data)
            if self.is_in_message and self.messages == messages:
                if was_chunk_empty and self.body_size == body_size:  # only the last chunk is followed by no body
                    self.trailers_size += len(data)
                else:
                    self.head_size += len(data) - (self.body_size - body_size)
                if self.trailers_size > most or self.head_size > most + FRAMING * self.body_size:
                    self.refuse_head()

        def refuse_head(self) -> None:
            if self.cycle is None or self.cycle.response_complete:
                self.transport.write(b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\n\r\n")
            self.transport.close()

    return MeasuredProtocol


REFUSED = {
    "client": b"HTTP/1.1 429 Too Many Requests\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
    "server": b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n",
}
"""What a connection gets that is one too many for its client, or for the server."""


def _counted(protocol: Any, connections: Connections) -> Any:
    """A uvicorn protocol that counts its connection, and gives it to the app, which learns whose it is."""

    class CountedProtocol(protocol):  # type: ignore[misc]
        counted: Connection | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            counted = Connection(str(self.client[0]) if self.client else "", transport.close)
            if (refusal := connections.admit(counted)) is None:
                self.counted = counted
            else:
                transport.write(REFUSED[refusal])
                transport.close()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self.scope |= {"penstock.connection": self.counted, "penstock.connections": connections}

        def on_headers_complete(self) -> None:
            if self.counted is not None:
                connections.work(self.counted)
            super().on_headers_complete()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            if self.counted is not None and (self.cycle is None or self.cycle.response_complete):
                connections.rest(self.counted)

        def handle_websocket_upgrade(self) -> None:
            library: Any = self.ws_protocol_class
            self.ws_protocol_class: Any = _counted_socket(library, connections, self.counted)
            self.counted = None
            super().handle_websocket_upgrade()

        def connection_lost(self, exc: Exception | None) -> None:
            if self.counted is not None:
                connections.close(self.counted)
            super().connection_lost(exc)

    return CountedProtocol


def _counted_socket(protocol: Any, connections: Connections, counted: Connection | None) -> Any:
    """A uvicorn protocol for the WebSocket that a counted connection has become."""

    class CountedSocket(protocol):  # type: ignore[misc]
        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if (scope := getattr(self, "scope", None)) is not None and "penstock.connection" not in scope:
                scope |= {"penstock.connection": counted, "penstock.connections": connections}

        def connection_lost(self, exc: Exception | None) -> None:
            if counted is not None:
                connections.close(counted)
            super().connection_lost(exc)

    return CountedSocket


# Ends closing connections whose clients do not read the rest.
#
# A closed transport first sends its buffer. If the client does not read it, the connection would stay open forever and
# count towards the limit of connections.


LONGEST_PAUSE = 1.0
"""The longest time between two checks, in seconds."""


class ClosingConnections:
    """The unsent bytes of closing connections, and since when their number is unchanged."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._left: dict[asyncio.WriteTransport, tuple[int, float]] = {}

    def end_stuck(self, transports: Iterable[asyncio.WriteTransport], now: float) -> None:
        """Abort connections whose clients have read nothing for too long."""
        before, self._left = self._left, {}
        for transport in transports:
            if not transport.is_closing():
                continue
            size = transport.get_write_buffer_size()
            last, since = before.get(transport, (size, now))
            if size < last:
                since = now
            self._left[transport] = size, since
            if now - since >= self._seconds:
                transport.abort()

    async def watch(self, protocols: Iterable[object]) -> None:
        """Look at the transports of these protocols again and again, until the task is cancelled."""
        while True:
            transports = [transport for each in protocols if (transport := getattr(each, "transport", None))]
            self.end_stuck(transports, time.monotonic())
            await asyncio.sleep(min(self._seconds / 4, LONGEST_PAUSE))

"""A hold on the socket of a request from its start, so that another thread can break it at any time.

An HTTP client exposes the socket only with the response. Earlier, it reports a new connection to the `trace` of the
request. It does not report a reused connection, so the `write` of each new connection is wrapped: it notes the request
that it writes for.

Not reached are the address lookup, the connecting itself, and the wait for a free connection in a client that limits
them. They end with the client's own timeout (`timeouts.connect`), and the socket is broken as soon as it exists. A
connection that the caller's client opened before is known from the first response over it. Requests that share a
connection (HTTP/2) break together.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from penstock.transport.threads.forks import close_in_children

_STOPPABLE = {"connect_tcp", "connect_unix_socket", "send_request_headers", "receive_response_headers"}
"""Steps before which raising is safe: there is no socket yet, or the client closes it."""


class SocketHold:
    """Holds the socket of one request."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stream: Any = None
        self._copy: socket.socket | None = None
        self._is_broken = False

    @contextmanager
    def sending(self) -> Generator[None]:
        """Assign what this thread writes in the meantime to this request."""
        previous, _current.hold = _current.hold, self
        try:
            yield
        finally:
            _current.hold = previous

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """The `trace` callback of the client; raises if the request was broken off."""
        match event.split(".")[1:]:
            case ["connect_tcp" | "connect_unix_socket", "complete"]:
                self.hold(info["return_value"])
                self._leave_if_broken()
            case ["start_tls", "started"]:
                self._leave_if_broken()
                self._make_copy()
            case ["start_tls", "complete"]:
                self._close_copy()
                self.hold(info["return_value"])
            case ["start_tls", "failed"]:
                self._close_copy()
            case ["setup_socks5_connection", "failed"]:
                self._close_stream()
            case [step, "started"] if step in _STOPPABLE:
                self._raise_if_broken()
            case ["response_closed", "started"]:
                self.release()

    def hold(self, stream: Any) -> None:
        """Hold a stream, and watch its writes, so that later requests on it are known."""
        with suppress(AttributeError):  # not a stream of httpcore
            if not isinstance(stream.write, _WatchedWrite):
                stream.write = _WatchedWrite(stream)
            if (sock := stream.get_extra_info("socket")) is not None:
                close_in_children(sock)
        self.take(stream)

    def take(self, stream: Any) -> None:
        """Hold a stream."""
        with self._lock:
            self._stream = stream
            self._shut_down_if_broken()

    def release(self) -> None:
        """Let go of the stream: another request may use it from here on."""
        with self._lock:
            self._stream = None

    def break_off(self) -> None:
        """Break the connection, now or as soon as it exists: a wait for it in another thread ends at once."""
        with self._lock:
            self._is_broken = True
            self._shut_down_if_broken()

    def _shut_down_if_broken(self) -> None:
        if not self._is_broken:
            return
        with suppress(OSError):  # already closed
            if self._copy is not None:  # only reading: TLS does not close a socket that is not connected
                self._copy.shutdown(socket.SHUT_RD)
            elif (sock := self._socket) is not None:
                socket.socket.shutdown(sock, socket.SHUT_RDWR)  # `SSLSocket.shutdown` would also drop the TLS state

    @property
    def _socket(self) -> socket.socket | None:
        sock: socket.socket | None = None if self._stream is None else self._stream.get_extra_info("socket")
        return sock

    def _leave_if_broken(self) -> None:
        """Close the stream and raise."""
        if self._is_broken:
            self._close_stream()
        self._raise_if_broken()

    def _close_stream(self) -> None:
        """Close the stream: a client that is connecting does not close it."""
        if self._stream is not None:
            self._stream.close()

    def _raise_if_broken(self) -> None:
        if self._is_broken:
            raise ConnectionAbortedError("the request was cancelled")

    def _make_copy(self) -> None:
        """Copy the socket, which TLS detaches until the handshake is done."""
        with self._lock, suppress(OSError):  # too many open files
            if (sock := self._socket) is not None:
                self._copy = socket.fromfd(sock.fileno(), sock.family, sock.type)

    def _close_copy(self) -> None:
        with self._lock:
            if self._copy is not None:
                self._copy.close()
                self._copy = None


class _WatchedWrite:
    """The `write` of a stream, which first assigns the stream to the request of this thread."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._write = stream.write

    def __call__(self, buffer: bytes, timeout: float | None = None) -> None:
        if _current.hold is not None:
            _current.hold.take(self._stream)
        self._write(buffer, timeout)


class _CurrentRequest(threading.local):
    """The request that a thread is sending."""

    hold: SocketHold | None = None


_current = _CurrentRequest()

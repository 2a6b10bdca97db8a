"""A hold on the socket of a request from its first moment on, so that another thread can break it at any time.

An HTTP client gives away the socket only with the response. Before that, it tells the request's `trace` of the stream
that it connected. Of one that it uses again it tells nothing; but we saw that stream when it was new, and had its
`write` say from then on for which request it writes.

What this cannot reach: the search for an address, the making of a connection, and the wait for a free one in a client
that limits them. There the wait ends with the client's own time (`timeouts.connect`), and the socket is broken as soon
as it is there. A connection that was made without us, by a client of the caller's, is known from the first response
on that we get over it. Requests that share a connection (HTTP/2) break together.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

_STOPPABLE = {"connect_tcp", "connect_unix_socket", "send_request_headers", "receive_response_headers"}
"""Steps before which there is no socket, or one that the client closes if we raise."""


class SocketHold:
    """Holds the socket of one request while that is under way."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stream: Any = None
        self._copy: socket.socket | None = None
        self._is_broken = False

    @contextmanager
    def sending(self) -> Generator[None]:
        """What this thread writes meanwhile belongs to this request."""
        before, _current.hold = _current.hold, self
        try:
            yield
        finally:
            _current.hold = before

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """The client tells what it does; raises if that is not wanted any more."""
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
            case [step, "started"] if step in _STOPPABLE:
                self._raise_if_broken()
            case ["response_closed", "started"]:
                self.release()

    def hold(self, stream: Any) -> None:
        """This is the stream that is used, now and maybe by later requests."""
        with suppress(AttributeError):  # it is of another kind than those of httpcore
            if not isinstance(stream.write, _WatchedWrite):
                stream.write = _WatchedWrite(stream)
        self.take(stream)

    def take(self, stream: Any) -> None:
        """This is the stream that is used now."""
        with self._lock:
            self._stream = stream
            self._shut_down_if_broken()

    def release(self) -> None:
        """The stream is not ours any more: another request may use it from here on."""
        with self._lock:
            self._stream = None

    def break_off(self) -> None:
        """Break the connection, or the one that is still to come: a wait for it in another thread ends at once."""
        with self._lock:
            self._is_broken = True
            self._shut_down_if_broken()

    def _shut_down_if_broken(self) -> None:
        if not self._is_broken:
            return
        with suppress(OSError):  # it is closed already
            if self._copy is not None:  # reading is enough, and TLS leaves a socket open that it finds not connected
                self._copy.shutdown(socket.SHUT_RD)
            elif (held := self._socket) is not None:
                socket.socket.shutdown(held, socket.SHUT_RDWR)  # that of TLS would also take away its state

    @property
    def _socket(self) -> socket.socket | None:
        found: socket.socket | None = None if self._stream is None else self._stream.get_extra_info("socket")
        return found

    def _leave_if_broken(self) -> None:
        """While it connects, a client does not close what it leaves."""
        if self._is_broken and self._stream is not None:
            self._stream.close()
        self._raise_if_broken()

    def _raise_if_broken(self) -> None:
        if self._is_broken:
            raise ConnectionAbortedError("the request was cancelled")

    def _make_copy(self) -> None:
        """TLS takes the socket over and leaves an empty one, until it has agreed with the other side."""
        with self._lock, suppress(OSError):  # too many are open
            if (held := self._socket) is not None:
                self._copy = socket.fromfd(held.fileno(), held.family, held.type)

    def _close_copy(self) -> None:
        with self._lock:
            if self._copy is not None:
                self._copy.close()
                self._copy = None


class _WatchedWrite:
    """The `write` of a stream, which first tells the request that is being sent."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._write = stream.write

    def __call__(self, buffer: bytes, timeout: float | None = None) -> None:
        if _current.hold is not None:
            _current.hold.take(self._stream)
        self._write(buffer, timeout)


class _CurrentRequest(threading.local):
    """What a thread is about."""

    hold: SocketHold | None = None


_current = _CurrentRequest()

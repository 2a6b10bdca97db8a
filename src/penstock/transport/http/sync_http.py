"""HTTP for sync code: with httpx2, or with the caller's own httpx2 or httpx client."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from inspect import iscoroutinefunction
from typing import Any

from penstock.errors import UsageError
from penstock.transport.commands import HTTPResponseHead, OpenRequest, ReadTimedOut
from penstock.transport.http.client_logs import redacted_logs
from penstock.transport.http.decompression import content_encoding, decompressed
from penstock.transport.http.failures import client_error
from penstock.transport.http.pools import AnyPool
from penstock.transport.http.sync_pool import sync_pools
from penstock.transport.threads.forks import close_in_children
from penstock.transport.threads.watchdog import watchdog


class HTTPConnection:
    """The HTTP connection of one stream, with a timeout for each read."""

    def __init__(self, client: Any = None) -> None:
        if client is not None and (not hasattr(client, "build_request") or iscoroutinefunction(client.send)):
            raise UsageError(
                f"stream() needs a sync client of httpx2 or httpx, not {type(client).__name__}; use astream()"
            )
        self.deadline: float | None = None
        self._client = client
        self._lease: AnyPool | None = None
        self._command: OpenRequest
        self._response: Any = None
        self._pieces: Iterator[bytes] = iter(())
        self._hold = SocketHold()
        self._is_expired = False
        self._is_aborted = False

    def open(self, command: OpenRequest) -> HTTPResponseHead:
        """Send a request and return the head of the response."""
        self._command, sent, first = command, command.request, command.first_byte
        client = self._client
        if client is None:
            self._lease = sync_pools.lease(sent.url)
            client = self._lease.client
        waits = {"connect": command.connect, "pool": command.connect, "read": first, "write": first}
        hold = self._new_hold()
        extensions = {"timeout": waits, "trace": hold.trace}
        request = client.build_request(
            "POST", sent.url, headers=dict(sent.headers), content=sent.body, extensions=extensions
        )
        self._is_expired = False
        if first is not None:  # the timeouts of the client are for each of its reads
            self.deadline = time.monotonic() + first
        watchdog.watch(self)
        try:
            with hold.sending(), redacted_logs(sent):
                self._response = response = client.send(request, stream=True, follow_redirects=False)
        except Exception as error:
            if self._is_expired:
                raise ReadTimedOut("no response received in time") from None
            raise client_error(error, command) from error
        finally:
            self.deadline = None
        if "network_stream" in response.extensions and not response.is_closed:
            hold.hold(response.extensions["network_stream"])
        waits["read"] = None  # from here on the watchdog ends waits
        self._pieces = _pieces(response)
        return HTTPResponseHead(response.status_code, dict(response.headers))

    def read(self, seconds: float | None) -> bytes:
        """The next bytes of the body, empty at its end."""
        if seconds is not None:
            self.deadline = deadline = time.monotonic() + seconds
            if deadline < watchdog.next_check:
                watchdog.wake()
        data = b""
        try:
            data = next(self._pieces, b"")
        except Exception as error:
            if not self._is_expired:
                raise client_error(error, self._command) from error
        finally:
            self.deadline = None  # the time between reads does not count
        if self._is_expired and not data:  # a body without a length ends with the connection, which `expire` broke
            raise ReadTimedOut("no data received in time")
        return data

    def expire(self) -> None:
        """Break the connection because a read exceeded its timeout."""
        self._is_expired = True
        self._hold.break_off()

    def abort(self) -> None:
        """Break the connection for good, from any thread; a wait in another thread ends at once.

        A connection that is still being established is broken as soon as it is (see `socket_hold`).
        """
        self._is_aborted = True
        self._hold.break_off()

    def close(self) -> None:
        """Close the connection; it is reused only if the response was read to its end."""
        response, self._response = self._response, None
        watchdog.forget(self)
        if response is not None:
            self._hold.release()
            response.close()
        lease, self._lease = self._lease, None
        if lease is not None:
            sync_pools.release(lease)

    def _new_hold(self) -> SocketHold:
        self._hold = SocketHold()
        if self._is_aborted:  # checked after the hold is set: `abort` does the two in the other order
            self._hold.break_off()
        return self._hold


def _pieces(response: Any) -> Iterator[bytes]:
    """The body of a response; its compression is undone here and not by the client."""
    encoding = content_encoding(response.headers)
    is_raw = encoding and not response.is_stream_consumed  # a response of a mock transport may have been read
    pieces: Iterator[bytes] = decompressed(response.iter_raw(), encoding) if is_raw else response.iter_bytes()
    return pieces


# A hold on the socket of a request from its start, so that another thread can break it at any time.
#
# An HTTP client exposes the socket only with the response. Earlier, it reports a new connection to the `trace` of the
# request. It does not report a reused connection, so the `write` of each new connection is wrapped: it notes the
# request that it writes for.
#
# Not reached are the address lookup, the connecting itself, and the wait for a free connection in a client that limits
# them. They end with the client's own timeout (`timeouts.connect`), and the socket is broken as soon as it exists. A
# connection that the caller's client opened before is known from the first response over it. Requests that share a
# connection (HTTP/2) break together.


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

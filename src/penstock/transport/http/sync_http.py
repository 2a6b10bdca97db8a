"""HTTP for sync code: with httpx2, or with the caller's own httpx2 or httpx client."""

from __future__ import annotations

import time
from collections.abc import Iterator
from inspect import iscoroutinefunction
from typing import Any

from penstock.errors import UsageError
from penstock.transport.commands import HTTPResponseHead, OpenRequest, ReadTimedOut
from penstock.transport.http.client_logs import redacted_logs
from penstock.transport.http.decompression import content_encoding, decompressed
from penstock.transport.http.failures import client_error
from penstock.transport.http.pools import AnyPool
from penstock.transport.http.socket_hold import SocketHold
from penstock.transport.http.sync_pool import sync_pools
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

"""HTTP for code without a loop, on httpx2, or on a client of the caller's that is used the same way."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Iterator
from inspect import iscoroutinefunction
from typing import Any

from penstock.errors import UsageError
from penstock.transport.commands import OpenRequest, ReadTimedOut, ResponseHead
from penstock.transport.failures import client_error
from penstock.transport.socket_hold import SocketHold
from penstock.transport.watchdog import watchdog

_lock = threading.Lock()
_shared: list[Any] = []


def shared_client() -> Any:
    """The client of this process: connections are kept open and used again."""
    with _lock:
        if not _shared:
            import httpx2

            limits = httpx2.Limits(max_connections=None, max_keepalive_connections=20)
            _shared.append(httpx2.Client(timeout=None, limits=limits))
            atexit.register(_shared[0].close)
        return _shared[0]


class HTTPConnection:
    """The connection of one stream, which waits as long as it is told to."""

    def __init__(self, client: Any = None) -> None:
        if client is not None and (not hasattr(client, "build_request") or iscoroutinefunction(client.send)):
            raise UsageError(
                f"plain code needs a client of httpx2 or httpx, not {type(client).__name__}; use astream()"
            )
        self.deadline: float | None = None
        self._client = client
        self._command: OpenRequest
        self._response: Any = None
        self._pieces: Iterator[bytes] = iter(())
        self._hold = SocketHold()
        self._is_expired = False
        self._is_aborted = False

    def open(self, command: OpenRequest) -> ResponseHead:
        """Send a request; how its answer begins."""
        client = shared_client() if self._client is None else self._client
        self._command, sent, first = command, command.request, command.first_byte
        waits = {"connect": command.connect, "pool": command.connect, "read": first, "write": first}
        hold = self._new_hold()
        extensions = {"timeout": waits, "trace": hold.trace}
        request = client.build_request(
            "POST", sent.url, headers=dict(sent.headers), content=sent.body, extensions=extensions
        )
        try:
            with hold.sending():
                response = client.send(request, stream=True, follow_redirects=False)
        except Exception as error:
            raise client_error(error, command) from error
        if "network_stream" in response.extensions and not response.is_closed:
            hold.hold(response.extensions["network_stream"])
        waits["read"] = None  # from here on the watchdog minds the time
        self._is_expired, self.deadline = False, None
        self._response, self._pieces = response, response.iter_bytes()
        watchdog.watch(self)
        return ResponseHead(response.status_code, dict(response.headers))

    def read(self, seconds: float | None) -> bytes:
        """The next bytes, none at the end."""
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
            self.deadline = None  # what is done with the data may take its time
        if self._is_expired and not data:  # some answers end when the connection does, and we broke it
            raise ReadTimedOut("nothing came in time")
        return data

    def expire(self) -> None:
        self._is_expired = True
        self._hold.break_off()

    def abort(self) -> None:
        """Break the connection for good, from whatever thread: a wait in another ends at once.

        One that is still being made is broken as soon as it is there (see `socket_hold`).
        """
        self._is_aborted = True
        self._hold.break_off()

    def close(self) -> None:
        """Close the connection; one that was not read to its end is not used again."""
        response, self._response = self._response, None
        if response is not None:
            watchdog.forget(self)
            self._hold.release()
            response.close()

    def _new_hold(self) -> SocketHold:
        self._hold = SocketHold()
        if self._is_aborted:  # after the new one was set: whoever aborts looks for it the other way round
            self._hold.break_off()
        return self._hold

"""HTTP from memory: every client gets the same reads, and no socket is opened.

The transports of httpx and httpx2 are replaced at the class, because the peers build their clients themselves.
"""

from __future__ import annotations

import importlib
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from types import ModuleType
from typing import Any, NoReturn

HEADERS = {"content-type": "text/event-stream; charset=utf-8"}


class Tape:
    """The reads of every response."""

    def __init__(self) -> None:
        self.reads: Sequence[bytes] = ()

    def install(self) -> None:
        """Responds to all requests of this process from now on."""
        socket.socket.connect = _refuse  # type: ignore[method-assign]  # so that nothing else connects
        for name in ("httpx", "httpx2"):
            try:
                self._replace(importlib.import_module(name))
            except ModuleNotFoundError:
                continue

    def _replace(self, http: ModuleType) -> None:
        def respond(transport: Any, request: Any) -> Any:
            return http.Response(200, headers=HEADERS, stream=_Reads(self.reads), request=request)

        async def respond_async(transport: Any, request: Any) -> Any:
            return respond(transport, request)

        class _Reads(http.SyncByteStream, http.AsyncByteStream):  # type: ignore[misc,name-defined]
            def __init__(self, reads: Sequence[bytes]) -> None:
                self._reads = reads

            def __iter__(self) -> Iterator[bytes]:
                return iter(self._reads)

            async def __aiter__(self) -> AsyncIterator[bytes]:
                for data in self._reads:
                    yield data

        http.HTTPTransport.handle_request = respond
        http.AsyncHTTPTransport.handle_async_request = respond_async


def _refuse(*_: Any) -> NoReturn:
    raise OSError("benchmarks use no network")

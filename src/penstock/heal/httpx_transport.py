"""Transports for httpx2 and httpx that heal responses: both libraries have the same classes under the same names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import cache
from types import ModuleType
from typing import Any, ClassVar

from penstock.errors import UsageError
from penstock.heal.exchange import HealedExchange, Healer, body_of, healed_headers


def transport(inner: Any, healer: Healer) -> Any:
    """A transport that heals the responses of another one, sync or async."""
    module = library_of(inner, "BaseTransport", "AsyncBaseTransport")
    if module is None:
        raise UsageError(f"{inner!r} is not a transport of httpx2 or httpx")
    if isinstance(inner, HealingTransport):  # attached again, with other settings
        inner = inner.inner
    return of_library(HealingTransport, module)(inner, healer)


def library_of(value: Any, *classes: str) -> ModuleType | None:
    """The library, httpx2 or httpx, of a value that is of one of these classes."""
    import sys

    for name in ("httpx2", "httpx"):
        module = sys.modules.get(name)  # a value of a class of a library that nobody has imported does not exist
        if module is not None and isinstance(value, tuple(getattr(module, one) for one in classes)):
            return module
    return None


class HealedBytes:
    """The body of a healed stream, for sync and async code."""

    def __init__(self, response: Any, exchange: HealedExchange) -> None:
        self._response = response
        self._exchange = exchange
        self._is_encoded = "content-encoding" in response.headers

    def __iter__(self) -> Iterator[bytes]:
        response, feed = self._response, self._exchange.stage.feed
        try:
            for data in response.iter_bytes() if self._is_encoded else response.stream:
                if healed := feed(data):
                    yield healed
        except Exception:
            yield from self._exchange.break_off()
            raise
        yield from self._exchange.end()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        response, feed = self._response, self._exchange.stage.feed
        try:
            async for data in response.aiter_bytes() if self._is_encoded else response.stream:
                if healed := feed(data):
                    yield healed
        except Exception:
            for held in self._exchange.break_off():
                yield held
            raise
        for rest in self._exchange.end():
            yield rest

    def close(self) -> None:
        self._response.close()
        self._exchange.report()

    async def aclose(self) -> None:
        await self._response.aclose()
        self._exchange.report()


class ReadBytes:
    """A body that was read already, in its own encoding, and the error with which reading it ended, if one did."""

    def __init__(self, body: bytes, error: Exception | None = None) -> None:
        self._body = body
        self._error = error

    def __iter__(self) -> Iterator[bytes]:
        yield self._body
        if self._error is not None:
            raise self._error

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece


class HealingTransport:
    """Heals the responses of another transport; the client decides whether it is used in sync or async code."""

    library: ClassVar[Any]

    def __init__(self, inner: Any, healer: Healer) -> None:
        self.inner = inner
        self._healer = healer

    def handle_request(self, request: Any) -> Any:
        response = self.inner.handle_request(request)
        exchange = self._begun(request, response)
        if exchange is None or exchange.is_streaming:
            return self._healed(response, exchange)
        pieces: list[bytes] = []
        try:
            pieces += response.stream  # not `iter_raw`: a response of a test, or of a cache, may have been read
        except Exception as error:  # noqa: BLE001  # whoever reads the body gets it
            return self._broken(response, pieces, error)
        finally:
            response.close()
        return self._whole(response, exchange, b"".join(pieces))

    async def handle_async_request(self, request: Any) -> Any:
        response = await self.inner.handle_async_request(request)
        exchange = self._begun(request, response)
        if exchange is None or exchange.is_streaming:
            return self._healed(response, exchange)
        pieces: list[bytes] = []
        try:
            async for piece in response.stream:
                pieces.append(piece)  # noqa: PERF401  # what came before an error counts
        except Exception as error:  # noqa: BLE001  # see `handle_request`
            return self._broken(response, pieces, error)
        finally:
            await response.aclose()
        return self._whole(response, exchange, b"".join(pieces))

    def close(self) -> None:
        self.inner.close()

    async def aclose(self) -> None:
        await self.inner.aclose()

    def _begun(self, request: Any, response: Any) -> HealedExchange | None:
        url, kind = request.url, response.headers.get("content-type", "")
        if not encodings_of(response) <= decodable(self.library):
            return None
        body, query = body_of(request, self.library), url.query.decode("ascii", "replace")
        agent = request.headers.get("user-agent", "")
        return self._healer.begin(request.method, url.path, query, body, response.status_code, kind, agent)

    def _healed(self, response: Any, exchange: HealedExchange | None) -> Any:
        """A response that passes unchanged, or is healed while it is read."""
        if exchange is None:
            return response
        stream = of_library(HealedBytes, self.library)(response, exchange)
        return self._response(response, healed_headers(response.headers.raw, exchange), stream)

    def _whole(self, response: Any, exchange: HealedExchange, raw: bytes) -> Any:
        """The response to a request that is not streamed: its body as it came, or healed."""
        try:
            body = self.library.Response(200, headers=response.headers, content=raw).content
        except self.library.DecodingError:  # whoever decodes the body gets the same error
            return self._broken(response, [raw], None)
        healed = b"".join([exchange.stage.feed(body), *exchange.end()])
        is_same, headers = healed == body, response.headers.raw
        stream = of_library(ReadBytes, self.library)(raw if is_same else healed)
        return self._response(response, headers if is_same else healed_headers(headers, exchange), stream)

    def _broken(self, response: Any, pieces: list[bytes], error: Exception | None) -> Any:
        """The response as it came, with the error of its body."""
        stream = of_library(ReadBytes, self.library)(b"".join(pieces), error)
        return self._response(response, response.headers.raw, stream)

    def _response(self, response: Any, headers: list[tuple[bytes, bytes]], stream: Any) -> Any:
        return self.library.Response(200, headers=headers, stream=stream, extensions=response.extensions)


def encodings_of(response: Any) -> set[str]:
    """The encodings of a body."""
    names = response.headers.get("content-encoding", "").lower().split(",")
    return {name.strip() for name in names} - {"", "identity"}


@cache
def decodable(library: Any) -> set[str]:
    """The encodings that a library can decode: br and zstd need packages that may not be there."""
    with library.Client(transport=library.BaseTransport(), trust_env=False) as client:
        return {name.strip() for name in client.headers["accept-encoding"].split(",")}


@cache
def of_library(kind: type, library: Any) -> Any:
    """A class of this module as a class of httpx2 or httpx, for sync and async code."""
    if kind is HealingTransport:
        return type(kind.__name__, (kind, library.BaseTransport, library.AsyncBaseTransport), {"library": library})
    return type(kind.__name__, (kind, library.SyncByteStream, library.AsyncByteStream), {})


def attach_client(client: Any, healer: Healer) -> None:
    """Let a client of httpx2 or httpx heal, also through its proxies and mounts."""
    client._transport = transport(client._transport, healer)
    for pattern, mounted in client._mounts.items():
        client._mounts[pattern] = None if mounted is None else transport(mounted, healer)

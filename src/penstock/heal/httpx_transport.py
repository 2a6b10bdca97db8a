"""Transports for httpx2 and httpx that heal responses: both libraries have the same classes under the same names."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from functools import cache
from types import ModuleType
from typing import Any

from penstock.errors import UsageError
from penstock.heal.exchange import HealedExchange, Healer, body_of, healed_headers


def transport(inner: Any, healer: Healer) -> Any:
    """A transport that heals the responses of another one, sync or async."""
    module = library_of(inner, "BaseTransport", "AsyncBaseTransport")
    if module is None:
        raise UsageError(f"{inner!r} is not a transport of httpx2 or httpx")
    sync, asynchronous = transports(module)
    if isinstance(inner, (sync, asynchronous)):  # attached again, with other settings
        inner = inner.inner
    return sync(inner, healer) if isinstance(inner, module.BaseTransport) else asynchronous(inner, healer)


def library_of(value: Any, *classes: str) -> ModuleType | None:
    """The library, httpx2 or httpx, of a value that is of one of these classes."""
    import sys

    for name in ("httpx2", "httpx"):
        module = sys.modules.get(name)  # a value of a class of a library that nobody has imported does not exist
        if module is not None and isinstance(value, tuple(getattr(module, one) for one in classes)):
            return module
    return None


def _decoded(response: Any) -> Any:
    """The bytes of a response, without its encoding; if it has none, by the shortest way."""
    return response.iter_bytes() if response.headers.get("content-encoding") else response.stream


def _adecoded(response: Any) -> Any:
    return response.aiter_bytes() if response.headers.get("content-encoding") else response.stream


@cache
def _healed_bytes(module: Any) -> Any:
    """The class of healed bodies for a library."""

    class HealedBytes(module.SyncByteStream):  # type: ignore[misc]
        def __init__(self, response: Any, exchange: HealedExchange) -> None:
            self._response = response
            self._exchange = exchange

        def __iter__(self) -> Iterator[bytes]:
            stage = self._exchange.stage
            try:
                for data in _decoded(self._response):
                    if healed := stage.feed(data):
                        yield healed
            except Exception:
                if held := stage.held():
                    yield held
                raise
            if rest := stage.close():
                yield rest
            self._exchange.report()

        def close(self) -> None:
            self._response.close()
            self._exchange.report()

    return HealedBytes


@cache
def _async_healed_bytes(module: Any) -> Any:
    """The class of healed bodies for a library, in async code."""

    class AsyncHealedBytes(module.AsyncByteStream):  # type: ignore[misc]
        def __init__(self, response: Any, exchange: HealedExchange) -> None:
            self._response = response
            self._exchange = exchange

        async def __aiter__(self) -> AsyncIterator[bytes]:
            stage = self._exchange.stage
            try:
                async for data in _adecoded(self._response):
                    if healed := stage.feed(data):
                        yield healed
            except Exception:
                if held := stage.held():
                    yield held
                raise
            if rest := stage.close():
                yield rest
            self._exchange.report()

        async def aclose(self) -> None:
            await self._response.aclose()
            self._exchange.report()

    return AsyncHealedBytes


@cache
def _bytes(module: Any) -> Any:
    """The class of bodies in memory for a library."""

    class Bytes(module.SyncByteStream, module.AsyncByteStream):  # type: ignore[misc]
        """A body that was read already, in its own encoding."""

        def __init__(self, body: bytes) -> None:
            self._body = body

        def __iter__(self) -> Iterator[bytes]:
            yield self._body

        async def __aiter__(self) -> AsyncIterator[bytes]:
            yield self._body

    return Bytes


def _healed(module: Any, response: Any, exchange: HealedExchange, stream: Any) -> Any:
    headers = healed_headers(response.headers.raw, exchange)
    return module.Response(200, headers=headers, stream=stream, extensions=response.extensions)


def _whole(module: Any, response: Any, exchange: HealedExchange, raw: bytes) -> Any:
    """The response to a request that is not streamed: its body as it came, or healed."""
    body = module.Response(200, headers=response.headers, content=raw).content
    new = exchange.stage.feed(body) + exchange.stage.close()
    exchange.report()
    if new == body:
        return module.Response(
            200, headers=response.headers.raw, stream=_bytes(module)(raw), extensions=response.extensions
        )
    return _healed(module, response, exchange, _bytes(module)(new))


def _begun(module: Any, healer: Healer, request: Any, response: Any) -> HealedExchange | None:
    url, kind = request.url, response.headers.get("content-type", "")
    body = body_of(request, module.RequestNotRead)
    return healer.begin(
        request.method, url.path, url.query.decode("ascii", "replace"), body, response.status_code, kind
    )


def transports(module: Any) -> tuple[Any, Any]:
    """The two classes of transports for a library."""
    return _sync_transport(module), _async_transport(module)


@cache
def _sync_transport(module: Any) -> Any:
    healed_bytes = _healed_bytes(module)

    class HealingTransport(module.BaseTransport):  # type: ignore[misc]
        """Heals the responses of another transport."""

        def __init__(self, inner: Any, healer: Healer) -> None:
            self.inner = inner
            self._healer = healer

        def handle_request(self, request: Any) -> Any:
            response = self.inner.handle_request(request)
            if (exchange := _begun(module, self._healer, request, response)) is None:
                return response
            if exchange.is_streaming:
                return _healed(module, response, exchange, healed_bytes(response, exchange))
            try:
                raw = b"".join(response.iter_raw())
            finally:
                response.close()
            return _whole(module, response, exchange, raw)

        def close(self) -> None:
            self.inner.close()

    return HealingTransport


@cache
def _async_transport(module: Any) -> Any:
    healed_bytes = _async_healed_bytes(module)

    class AsyncHealingTransport(module.AsyncBaseTransport):  # type: ignore[misc]
        """Heals the responses of another async transport."""

        def __init__(self, inner: Any, healer: Healer) -> None:
            self.inner = inner
            self._healer = healer

        async def handle_async_request(self, request: Any) -> Any:
            response = await self.inner.handle_async_request(request)
            if (exchange := _begun(module, self._healer, request, response)) is None:
                return response
            if exchange.is_streaming:
                return _healed(module, response, exchange, healed_bytes(response, exchange))
            try:
                raw = b"".join([piece async for piece in response.aiter_raw()])
            finally:
                await response.aclose()
            return _whole(module, response, exchange, raw)

        async def aclose(self) -> None:
            await self.inner.aclose()

    return AsyncHealingTransport


def attach_client(client: Any, healer: Healer) -> None:
    """Let a client of httpx2 or httpx heal, also through its proxies and mounts."""
    client._transport = transport(client._transport, healer)
    for pattern, mounted in client._mounts.items():
        client._mounts[pattern] = None if mounted is None else transport(mounted, healer)

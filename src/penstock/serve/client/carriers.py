"""Carries out the commands of an exchange over HTTP: in sync code with httpx2, and in async code with the same."""

from __future__ import annotations

import asyncio
import re
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, aclosing, closing
from typing import TYPE_CHECKING, Any, TypeVar, assert_never
from urllib.parse import urlsplit

from msgspec import Struct

from penstock.log.position import Position
from penstock.serve.client.errors import UnreachableError
from penstock.serve.client.exchange import Command, Exchange, OpenStream, Pause, ReadStream, Ready, Response, Send

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")


class ClientSettings(Struct, frozen=True, kw_only=True):
    """The address of the server, and timeouts in seconds."""

    url: str
    token: str = ""
    timeout: float = 30.0
    idle: float = 45.0
    tries: int = 8

    @property
    def options(self) -> dict[str, Any]:
        """The options of an HTTP client."""
        headers = {"authorization": f"Bearer {self.token}"} if self.token else {}
        return {"base_url": self.url, "headers": headers, "timeout": self.timeout, "follow_redirects": False}

    def stream_options(self, after: Position) -> dict[str, Any]:
        """The options of a request for events."""
        waits = {"connect": self.timeout, "write": self.timeout, "pool": self.timeout, "read": self.idle}
        headers = {"accept": "text/event-stream"} | ({"last-event-id": after.token} if after else {})
        return {"headers": headers, "extensions": {"timeout": waits}}


def _headers(command: Send) -> dict[str, str]:
    """The headers of a request."""
    content = {"content-type": "application/json"} if command.body else {}
    return content | ({"idempotency-key": command.key} if command.key else {})


class Carrier:
    """An HTTP client for sync code."""

    def __init__(self, settings: ClientSettings, client: httpx2.Client | None = None) -> None:
        import httpx2

        self.tries = settings.tries
        self._settings = settings
        self._client = client or httpx2.Client(**settings.options)
        self._failures = (httpx2.TransportError,), (httpx2.ConnectError, httpx2.ConnectTimeout)

    new_key = staticmethod(secrets.token_hex)

    def close(self) -> None:
        self._client.close()

    def send(self, exchange: Exchange[T]) -> T:
        """Carry out an exchange that has no events; returns its result."""
        steps = self._steps(exchange, _Stream())
        while True:
            try:
                next(steps)
            except StopIteration as end:
                result: T = end.value
                return result

    def stream(self, exchange: Exchange[None]) -> Iterator[Ready]:
        """Carry out an exchange; yields its events."""
        stream = _Stream()
        with closing(exchange), stream:
            yield from self._steps(exchange, stream)

    def _steps(self, exchange: Exchange[T], stream: _Stream) -> Generator[Ready, None, T]:
        result: Any = None
        error: UnreachableError | None = None
        while True:
            try:
                command = exchange.throw(error) if error is not None else exchange.send(result)
            except StopIteration as end:
                returned: T = end.value
                return returned
            result = error = None
            if isinstance(command, Ready):
                yield command
                continue
            try:
                result = self._carry_out(command, stream)
            except self._failures[0] as problem:
                error = _unreachable(self._settings.url, problem, was_sent=not isinstance(problem, self._failures[1]))

    def _carry_out(self, command: Command, stream: _Stream) -> Any:
        match command:
            case Send():
                headers = _headers(command)
                response = self._client.request(command.method, command.path, content=command.body, headers=headers)
                return Response(response.status_code, dict(response.headers), response.content)
            case OpenStream():
                stream.close()
                options = self._settings.stream_options(command.after)
                response = stream.begin(self._client.stream("GET", command.path, **options))
                body = b"" if response.status_code == 200 else response.read()
                return Response(response.status_code, dict(response.headers), body)
            case ReadStream():
                return next(stream.pieces, b"")
            case Pause():
                stream.close()
                time.sleep(command.seconds)
            case Ready():
                pass
            case _:
                assert_never(command)
        return None


class _Stream:
    """The current response; it is closed before another one is opened."""

    def __init__(self) -> None:
        self.pieces: Iterator[bytes] = iter(())
        self._opened: AbstractContextManager[Any] | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.close()

    def begin(self, opened: AbstractContextManager[Any]) -> Any:
        response = opened.__enter__()
        self._opened = opened
        self.pieces = response.iter_bytes()
        return response

    def close(self) -> None:
        if self._opened is not None:
            opened, self._opened = self._opened, None
            opened.__exit__(None, None, None)


class AsyncCarrier:
    """An HTTP client for async code."""

    def __init__(self, settings: ClientSettings, client: httpx2.AsyncClient | None = None) -> None:
        import httpx2

        self.tries = settings.tries
        self._settings = settings
        self._client = client or httpx2.AsyncClient(**settings.options)
        self._failures = (httpx2.TransportError,), (httpx2.ConnectError, httpx2.ConnectTimeout)

    new_key = staticmethod(secrets.token_hex)

    async def close(self) -> None:
        await self._client.aclose()

    async def send(self, exchange: Exchange[T]) -> T:
        """Carry out an exchange that has no events; returns its result."""
        results: list[T] = []
        async for _ in self._steps(exchange, _AsyncStream(), results):
            pass
        return results[0]

    async def stream(self, exchange: Exchange[None]) -> AsyncGenerator[Ready]:
        """Carry out an exchange; yields its events."""
        stream = _AsyncStream()
        try:
            async with aclosing(self._steps(exchange, stream, [])) as steps:
                async for ready in steps:
                    yield ready
        finally:
            exchange.close()
            await stream.close()

    async def _steps(self, exchange: Exchange[T], stream: _AsyncStream, results: list[T]) -> AsyncGenerator[Ready]:
        result: Any = None
        error: UnreachableError | None = None
        while True:
            try:
                command = exchange.throw(error) if error is not None else exchange.send(result)
            except StopIteration as end:
                results.append(end.value)
                return
            result = error = None
            if isinstance(command, Ready):
                yield command
                continue
            try:
                result = await self._carry_out(command, stream)
            except self._failures[0] as problem:
                error = _unreachable(self._settings.url, problem, was_sent=not isinstance(problem, self._failures[1]))

    async def _carry_out(self, command: Command, stream: _AsyncStream) -> Any:
        match command:
            case Send():
                headers = _headers(command)
                reply = await self._client.request(command.method, command.path, content=command.body, headers=headers)
                return Response(reply.status_code, dict(reply.headers), reply.content)
            case OpenStream():
                await stream.close()
                options = self._settings.stream_options(command.after)
                response = await stream.begin(self._client.stream("GET", command.path, **options))
                body = b"" if response.status_code == 200 else await response.aread()
                return Response(response.status_code, dict(response.headers), body)
            case ReadStream():
                return await anext(stream.pieces, b"")
            case Pause():
                await stream.close()
                await asyncio.sleep(command.seconds)
            case Ready():
                pass
            case _:
                assert_never(command)
        return None


class _AsyncStream:
    """The current response; it is closed before another one is opened."""

    def __init__(self) -> None:
        self.pieces: AsyncIterator[bytes]
        self._opened: AbstractAsyncContextManager[Any] | None = None

    async def begin(self, opened: AbstractAsyncContextManager[Any]) -> Any:
        response = await opened.__aenter__()
        self._opened = opened
        self.pieces = response.aiter_bytes()
        return response

    async def close(self) -> None:
        if self._opened is not None:
            opened, self._opened = self._opened, None
            await opened.__aexit__(None, None, None)


def _unreachable(url: str, error: Exception, was_sent: bool) -> UnreachableError:
    host = urlsplit(url).netloc.rpartition("@")[2]
    reason = re.sub(r"^\[Errno -?\d+\] ", "", str(error)) or type(error).__name__
    return UnreachableError(f"the server at {host} cannot be reached: {reason}", was_sent)

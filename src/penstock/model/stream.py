"""The response of a model as a stream: `Stream` for sync code, `AsyncStream` for async code.

Both carry out the commands of an exchange and yield the chunks that it delivers. Entering `with` waits for the first
event and raises if the request fails before it; a later failure is an `Error` in the stream. A stream can be read once;
leaving `with` closes the connection at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterator
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Self, assert_never

from msgspec.structs import replace

from penstock.errors import ConnectionFailed, ProviderError
from penstock.events import StreamChunk
from penstock.model.connect import AsyncConnection, Connection
from penstock.model.event_loop import warn_if_blocking
from penstock.model.streamed_response import NOTHING, Derived, StreamedResponse
from penstock.transport.commands import (
    MAX_PASSED,
    Authorize,
    CloseConnection,
    Command,
    HTTPResponseHead,
    OpenRequest,
    Parts,
    ReadBytes,
    Sleep,
    Take,
)
from penstock.transport.credential_calls import acall_for_credentials, call_for_credentials
from penstock.transport.exchange import Decoding, Exchange
from penstock.transport.threads.off_loop import run_off_loop

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Output = TypeVar("Output", default=str)
else:
    from typing import TypeVar

    Output = TypeVar("Output")  # which has no default before Python 3.13


IsSlow = Callable[[bytes], bool]
"""Whether it takes long to decode these bytes; the next bytes that are fed are decoded as a whole."""


BATCH_CHUNKS = 128
"""How many chunks are delivered at once on an event loop; between two batches other tasks run."""
PART_SECONDS = 0.002
"""How long parts of a read are read by the stages before their chunks are delivered."""


class Stream(StreamedResponse[Output]):
    """A response read in sync code: `with model.stream(...) as stream: for chunk in stream: …`."""

    def __init__(self, exchange: Exchange, connection: Connection, derived: Derived = NOTHING) -> None:
        super().__init__(exchange, derived)
        self._connection = connection
        self._chunks: Iterator[StreamChunk] | None = None
        self._cancelled = threading.Event()

    def __enter__(self) -> Self:
        warn_if_blocking("model.stream()", "model.astream()")
        try:
            self._before_loop = self._advance_now()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[StreamChunk]:
        warn_if_blocking("model.stream()", "model.astream()")
        self._begin_reading()
        return self._read()

    def __next__(self) -> StreamChunk:
        if self._chunks is None:
            self._chunks = iter(self)
        return next(self._chunks)

    def batches(self) -> Iterator[list[StreamChunk]]:
        """Iterate over the chunks of each network read as a list, instead of one by one.

        For callers that fold the chunks themselves: `turn` and the other properties stay empty.
        """
        self._begin_reading()
        return self._batches()

    def close(self) -> None:
        """Close the connection; the properties keep what was read."""
        self._is_closed = True
        self._commands.close()
        self._connection.close()

    def cancel(self) -> None:
        """Break the connection from any thread, without a retry.

        A loop that waits for data ends at once with an `Error` in the stream; before the first event, the error is
        raised. While a connection is being established, this takes until it is, at most `timeouts.connect`.
        """
        self._cancelled.set()
        self._connection.abort()

    def _read(self) -> Iterator[StreamChunk]:
        unfolded, view = self._unfolded, self._view
        with closing(self._batches()) as batches:
            for chunks in batches:
                for chunk in chunks:
                    unfolded.append(chunk)
                    yield chunk
                    if view is not None:
                        yield from view.feed(chunk)
                self._fold_many()

    def _batches(self) -> Generator[list[StreamChunk]]:
        chunks, read, is_cancelled = self._before_loop, self._connection.read, self._cancelled.is_set
        clock = self._clock
        try:
            while chunks is not None:
                if chunks:
                    yield chunks
                if (body := self._body) is None or clock() > body.steady_until or is_cancelled():
                    chunks = self._advance_now()
                    continue
                try:
                    data = read(body.timeout)
                    chunks = body.feed(data) if data else None
                except ProviderError as failure:
                    chunks = self._advance_now(error=self._cancellation or failure)
                else:
                    if chunks is None:
                        chunks = self._advance_now(b"", self._cancellation)
        finally:
            self.close()

    def _advance_now(self, result: Any = None, error: ProviderError | None = None) -> list[StreamChunk] | None:
        """Run `_advance`, a coroutine that never suspends here, because the commands block."""
        try:
            self._advance(result, error).send(None)
        except StopIteration as end:
            chunks: list[StreamChunk] | None = end.value
            return chunks
        raise AssertionError("a command of a sync stream has suspended")

    async def _carry_out(self, command: Authorize | OpenRequest | ReadBytes | Sleep | CloseConnection) -> Any:
        match command:
            case OpenRequest() | ReadBytes():
                return self._wait_for(command)
            case Authorize():
                return call_for_credentials(command)
            case Sleep():
                self._cancelled.wait(command.seconds)
            case CloseConnection():
                self._connection.close()
            case _:
                assert_never(command)
        return None

    def _wait_for(self, command: OpenRequest | ReadBytes) -> HTTPResponseHead | bytes | None:
        result: HTTPResponseHead | bytes | None = None
        try:
            if not self._cancelled.is_set():
                read, send = self._connection.read, self._connection.open
                result = read(command.timeout) if isinstance(command, ReadBytes) else send(command)
        except ProviderError:
            if not self._cancelled.is_set():
                raise
        if (cancellation := self._cancellation) is not None:
            raise cancellation
        return result

    @property
    def _cancellation(self) -> ConnectionFailed | None:
        """The error of a stream that was cancelled."""
        is_cancelled = self._cancelled.is_set()
        return ConnectionFailed("the stream was cancelled", code="cancelled") if is_cancelled else None


class AsyncStream(StreamedResponse[Output]):
    """A response read in async code: `async with model.astream(...) as stream: async for chunk in stream: …`."""

    def __init__(self, exchange: Exchange, connection: AsyncConnection, derived: Derived = NOTHING) -> None:
        super().__init__(replace(exchange, new_decoding=partial(self._new_decoding, exchange)), derived)
        self._connection = connection
        self._chunks: AsyncIterator[StreamChunk] | None = None
        self._is_slow: IsSlow | None = None  # whether it may take long to decode some bytes, if it ever does
        self._parts: Parts | None = None  # what of a read the stages have not read yet
        self._waiting: list[StreamChunk] = []  # the chunks of a long batch that were not delivered yet

    def _new_decoding(self, exchange: Exchange) -> Decoding:
        decoding = exchange.new_decoding()
        self._is_slow = getattr(decoding, "is_slow", None)
        self._parts = getattr(decoding, "parts", None)
        if self._parts is not None:
            self._parts.is_used = True
        return decoding

    async def __aenter__(self) -> Self:
        try:
            chunks = await self._advance()
            while chunks is not None and not chunks:  # only a part of the first read that begins nothing yet
                await asyncio.sleep(0)
                chunks = await self._advance()
            self._before_loop = self._first_of(chunks)
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __aiter__(self) -> AsyncIterator[StreamChunk]:
        self._begin_reading()
        return self._read()

    async def __anext__(self) -> StreamChunk:
        if self._chunks is None:
            self._chunks = aiter(self)
        return await anext(self._chunks)

    async def start(self) -> list[StreamChunk]:
        """Send the request, wait for the first chunks and return them; `next_batch` returns the others."""
        self._begin_reading()
        await self.__aenter__()
        return self._before_loop or []

    async def next_batch(self, take: Take | None = None) -> list[StreamChunk] | None:
        """The chunks of the next network read, of which there may be none; None at the end of the response.

        For callers that started the stream with `start` and close it themselves: it costs less than an iterator. `take`
        is called with the bytes of each read; bytes that it does not pass on are decoded.
        """
        if self._waiting:
            await asyncio.sleep(0)
            return self._first_of(self._waiting)
        data, body, clock, read = None, self._body, self._clock, self._connection.read
        parts = self._parts
        if parts is not None and parts.has_more:
            await asyncio.sleep(0)
        while body is not None and clock() <= body.steady_until:
            try:
                if parts is not None and parts.has_more:
                    return self._first_of(self._read_parts(parts, body.feed))
                data = await read(body.timeout)
                if not data:
                    break
                if take is None or body.passed > MAX_PASSED or not (taken := take(data)):
                    if self._is_slow is None or not self._is_slow(data):
                        chunks = body.feed(data)
                    else:
                        chunks = await run_off_loop(body.feed, data)
                    return chunks if len(chunks) <= BATCH_CHUNKS else self._first_of(chunks)
            except ProviderError as failure:
                return self._first_of(await self._advance(error=failure))
            body.passed += len(data)
            if body.record is not None:
                body.record(data)
            if taken is not True:
                await taken
            data = None
        return self._first_of(await self._advance(data))

    def _first_of(self, chunks: list[StreamChunk] | None) -> list[StreamChunk] | None:
        """The first chunks of a batch; the others are delivered next, after a turn of the event loop."""
        if chunks is None or len(chunks) <= BATCH_CHUNKS:
            self._waiting = []
            return chunks
        self._waiting = chunks[BATCH_CHUNKS:]
        return chunks[:BATCH_CHUNKS]

    def _read_parts(self, parts: Parts, feed: Callable[[bytes], list[StreamChunk]]) -> list[StreamChunk]:
        """The chunks of the next parts of a read, of as many as take a moment."""
        end = self._clock() + PART_SECONDS
        chunks = [*feed(b"")]
        while parts.has_more and self._clock() < end:
            chunks += feed(b"")
        return chunks

    def batches(self) -> AsyncIterator[list[StreamChunk]]:
        """Iterate over the chunks of each network read as a list, instead of one by one.

        For callers that fold the chunks themselves: `turn` and the other properties stay empty.
        """
        self._begin_reading()
        return self._batches()

    async def close(self) -> None:
        """Close the connection; the properties keep what was read."""
        self._is_closed = True
        self._commands.close()
        await self._connection.close()

    def abort(self) -> None:
        """Break the connection now; whoever reads the stream is cancelled separately, or gets an error."""
        self._connection.abort()

    async def _read(self) -> AsyncIterator[StreamChunk]:
        unfolded, chunks, view = self._unfolded, self._before_loop, self._view
        try:
            while chunks is not None:
                for chunk in chunks:
                    unfolded.append(chunk)
                    yield chunk
                    for delta in view.feed(chunk) if view is not None else ():
                        yield delta
                self._fold_many()
                chunks = await self.next_batch()
        finally:
            await self.close()

    async def _batches(self) -> AsyncIterator[list[StreamChunk]]:
        chunks = self._before_loop
        try:
            while chunks is not None:
                if chunks:
                    yield chunks
                chunks = await self.next_batch()
        finally:
            await self.close()

    async def _step(self, result: Any, error: ProviderError | None) -> Command | None:
        if self._is_slow is None:
            return self._next(result, error)
        return await run_off_loop(self._next, result, error)  # which may end the response

    def _carry_out(self, command: Authorize | OpenRequest | ReadBytes | Sleep | CloseConnection) -> Awaitable[Any]:
        match command:
            case ReadBytes():
                return self._connection.read(command.timeout)
            case OpenRequest():
                return self._connection.open(command)
            case Authorize():
                return acall_for_credentials(command)
            case Sleep():
                return asyncio.sleep(command.seconds)
            case CloseConnection():
                return self._connection.close()
            case _:
                assert_never(command)

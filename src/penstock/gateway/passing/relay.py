"""Passes requests on to an upstream: bodies and responses stay as they are, except for the name of the model.

Keys, timeouts, retries, fallbacks and circuits are those of other requests. Responses are not healed, as there are no
calls in them, and there are no keep-alives, which could fall into the middle of a frame.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.errors import ConnectionFailed, MissingKeyError, ProviderError, UsageError
from penstock.events import Error, Finish, Progress, StreamChunk, Text
from penstock.gateway.answer import Circuit, Circuits, is_fault_of_upstream, may_fall_over
from penstock.gateway.asking import IMPATIENCE, PATIENCE, Caller, RouteRetries, open_stream, passed_exchange
from penstock.gateway.attempts import Attempts
from penstock.gateway.failures import from_event
from penstock.gateway.routing import Candidate
from penstock.model.stream import AsyncStream

logger = logging.getLogger("penstock.gateway")

URLOf = Callable[[Candidate, str], str]
"""The URL of an endpoint, given that of the chats of a candidate; raises a `UsageError` if it has no such endpoint."""


class PassedDecoding:
    """Decodes nothing: each read is a text with one character per byte."""

    def feed(self, data: bytes) -> list[StreamChunk]:
        return [Text(0, data.decode("latin-1"))]

    def progress(self) -> Progress:
        return "open"

    def close(self) -> list[StreamChunk]:
        return [Finish("stop")]


class Passed(Struct):
    """A response that has begun; `first` are its first bytes."""

    candidate: Candidate
    stream: AsyncStream
    first: bytes
    circuit: Circuit

    async def next(self) -> bytes | None:
        """The next bytes; None at the end. Raises a `ProviderError` if the response breaks off."""
        chunks = await self.stream.next_batch()
        if chunks is None:
            self.circuit.succeeded()
            return None
        return self._bytes(chunks)

    def _bytes(self, chunks: Sequence[StreamChunk]) -> bytes:
        try:
            return bytes_of(chunks)
        except ProviderError:
            self.circuit.failed()
            raise

    async def rest(self) -> bytes:
        """The whole response."""
        pieces = [self.first]
        while (piece := await self.next()) is not None:
            pieces.append(piece)
        return b"".join(pieces)


def bytes_of(chunks: Sequence[StreamChunk]) -> bytes:
    """The bytes of chunks; raises the error among them."""
    for chunk in chunks:
        if isinstance(chunk, Error):
            raise from_event(chunk)
    return "".join(chunk.text for chunk in chunks if isinstance(chunk, Text)).encode("latin-1")


async def pass_on(
    candidates: Sequence[Candidate],
    body: Mapping[str, Any],
    url_of: URLOf,
    caller: Caller,
    circuits: Circuits,
    attempts: Attempts,
) -> Passed:
    """The response of the first upstream that starts one; if none does, raises the last upstream's error."""
    chosen = circuits.in_order(candidates)
    for number, candidate in enumerate(chosen, 1):
        circuit, is_last = circuits.of(candidate), number == len(chosen)
        attempts.ask(candidate)
        try:
            passed = await _open(candidate, body, url_of, caller, circuit, has_fallback=not is_last)
        except (ProviderError, MissingKeyError) as error:
            if isinstance(error, ProviderError) and is_fault_of_upstream(error):
                circuit.failed(error.retry_after)
            attempts.fail(str(error))
            if is_last or not may_fall_over(error):
                raise
            logger.warning("request %s: %s failed, another is asked: %s", caller.id, candidate.upstream.name, error)
        except UsageError as error:  # this upstream has no such endpoint
            attempts.fail(str(error))
            if is_last:
                raise
        else:
            circuit.answers()
            return passed
    raise ConnectionFailed("there is no upstream to ask")


async def _open(
    candidate: Candidate,
    body: Mapping[str, Any],
    url_of: URLOf,
    caller: Caller,
    circuit: Circuit,
    *,
    has_fallback: bool,
) -> Passed:
    attempts = 0 if circuit.is_open else candidate.upstream.retries
    retries = RouteRetries(attempts=attempts, longest_wait=IMPATIENCE if has_fallback else PATIENCE)
    exchange = passed_exchange(candidate, caller, retries)
    sent = exchange.request
    content = msgspec.json.encode({**body, "model": candidate.model})
    exchange = replace(
        exchange,
        request=replace(sent, url=url_of(candidate, sent.url), content=content),
        new_decoding=PassedDecoding,
        recorder=None,
    )
    circuit.begin()
    stream = open_stream(candidate, exchange)
    try:
        return Passed(candidate, stream, bytes_of(await stream.start()), circuit)
    except BaseException:
        await stream.close()
        raise

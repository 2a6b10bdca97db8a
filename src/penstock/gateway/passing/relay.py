"""Passes requests on to an upstream: bodies and responses stay as they are, except for the name of the model and keys.

Keys, timeouts, retries, fallbacks and circuits are those of other requests. Responses are not healed, as there are no
calls in them, and there are no keep-alives, which could fall into the middle of a frame.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.errors import ProviderError
from penstock.events import Error, Finish, Progress, StreamChunk, Text, Unknown
from penstock.gateway.asking import IMPATIENCE, PATIENCE, Caller, RouteRetries, open_stream, passed_exchange
from penstock.gateway.attempts import Attempts
from penstock.gateway.failures import from_event
from penstock.gateway.fallbacks import Circuit, Circuits, choose, first_response
from penstock.gateway.routing import Candidate
from penstock.model.stream import AsyncStream

URLOf = Callable[[Candidate, str], str]
"""The URL of an endpoint, given that of the chats of a candidate; raises a `MissingEndpoint` if it has none."""


class PassedDecoding:
    """Decodes nothing: the complete lines of each read are a text with one character per byte.

    Lines with an error are `Unknown`, in which the exchange masks keys: a server may repeat the one that it got.
    """

    def __init__(self) -> None:
        self._rest: list[bytes] = []  # pieces of a line

    def feed(self, data: bytes) -> list[StreamChunk]:
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not end:
            self._rest.append(data)
            return []
        lines, self._rest = b"".join((*self._rest, data[:end])), [data[end:]]
        return _chunks(lines)

    def progress(self) -> Progress:
        return "open"

    def close(self) -> list[StreamChunk]:
        rest, self._rest = b"".join(self._rest), []
        return [*_chunks(rest), Finish("stop")]


_ERROR = b'"error"'


def _chunks(lines: bytes) -> list[StreamChunk]:
    if _ERROR not in lines:
        return [Text(0, lines.decode("latin-1"))] if lines else []
    texts = ((line.decode("latin-1"), _ERROR in line) for line in lines.splitlines(keepends=True))
    return [Unknown(text) if has_error else Text(0, text) for text, has_error in texts]


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

    async def read(self) -> None:
        """Read the whole response into `first`. Raises a `ProviderError` if it breaks off."""
        pieces = [self.first]
        try:
            while (chunks := await self.stream.next_batch()) is not None:
                pieces.append(bytes_of(chunks))
        finally:
            await self.stream.close()
        self.first = b"".join(pieces)
        self.circuit.succeeded()


def bytes_of(chunks: Sequence[StreamChunk]) -> bytes:
    """The bytes of chunks; raises the error among them."""
    for chunk in chunks:
        if isinstance(chunk, Error):
            raise from_event(chunk)
    return "".join(map(_text, chunks)).encode("latin-1")


def _text(chunk: StreamChunk) -> str:
    match chunk:
        case Text():
            return chunk.text
        case Unknown(raw=str(text)):
            return text
    return ""


async def pass_on(
    candidates: Sequence[Candidate],
    body: Mapping[str, Any],
    url_of: URLOf,
    caller: Caller,
    circuits: Circuits,
    attempts: Attempts,
    *,
    is_whole: bool = False,
) -> Passed:
    """The response of the first upstream that starts one; if none does, raises the last upstream's error.

    One that `is_whole` is read to its end: nothing was sent yet, so a fallback may replace it if it breaks off.
    """

    async def open_one(candidate: Candidate, has_fallback: bool) -> Passed:
        passed = await _open(candidate, body, url_of, caller, circuits.of(candidate), has_fallback=has_fallback)
        if is_whole:
            await passed.read()
        return passed

    return await first_response(choose(candidates, circuits, attempts), open_one, caller, circuits, attempts)


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

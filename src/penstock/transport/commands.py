"""The commands of an exchange, which a driver carries out with its own kind of I/O."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any

from msgspec import Struct

from penstock.errors import TimedOut
from penstock.events import StreamChunk
from penstock.redaction import without_secrets

MAX_PASSED = 1024 * 1024
"""How many bytes of a response may be passed on before some are fed, which counts them."""


Take = Callable[[bytes], Awaitable[None] | bool]
"""Passes on the bytes of a read that are text: False if they are to be decoded; else True, or what is to be awaited."""


class HTTPRequest(Struct, frozen=True):
    """An HTTP POST request. Its headers hold the API key, so that its `repr` leaves them out.

    `content` is its body, in parts if requests of one conversation share them.
    """

    url: str
    headers: Mapping[str, str]
    content: bytes | tuple[bytes, ...]

    @property
    def body(self) -> bytes:
        """The whole body, which is joined each time if it has several parts."""
        return self.content if isinstance(self.content, bytes) else b"".join(self.content)

    def __repr__(self) -> str:
        size = len(self.content) if isinstance(self.content, bytes) else sum(map(len, self.content))
        return f"HTTPRequest({without_secrets(self.url)!r}, {size} bytes)"


class Credentials(Struct, frozen=True):
    """Credentials that are made for each attempt, as they expire: `call` returns a value, maybe to be awaited.

    `call` may block, so that async code calls it in a thread. `headers` makes headers of the value.
    """

    call: Callable[[], Any]
    headers: Callable[[Any], Mapping[str, str]]


class Authorize(Struct, frozen=True):
    """Call this, await its result if it must be awaited, and return it; the timeout is in seconds."""

    call: Callable[[], Any]
    timeout: float | None


class OpenRequest(Struct, frozen=True):
    """Send the request and return the `HTTPResponseHead`; the timeouts are in seconds."""

    request: HTTPRequest
    connect: float | None
    first_byte: float | None


class HTTPResponseHead(Struct, frozen=True):
    """The status and the headers of a response."""

    status: int
    headers: Mapping[str, str]


class ReadBytes(Struct, frozen=True):
    """Return the next bytes of the response, empty at its end; raise `ReadTimedOut` after `timeout` seconds."""

    timeout: float | None


class ReadTimedOut(TimedOut):
    """A wait exceeded its timeout; the exchange knows which of its time limits that was."""


class Sleep(Struct, frozen=True):
    """Wait before the next attempt, or, if it is not a retry, before the first one."""

    seconds: float
    is_retry: bool = True


class SteadyBody(Struct):
    """The rest of a response that has begun: until a time of the exchange's clock, each read has the same timeout.

    A driver may pass on bytes that it knows to be nothing but text, without feeding them: it calls `record`, if there
    is a recorder, and adds their number to `passed`, up to `MAX_PASSED`.
    """

    timeout: float | None
    feed: Callable[[bytes], list[StreamChunk]]
    steady_until: float
    record: Callable[[bytes], None] | None = None
    passed: int = 0


class Deliver(Struct, frozen=True):
    """Pass the chunks to the reader of the stream.

    With a `body`, a driver may skip the commands that follow: it reads with the body's timeout, delivers what `feed`
    returns for the bytes, and sends back the empty bytes of the end or throws the error, also one that `feed` raises. A
    driver that sends back None, as it must when the body is no longer steady, gets the next command instead.
    """

    chunks: list[StreamChunk]
    body: SteadyBody | None = None


class CloseConnection(Struct, frozen=True):
    """Close the connection if it is open."""


Command = Authorize | OpenRequest | ReadBytes | Sleep | Deliver | CloseConnection
Commands = Generator[Command, Any, None]

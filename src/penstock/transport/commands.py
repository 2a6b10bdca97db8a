"""The commands of an exchange, which a driver carries out with its own kind of I/O."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Mapping
from typing import Any, Protocol

from msgspec import Struct

from penstock.errors import TimedOut
from penstock.events import StreamChunk
from penstock.redaction import without_secrets

MAX_PASSED = 1024 * 1024
"""How many bytes of a response may be passed on before the next ones are fed, which checks the size of the response."""


ON_SOCKET = "on_socket"
"""The place of a request that any WebSocket can take, and that has no meaning over HTTP."""
PLACE_LOST = "place_lost"
"""The error code of a request that continues on a connection which is closed or was used since."""
NO_WEBSOCKET = "no_websocket"
"""The error code of a request that has a meaning only on a WebSocket, which the server does not speak."""

Take = Callable[[bytes], Awaitable[None] | bool]
"""Passes on the bytes of a read if they are text: False if they must be decoded; else True, or what must be awaited."""


class Parts(Protocol):
    """What of the last read the stages have not read yet, if a driver on an event loop has set `is_used`.

    While there is more, empty bytes are fed, and each time the stages read a part.
    """

    is_used: bool
    has_more: bool


class HTTPRequest(Struct, frozen=True):
    """An HTTP POST request. Its headers hold the API key, so its `repr` leaves them out.

    `content` is its body, in parts if requests of one conversation share them. With the name of a `server`, errors have
    it in place of addresses: whoever reads them may not know where the server is. `place` is the connection that it
    continues on, because only there the server remembers what it leaves out; it must not be sent on any other.
    """

    url: str
    headers: Mapping[str, str]
    content: bytes | tuple[bytes, ...]
    server: str = ""
    place: Any = None

    @property
    def body(self) -> bytes:
        """The whole body, which is joined each time if it has several parts."""
        return self.content if isinstance(self.content, bytes) else b"".join(self.content)

    def __repr__(self) -> str:
        size = len(self.content) if isinstance(self.content, bytes) else sum(map(len, self.content))
        return f"HTTPRequest({without_secrets(self.url)!r}, {size} bytes)"


class Credentials(Struct, frozen=True):
    """Credentials that are made for each attempt, as they expire: `call` returns a value, or an awaitable of it.

    `call` may block, so async code calls it in a thread. `headers` makes the headers of a request from the value.
    """

    call: Callable[[], Any]
    headers: Callable[[Any], Mapping[str, str]]


class Authorize(Struct, frozen=True):
    """Call the function, await its result if that is awaitable, and return it; the timeout is in seconds."""

    call: Callable[[], Any]
    timeout: float | None


class OpenRequest(Struct, frozen=True):
    """Send the request and return the `HTTPResponseHead`; the timeouts are in seconds."""

    request: HTTPRequest
    connect: float | None
    first_byte: float | None


class HTTPResponseHead(Struct, frozen=True):
    """The status and the headers of a response; `place` if a later request can continue on its connection."""

    status: int
    headers: Mapping[str, str]
    place: Any = None


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
    """The rest of a response that has begun. Until `steady_until`, on the exchange's clock, each read has one timeout.

    A driver may pass on bytes that it knows to be nothing but text instead of feeding them: then it calls `record`, if
    there is a recorder, and adds their number to `passed`, up to `MAX_PASSED`.
    """

    timeout: float | None
    feed: Callable[[bytes], list[StreamChunk]]
    steady_until: float
    record: Callable[[bytes], None] | None = None
    passed: int = 0


class Deliver(Struct, frozen=True):
    """Pass the chunks to the reader of the stream.

    With a `body`, a driver may read the response itself, without a command per read: it reads with the body's timeout
    and delivers what `feed` returns for the bytes. At the end it sends back empty bytes; an error, also one that `feed`
    raises, it throws into the generator. When the body is no longer steady, it sends back None and gets the next
    command.
    """

    chunks: list[StreamChunk]
    body: SteadyBody | None = None


class CloseConnection(Struct, frozen=True):
    """Close the connection if it is open."""


Command = Authorize | OpenRequest | ReadBytes | Sleep | Deliver | CloseConnection
Commands = Generator[Command, Any, None]

"""A request to a server: its head, and its body within the limits."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, MutableMapping
from contextlib import contextmanager
from functools import partial
from typing import Any, ParamSpec, TypeVar
from urllib.parse import parse_qsl

import msgspec

from penstock.asgi.limits import ServerLimits
from penstock.asgi.shares import BYTES_PER_VALUE, MEMORY_PER_BYTE, Connection, Connections, MemoryBudget, Share
from penstock.asgi.turns import LONG_BODY, Turns
from penstock.jsontext.meter import MAX_DIGITS, JSONMeter
from penstock.jsontext.shown_text import escape
from penstock.transport.threads.off_loop import TURN, run_off_loop

P = ParamSpec("P")
T = TypeVar("T")
Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


RETRY_SOON = {"retry-after": "1"}
TOO_MUCH = "the requests of this client that are being read or answered are too large together: send fewer at once"


class RejectedRequest(Exception):
    """An error response: its status, a code for programs, and a message that says what to do."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        self.message = escape(message)  # it may quote the client or a server
        super().__init__(self.message)
        self.status = status
        self.code = code
        self.headers = dict(headers or {})


class ClientGone(Exception):
    """The client disconnected before its request was complete, or during the response."""


class HTTPRequest:
    """One request. `id` identifies it in responses, log records and metrics."""

    def __init__(
        self, scope: Scope, receive: Receive, limits: ServerLimits, id: str, budget: MemoryBudget | None = None,
        turns: Turns | None = None,
    ) -> None:  # fmt: skip
        self.scope = scope
        self.id = id
        self.share = Share(f"address {_address(scope)}")
        self.size = 0  # bytes of the body that have come
        self._budget = budget
        self._turns = turns
        self._held = 0  # bytes of the budget
        self._values = 0  # how many JSON values the body has so far
        self._is_begun = False  # whether it counts as a connection of its client
        self.method: str = scope["method"]
        self.path = _path(scope)
        self.headers: dict[str, str] = {
            name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]
        }
        self._receive = receive
        self.limits = limits

    def values(self, name: str) -> list[str]:
        """All values of a repeated header; `headers` has the last."""
        header = name.encode("latin-1")
        return [value.decode("latin-1") for key, value in self.scope["headers"] if key.lower() == header]

    @property
    def query(self) -> dict[str, str]:
        """The parameters of the query; the last value of each."""
        return dict(parse_qsl(self.scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True))

    @property
    def client(self) -> str:
        """The address of the client; empty if the server listens on a Unix socket."""
        forwarded: str = self.scope.get("penstock.forwarded", "")
        return forwarded or _address(self.scope)

    def use(self, share: Share) -> None:
        """Use the share of a client, who is known now, for the connection, the body and long work."""
        self.share = share
        if self._turns is not None:
            TURN.set(partial(self._turns.turn, share))
        connection: Connection | None = self.scope.get("penstock.connection")
        connections: Connections | None = self.scope.get("penstock.connections")
        if connection is None or connections is None or share.is_trusted:
            return
        if connection.is_counted_by_request:
            self._is_begun = is_within = connections.begin(share)
        else:
            is_within = not share.is_known or connections.know(connection, share)
        if not is_within:
            raise RejectedRequest(
                429, "too_many_connections", "this client has too many open connections: close some", RETRY_SOON
            )

    def release(self) -> None:
        """Give back what the request has used of its client's share."""
        if self._budget is not None and self._held:
            self._budget.give_back(self.share, self._held)
            self._held = 0
        if self._is_begun:
            self._is_begun = False
            self.scope["penstock.connections"].end(self.share)

    async def body(self, measure: Callable[[bytes], None] | None = None) -> bytes:
        """The body, within the size limit and the timeout; `measure` may reject it with each piece."""
        if self._length > self.limits.body:
            raise self._too_large()
        self._hold(self._length)
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                return await self._read(measure)
        except TimeoutError:
            raise RejectedRequest(
                408, "body_timeout", f"the body took longer than {self.limits.body_seconds:g} seconds"
            ) from None

    async def json(self, keep: Callable[[bytes], None] | None = None) -> Any:
        """The JSON in the body; `keep` gets its bytes."""
        kind = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise RejectedRequest(
                415, "json_required", "the body must be JSON: send the header Content-Type: application/json"
            )
        if (coding := self.headers.get("content-encoding", "").strip().lower()) not in ("", "identity"):
            raise RejectedRequest(
                415, "compressed", f"bodies in the encoding {coding!r} are not read: send JSON without Content-Encoding"
            )
        meter = JSONMeter()
        body = await self.body(partial(self._measure, meter))
        if keep is not None:
            keep(body)
        try:
            with uncollected():
                return msgspec.json.decode(body)
        except (msgspec.MsgspecError, ValueError, RecursionError) as error:
            raise RejectedRequest(400, "not_json", f"the body is not JSON: {error}") from None

    async def work(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a function that works on the body: at once if that is short, else in a thread, in turns."""
        if self.size < LONG_BODY:
            return function(*args, **kwargs)
        waiting = 0 if self._turns is None or self.share.is_trusted else self._turns.waiting(self.share)
        if waiting >= self.limits.waiting:
            raise RejectedRequest(429, "too_much_at_once", TOO_MUCH, RETRY_SOON)
        return await run_off_loop(function, *args, **kwargs)

    async def wait_for_disconnect(self) -> None:
        """Wait until the client closes the connection."""
        while (await self._receive())["type"] != "http.disconnect":
            pass

    async def unless_gone(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of some work; if the client disconnects first, cancels the work and raises `ClientGone`."""
        task, watcher = asyncio.create_task(work), asyncio.create_task(self.wait_for_disconnect())
        try:
            await asyncio.wait({task, watcher}, return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ClientGone
            return task.result()
        finally:
            for each in (task, watcher):
                each.cancel()
            await asyncio.gather(task, watcher, return_exceptions=True)

    @property
    def _length(self) -> int:
        """The declared length of the body, of at most 18 digits: Python does not parse thousands."""
        length = self.headers.get("content-length", "")[:18]
        return int(length) if length.isascii() and length.isdigit() else 0

    async def _read(self, measure: Callable[[bytes], None] | None) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            piece = message.get("body", b"")
            self.size = size = size + len(piece)
            if size > self.limits.body:
                raise self._too_large()
            if measure is not None:
                measure(piece)
            self._hold(max(size, self._length) + BYTES_PER_VALUE * self._values)
            pieces.append(piece)
            if not message.get("more_body"):
                return b"".join(pieces)

    def _measure(self, meter: JSONMeter, piece: bytes) -> None:
        """Reject JSON that would take long to decode, before all of it is there."""
        meter.feed(piece)
        self._values = meter.values
        if meter.depth > self.limits.depth:
            raise RejectedRequest(400, "too_deep", f"the JSON is nested deeper than {self.limits.depth} levels")
        if meter.values > self.limits.values:
            raise RejectedRequest(413, "too_many_values", f"the JSON has more than {self.limits.values} values")
        if meter.is_long:
            raise RejectedRequest(400, "number_too_long", f"the JSON has a number of more than {MAX_DIGITS} digits")

    def _hold(self, size: int) -> None:
        """Hold as many bytes of the budget, for a body of which this many are there or announced, and its values."""
        if self._budget is None or size <= self._held:
            return
        match self._budget.take(self.share, size - self._held):
            case None:
                self._held = size
            case "client" if size > self.limits.client_memory:
                raise self._too_large()
            case "client":
                raise RejectedRequest(429, "too_much_at_once", TOO_MUCH, RETRY_SOON)
            case "server":
                raise self._busy()

    def hold_response(self, size: int) -> None:
        """Hold as many bytes for a response, until the request is released."""
        held = size // MEMORY_PER_BYTE
        match None if self._budget is None else self._budget.take(self.share, held):
            case None:
                self._held += held
            case "client":
                raise RejectedRequest(429, "too_much_at_once", TOO_MUCH, RETRY_SOON)
            case "server":
                raise self._busy()

    def _busy(self) -> RejectedRequest:
        return RejectedRequest(503, "busy", "the server holds too many requests: try again", RETRY_SOON)

    def _too_large(self) -> RejectedRequest:
        most = self.limits.body if self.share.is_trusted else min(self.limits.body, self.limits.client_memory)
        return RejectedRequest(413, "body_too_large", f"the body is larger than {most} bytes")


@contextmanager
def uncollected() -> Generator[None]:
    """Keep Python's collector from walking over objects that are just being made."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _path(scope: Scope) -> str:
    """The path below the place where the app is mounted."""
    path: str = scope["path"]
    root = scope.get("root_path", "")
    return path[len(root) :] or "/" if root and path.startswith(root) else path

"""Requests to a server as generators of commands without I/O: what to send, when to retry, when to give up.

A generator yields a command and gets its result, or an `UnreachableError` is thrown into it. The sync and the async
client carry out the commands.
"""

from __future__ import annotations

import random
from collections.abc import Generator, Mapping
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec
from msgspec import Struct

from penstock.errors import UsageError
from penstock.log.position import Position, parse_position
from penstock.serve.client.errors import RefusedError, ServerError, UnreachableError
from penstock.serve.runs.replies import ErrorFields, ErrorReply

FIRST_PAUSE = 0.2
LONGEST_PAUSE = 8.0
"""The first and the longest pause between two tries, in seconds."""
END_RETRIES = 1
"""How often the request for the messages of a finished run is retried: its reader waits for `done` meanwhile."""
MAX_FRAME = 16 * 1024 * 1024
"""How many bytes one event may have."""


class Send(Struct, frozen=True):
    """Send a request, and return the whole response."""

    method: str
    path: str
    body: bytes = b""
    key: str = ""  # an `Idempotency-Key`


class OpenStream(Struct, frozen=True):
    """Open a stream of events after a position; returns the response, without its body if it is a stream."""

    path: str
    after: Position


class ReadStream(Struct, frozen=True):
    """Return the next bytes of the stream; empty at its end."""


class Pause(Struct, frozen=True):
    """Wait."""

    seconds: float


class Ready(Struct, frozen=True):
    """Events for the reader: their positions, and what the server sent."""

    events: list[tuple[Position, dict[str, Any]]]


class Response(Struct, frozen=True):
    """The response to a request."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


Command = Send | OpenStream | ReadStream | Pause | Ready
T = TypeVar("T")
Exchange = Generator[Command, Any, T]


class Tries:
    """Counts unsuccessful tries in a row."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._made = 0

    def reset(self) -> None:
        self._made = 0

    def pause(self, error: ServerError) -> Pause:
        """How long to wait before the next try; raises the error if there is none."""
        self._made += 1
        if self._made > self._most or not _is_temporary(error):
            raise error
        doubled = FIRST_PAUSE * 2.0 ** min(self._made - 1, 1000)  # a float cannot hold 2**1024
        longest = min(doubled, LONGEST_PAUSE)
        return Pause(longest * random.uniform(0.5, 1.0))  # spreads clients that lost the same server


def run_path(run_id: str, below: str = "") -> str:
    """The path of a run, or below it; an id may have any characters."""
    return f"/runs/{quote(run_id, safe='')}{below}"


def request(method: str, path: str, body: Any = None, *, tries: int, key: str = "") -> Exchange[Any]:
    """Send a request; returns the JSON of the response. Each request of a client counts once, so it can be repeated."""
    count = Tries(tries)
    data = b"" if body is None else msgspec.json.encode(body)
    while True:
        try:
            response: Response = yield Send(method, path, data, key)
            return _json(response)
        except ServerError as error:
            pause = count.pause(error)
        yield pause


def follow(run_id: str, after: Position, *, tries: int) -> Exchange[None]:
    """The events of a run after a position, until `done`; after a lost connection, it continues with the next event."""
    path, count = run_path(run_id, "/events"), Tries(tries)
    while True:
        error: ServerError = UnreachableError("the stream of events ended before the run")
        try:
            response: Response = yield OpenStream(path, after)
            _check(response)
            frames = Frames()
            while data := (yield ReadStream()):
                events = frames.feed(data)
                if not events:
                    continue
                count.reset()
                after, last = events[-1]
                if last.get("type") == "done":
                    yield from _end(run_id, events, tries)
                    return
                yield Ready(events)
        except ServerError as problem:
            error = problem
        yield count.pause(error)


def messages_of(run_id: str, tries: int) -> Exchange[list[dict[str, Any]]]:
    """The messages of a run, as the server sends them."""
    reply = yield from request("GET", run_path(run_id, "/messages"), tries=tries)
    messages: list[dict[str, Any]] = reply["messages"]
    return messages


def _end(run_id: str, events: list[tuple[Position, dict[str, Any]]], tries: int) -> Exchange[None]:
    """The last events of a run: `done` comes last, with the messages, or without them if they fail."""
    *before, (number, done) = events
    if before:
        yield Ready(before)
    try:
        done["messages"] = yield from messages_of(run_id, min(tries, END_RETRIES))
    except (ServerError, KeyError, TypeError):
        done["messages"] = []  # the run has ended, and that must not be lost
    yield Ready([(number, done)])


class Frames:
    """Reads the frames of our own protocol: `id: 12-5f3a01c2`, `data: {…}`, and an empty line."""

    def __init__(self) -> None:
        self._open = bytearray()  # the frame whose end has not come

    def feed(self, data: bytes) -> list[tuple[Position, dict[str, Any]]]:
        """The events that are complete now."""
        start = max(len(self._open) - 1, 0)
        self._open += data
        blocks: list[bytes] = []
        if self._open.find(b"\n\n", start) >= 0:  # else nothing is read again
            *blocks, rest = bytes(self._open).split(b"\n\n")
            self._open = bytearray(rest)
        if len(self._open) > MAX_FRAME:
            raise RefusedError(502, "frame_too_large", f"an event is larger than {MAX_FRAME} bytes")
        return [event for block in blocks if (event := _event(block)) is not None]


def _event(block: bytes) -> tuple[Position, dict[str, Any]] | None:
    fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if b": " in line and not line.startswith(b":"))
    if b"data" not in fields:
        return None
    try:
        position = parse_position(fields.get(b"id", b"0").decode())
        return position, msgspec.json.decode(fields[b"data"], type=dict[str, Any])
    except (ValueError, UsageError, msgspec.MsgspecError):
        raise RefusedError(502, "unreadable", "this is not a stream of events of a penstock server") from None


def _json(response: Response) -> Any:
    _check(response)
    try:
        return msgspec.json.decode(response.body)
    except msgspec.MsgspecError:
        raise RefusedError(502, "unreadable", "the response is not JSON: is this a penstock server?") from None


def _check(response: Response) -> None:
    """Raise the error of an error response."""
    if response.status < 400:
        return
    try:
        error = msgspec.json.decode(response.body, type=ErrorReply).error
    except msgspec.MsgspecError:
        error = ErrorFields("", f"the server answered with status {response.status}")
    raise RefusedError(
        response.status, error.code, error.message, error.request_id, response.headers.get("x-run-id", "")
    )


def _is_temporary(error: ServerError) -> bool:
    """Whether the same request may work later."""
    return not isinstance(error, RefusedError) or (error.status in (429, 503, 504, 408))

"""A connector that plays a script in the process, without a server, at the same pace as over HTTP.

model = Model("anthropic:claude", via=Scripted([Reply(call("weather", {"city": "Rome"})), Reply("Sunny.")]))
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from urllib.parse import unquote, urlsplit

from penstock.errors import ConnectionFailed, UsageError
from penstock.testing.cuts import Cutting
from penstock.testing.faults import Hang, Reset
from penstock.testing.reply import Drop, Wait
from penstock.testing.request import JSONParts, ReceivedRequest, route_request
from penstock.testing.response import Response, recut, respond
from penstock.testing.script import Responder, Step, as_script
from penstock.testing.wires.play import SendAction
from penstock.transport.commands import HTTPResponseHead, OpenRequest, ReadTimedOut

FOREVER = 3600.0
Respond = Callable[[OpenRequest], Response | Hang | Reset]


class Scripted:
    """A connector that plays a script. `requests` are those received; with `strict`, invalid requests are rejected.

    See `Loopback` for the options.
    """

    def __init__(
        self,
        script: Responder | Iterable[Step | str] | Step | str,
        *,
        pace: float = 0,
        cuts: Cutting = None,
        strict: bool = False,
    ) -> None:
        list(recut([b""], cuts))  # a wrong value is reported here, not in the middle of a response
        self.requests: list[ReceivedRequest] = []
        self._script = as_script(script)
        self._pace = pace
        self._cuts: Cutting = cuts
        self._is_strict = strict

    def connect(self) -> PlayedConnection:
        return PlayedConnection(self._respond)

    def aconnect(self) -> AsyncPlayedConnection:
        return AsyncPlayedConnection(self._respond)

    def _respond(self, command: OpenRequest) -> Response | Hang | Reset:
        path = unquote(urlsplit(command.request.url).path)
        content = command.request.content
        parts = JSONParts((content,) if isinstance(content, bytes) else content)
        request = route_request(path, parts, command.request.headers)
        if request is None:
            raise UsageError(f"no wire has the path {path!r}")
        self.requests.append(request)
        played = respond(self._script, request, self._is_strict)
        if not isinstance(played, Response):
            return played
        actions = recut(played.actions, self._cuts)
        paced = chain.from_iterable((action, Wait(self._pace)) if self._pace else (action,) for action in actions)
        return Response(played.status, played.headers, tuple(paced))


class Playback:
    """The part that both connections share: the pieces still to come, and the pause before each."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self._actions: Iterator[SendAction] = iter(())

    def _open(self, command: OpenRequest) -> HTTPResponseHead | Hang:
        match self._respond(command):
            case Response() as played:
                self._actions = iter(played.actions)
                return HTTPResponseHead(played.status, played.headers)
            case Reset():
                raise ConnectionFailed("the connection broke", retryable=True)
            case Hang() as hang:
                return hang

    def _next(self, seconds: float | None) -> tuple[float, bytes]:
        """The seconds to wait, and the bytes that arrive then; raises if the connection breaks."""
        waited = 0.0
        for action in self._actions:
            match action:
                case Wait():
                    waited += action.seconds
                case bytes():
                    return waited, action
                case Drop() if not action.is_clean:
                    raise ConnectionFailed("the connection broke", retryable=True)
                case Drop():
                    break
        return waited, b""


class PlayedConnection(Playback):
    """A blocking connection."""

    def __init__(self, respond: Respond) -> None:
        super().__init__(respond)
        self._aborted = threading.Event()

    def open(self, command: OpenRequest) -> HTTPResponseHead:
        head = self._open(command)
        if isinstance(head, Hang):
            self._aborted.wait(min(_length_of(head), command.first_byte or FOREVER))
            raise _end_of(head, command)
        return head

    def read(self, seconds: float | None) -> bytes:
        wait, data = self._next(seconds)
        if self._aborted.wait(wait if seconds is None else min(wait, seconds)):
            raise ConnectionFailed("the connection broke", retryable=True)
        if seconds is not None and wait > seconds:
            raise ReadTimedOut("no data received in time")
        return data

    def abort(self) -> None:
        self._aborted.set()

    def close(self) -> None:
        self._actions = iter(())


class AsyncPlayedConnection(Playback):
    """An async connection."""

    async def open(self, command: OpenRequest) -> HTTPResponseHead:
        head = self._open(command)
        if isinstance(head, Hang):
            await asyncio.sleep(min(_length_of(head), command.first_byte or FOREVER))
            raise _end_of(head, command)
        return head

    async def read(self, seconds: float | None) -> bytes:
        wait, data = self._next(seconds)
        await asyncio.sleep(wait if seconds is None else min(wait, seconds))
        if seconds is not None and wait > seconds:
            raise ReadTimedOut("no data received in time")
        return data

    def abort(self) -> None:
        self._actions = iter(())

    async def close(self) -> None:
        self._actions = iter(())


def _length_of(hang: Hang) -> float:
    return FOREVER if hang.seconds is None else hang.seconds


def _end_of(hang: Hang, command: OpenRequest) -> ConnectionFailed | ReadTimedOut:
    if command.first_byte is not None and _length_of(hang) > command.first_byte:
        return ReadTimedOut("no data received in time")
    return ConnectionFailed("the connection broke", retryable=True)

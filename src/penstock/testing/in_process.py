"""A way to a model without any server: what would go over HTTP is played within the process, at the same pace.

model = Model("anthropic:claude", via=Scripted([Reply(call("weather", {"city": "Rome"})), Reply("Sunny.")]))
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from urllib.parse import unquote, urlsplit

import msgspec

from penstock.errors import ConnectionFailed, UsageError
from penstock.testing.cuts import Cutting
from penstock.testing.faults import Hang, Reset
from penstock.testing.reply import Drop, Wait
from penstock.testing.request import Asked, asked_at
from penstock.testing.response import Response, recut, respond
from penstock.testing.script import Answer, Step, as_script
from penstock.testing.wires.play import Beat
from penstock.transport.exchange import Head, Open, ReadTimedOut

FOREVER = 3600.0
Respond = Callable[[Open], Response | Hang | Reset]


class Scripted:
    """Plays a script; `requests` is what was asked. A `strict` one refuses what the real provider refuses."""

    def __init__(
        self,
        script: Answer | Iterable[Step | str] | Step | str,
        *,
        pace: float = 0,
        cuts: Cutting = None,
        strict: bool = False,
    ) -> None:
        list(recut([b""], cuts))  # a wrong one is told here, not in the middle of a response
        self.requests: list[Asked] = []
        self._script = as_script(script)
        self._pace = pace
        self._cuts: Cutting = cuts
        self._is_strict = strict

    def connect(self) -> PlayedConnection:
        return PlayedConnection(self._respond)

    def aconnect(self) -> AsyncPlayedConnection:
        return AsyncPlayedConnection(self._respond)

    def _respond(self, command: Open) -> Response | Hang | Reset:
        path = unquote(urlsplit(command.outgoing.url).path)
        asked = asked_at(path, msgspec.json.decode(command.outgoing.body), command.outgoing.headers)
        if asked is None:
            raise UsageError(f"no wire has the path {path}")
        self.requests.append(asked)
        played = respond(self._script, asked, self._is_strict)
        if not isinstance(played, Response):
            return played
        beats = recut(played.beats, self._cuts)
        paced = chain.from_iterable((beat, Wait(self._pace)) if self._pace else (beat,) for beat in beats)
        return Response(played.status, played.headers, tuple(paced))


class Played:
    """What two connections share: the pieces that are still to come, and how long to wait before each."""

    def __init__(self, respond: Respond) -> None:
        self._respond = respond
        self._beats: Iterator[Beat] = iter(())

    def _open(self, command: Open) -> Head | Hang:
        match self._respond(command):
            case Response() as played:
                self._beats = iter(played.beats)
                return Head(played.status, played.headers)
            case Reset():
                raise ConnectionFailed("the connection broke", retryable=True)
            case Hang() as hang:
                return hang

    def _next(self, seconds: float | None) -> tuple[float, bytes]:
        """How long to wait, and what comes then; raises if that is too late, or the connection breaks."""
        waited = 0.0
        for beat in self._beats:
            match beat:
                case Wait():
                    waited += beat.seconds
                case bytes():
                    return waited, beat
                case Drop() if not beat.is_clean:
                    raise ConnectionFailed("the connection broke", retryable=True)
                case Drop():
                    break
        return waited, b""


class PlayedConnection(Played):
    """A played answer for plain code."""

    def __init__(self, respond: Respond) -> None:
        super().__init__(respond)
        self._aborted = threading.Event()

    def open(self, command: Open) -> Head:
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
            raise ReadTimedOut("nothing came in time")
        return data

    def abort(self) -> None:
        self._aborted.set()

    def close(self) -> None:
        self._beats = iter(())


class AsyncPlayedConnection(Played):
    """A played answer for async code."""

    async def open(self, command: Open) -> Head:
        head = self._open(command)
        if isinstance(head, Hang):
            await asyncio.sleep(min(_length_of(head), command.first_byte or FOREVER))
            raise _end_of(head, command)
        return head

    async def read(self, seconds: float | None) -> bytes:
        wait, data = self._next(seconds)
        await asyncio.sleep(wait if seconds is None else min(wait, seconds))
        if seconds is not None and wait > seconds:
            raise ReadTimedOut("nothing came in time")
        return data

    async def close(self) -> None:
        self._beats = iter(())


def _length_of(hang: Hang) -> float:
    return FOREVER if hang.seconds is None else hang.seconds


def _end_of(hang: Hang, command: Open) -> ConnectionFailed | ReadTimedOut:
    if command.first_byte is not None and _length_of(hang) > command.first_byte:
        return ReadTimedOut("nothing came in time")
    return ConnectionFailed("the connection broke", retryable=True)

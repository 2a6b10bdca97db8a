"""Passes on the bytes of a response in the callback in which they arrive, without waking the task that reads it.

Waking a task costs more than everything else that is done for a small piece of text. A `StreamReader` of aiohttp sets
the result of a future when it has bytes. `PassedReads` is such a future: it passes the bytes on at that moment and
keeps waiting. Its task is woken only for what it has to handle itself: bytes that must be decoded, a client that reads
slowly, the end of the response, an error.

The reference is `read` of the connection: it returns everything that was not passed on, and it is the only way for
connections of other HTTP clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from math import inf
from typing import Any

from penstock.transport.commands import MAX_PASSED, SteadyBody, Take


class PassedReads(asyncio.Future[Awaitable[None] | None]):
    """A future that resolves when its task has to take over: to call `read`, or to await the result first.

    Bytes that are not passed on stay in the reader.
    """

    __slots__ = ("_body", "_clock", "_content", "_take", "_time", "deadline")

    def __init__(self, content: Any, body: SteadyBody, take: Take, clock: Callable[[], float]) -> None:
        super().__init__(loop=content._loop)
        self._content = content
        self._body = body
        self._take = take
        self._clock = clock  # clock of the body; deadlines of reads use the time of the event loop
        self._time = content._loop.time
        self.deadline = inf if body.timeout is None else self._time() + body.timeout

    def begin(self) -> bool:
        """Wait for the next bytes; False if `read` would return, or raise, without waiting."""
        content = self._content
        if content._buffer or content._eof or content._exception or content._waiter or not content._protocol.connected:
            return False
        content._waiter = self
        return True

    def end(self) -> None:
        """Stop waiting."""
        if self._content._waiter is self:
            self._content._waiter = None

    def set_result(self, result: Awaitable[None] | None) -> None:
        """Called by the reader when it has bytes, or has reached the end of an HTTP chunk or of the body."""
        content, body = self._content, self._body
        if not content._buffer:
            if content._eof:
                super().set_result(None)
            else:
                content._waiter = self
            return
        data = content._buffer[0]
        is_steady = body.passed <= MAX_PASSED and self._clock() <= body.steady_until
        if len(content._buffer) > 1 or not is_steady or not (taken := self._taken(data)):
            super().set_result(None)
            return
        _drop(content)
        if body.timeout is not None:
            self.deadline = self._time() + body.timeout
        body.passed += len(data)
        if body.record is not None:
            body.record(data)
        if taken is True:
            content._waiter = self
        else:
            super().set_result(taken)

    def _taken(self, data: bytes) -> Awaitable[None] | bool:
        try:
            return self._take(data)
        except Exception:  # noqa: BLE001  # the task passes the same bytes to `take` again, and raises it there
            return False


def _drop(content: Any) -> None:
    """Remove the bytes from a reader. Its own methods would run its parser, which is what calls this."""
    content._buffer.clear()
    content._cursor += content._size
    content._size = 0
    if content._http_chunk_splits:
        content._http_chunk_splits.clear()


def can_pass(content: Any) -> bool:
    """Whether the reads of a response can be passed on: it is one of aiohttp, and its reader works as expected here."""
    kind: type = type(content)
    return hasattr(content, "_waiter") and _wakes_futures(kind)


@cache
def _wakes_futures(reader: type) -> bool:
    """Tries out whether readers of this class wake a future as `PassedReads` needs: aiohttp does not document it."""
    taken: list[bytes] = []

    def take(data: bytes) -> bool:
        taken.append(data)
        return True

    loop = asyncio.get_running_loop()
    try:
        content = reader(_Connected(), 2**16, loop=loop)
        waiter = PassedReads(content, SteadyBody(None, lambda _: [], loop.time() + 60), take, loop.time)
        has_begun = waiter.begin()
        for data in (b"1", b"2"):
            content.begin_http_chunk_receiving()
            content.feed_data(data)
            content.end_http_chunk_receiving()
        is_waiting = not waiter.done()
        content.feed_eof()
        has_ended = waiter.done() and content.at_eof() and not content._size
        return has_begun and is_waiting and has_ended and taken == [b"1", b"2"]
    except Exception:  # noqa: BLE001  # another version of aiohttp may fail in any way
        return False


class _Connected:
    """The protocol of the reader that is tried out."""

    connected = True

    def pause_reading(self) -> None: ...

    def resume_reading(self, *_: object, **__: object) -> None: ...

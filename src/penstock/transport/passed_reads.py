"""Reads that are passed on where they turn up, without waking the task that waits for them.

To wake a task costs more than everything else that is done for a small piece of text. A `StreamReader` of aiohttp tells
a future that it has something to read. This one hands the bytes over at that moment, and goes on waiting; its task is
woken only for what is left to it: bytes that are to be decoded, a client that reads slowly, the end, an error.

The reference is `read`: it gets all that is left, and connections of other clients know no other way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import cache
from math import inf
from typing import Any

from penstock.transport.commands import MAX_PASSED, SteadyBody, Take


class PassedReads(asyncio.Future[Awaitable[None] | None]):
    """Waits until something is left to the task that awaits it; returns what else is to be awaited first, if anything.

    Nothing is taken from the reader that is not passed on.
    """

    __slots__ = ("_body", "_clock", "_content", "_take", "_time", "deadline")

    def __init__(self, content: Any, body: SteadyBody, take: Take, clock: Callable[[], float]) -> None:
        super().__init__(loop=content._loop)
        self._content = content
        self._body = body
        self._take = take
        self._clock = clock  # of the body; deadlines of reads are times of the event loop
        self._time = content._loop.time
        self.deadline = inf if body.timeout is None else self._time() + body.timeout

    def begin(self) -> bool:
        """Wait for the next bytes; False if there is something for `read`."""
        content = self._content
        if content._buffer or content._eof or content._exception or content._waiter or not content._protocol.connected:
            return False
        content._waiter = self
        return True

    def end(self) -> None:
        """Wait no longer."""
        if self._content._waiter is self:
            self._content._waiter = None

    def set_result(self, result: Awaitable[None] | None) -> None:
        """The reader has bytes, or has come to the end of a part or of all of them."""
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
        except Exception:  # noqa: BLE001  # the task takes the bytes again, and raises it there
            return False


def _drop(content: Any) -> None:
    """Take the bytes out of a reader that has few, without its own methods: these would run its parser in itself."""
    content._buffer.clear()
    content._cursor += content._size
    content._size = 0
    if content._http_chunk_splits:
        content._http_chunk_splits.clear()


def can_pass(content: Any) -> bool:
    """Whether the reads of a response can be passed on: it is one of aiohttp, whose readers work as expected here."""
    kind: type = type(content)
    return hasattr(content, "_waiter") and _tells_futures(kind)


@cache
def _tells_futures(reader: type) -> bool:
    """Whether readers of a class wake a future as `PassedReads` needs it; aiohttp does not document how they do."""
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
    except Exception:  # noqa: BLE001  # of another version, which is not known yet
        return False


class _Connected:
    """The connection of a reader that is tried out."""

    connected = True

    def pause_reading(self) -> None: ...

    def resume_reading(self, *_: object, **__: object) -> None: ...

"""Streams to a client: one write per piece, comments during silence, and an end when the client disconnects.

A server's `send` does not tell that the client is gone, so a task waits for the message that says so, and cancels the
one that writes. A timer, and not a timeout per write, sends comments and ends the stream of a client that does not
read.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import aclosing
from typing import Any

from penstock.asgi.limits import ServerLimits
from penstock.asgi.request import HTTPRequest, Send
from penstock.asgi.response import Headers, raw_headers, respond
from penstock.asgi.sending import Sender

SSE_HEADERS = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache, no-transform",
    "x-accel-buffering": "no",
}
COMMENT = b": keep-alive\n\n"
BEFORE_JSON = b" "
"""What may be sent before a JSON body while it is waited for."""


class ResponseStream:
    """A streamed response. The first piece sends the head; an empty first piece sends only the head."""

    def __init__(
        self, request: HTTPRequest, send: Send, limits: ServerLimits, headers: Headers = SSE_HEADERS,
        comment: bytes = COMMENT,
    ) -> None:  # fmt: skip
        self.is_open = False  # whether the head was sent
        self._is_complete = False  # whether the last piece is being sent, or was
        self.sent = 0
        self._request = request
        self._send = send
        self._send_body = send.body if isinstance(send, Sender) else send
        self._direct = send if isinstance(send, Sender) and send.is_direct else None
        self._limits = limits
        self._headers = headers
        self._comment = comment
        self._writing_since = 0.0  # the time at which the write under way began
        self._last_write = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None  # the writing task, until the end was sent
        self._is_given_up = False  # whether it was cancelled for lack of a reader
        self._aside: asyncio.Task[None] | None = None  # sends a comment, or the rest of a piece, beside the work

    @property
    def is_full(self) -> bool:
        """Whether the response exceeds its size limit, which ends it."""
        return self.sent > self._limits.answer

    async def send_all(self, pieces: AsyncIterator[bytes]) -> bool:
        """Send the pieces as they come; returns whether the client got all of them.

        If the client disconnects, does not read, or the size limit is reached, the iterator is closed. An exception of
        the iterator is raised here.
        """
        return await self.run(self._write_all(pieces))

    async def run(self, work: Coroutine[Any, Any, None]) -> bool:
        """Do work that sends pieces by `write`, and end the response; returns whether the client got all of it.

        If the client disconnects or does not read, the work is cancelled. An exception of it is raised here.
        """
        runner = asyncio.current_task()
        cancelled_before = 0 if runner is None else runner.cancelling()
        self._task = task = asyncio.create_task(
            self._do(work)
        )  # a task of its own: each piece wakes all coroutines of a chain
        watcher = asyncio.create_task(self._request.wait_for_disconnect())
        watcher.add_done_callback(self._on_gone)
        self._tick()
        try:
            await task  # a server that stops cancels this, and with it the task
        except asyncio.CancelledError:
            if not self._is_given_up or (runner is not None and runner.cancelling() > cancelled_before):
                raise
            return False
        finally:
            watcher.cancel()
            if self._timer is not None:
                self._timer.cancel()
            if self._aside is not None:
                self._aside.cancel()
        return True

    async def _do(self, work: Coroutine[Any, Any, None]) -> None:
        await work
        if not self._is_complete:
            await self.end()
        self._task = None

    def _on_gone(self, watcher: asyncio.Task[None]) -> None:
        """Handle a disconnected client, or a server that can no longer tell."""
        if not watcher.cancelled():
            watcher.exception()  # retrieved, so that asyncio does not log it
            self._give_up()

    def _give_up(self) -> None:
        """Cancel the work, unless it has ended."""
        if self._task is not None:
            self._is_given_up = True
            self._task.cancel()

    async def complete(self, status: int, body: bytes, headers: Headers) -> None:
        """Send a non-streamed response with its status; after a comment, only its body.

        The status was 200 then. So that nobody takes an error for the answer, it is sent without the end of the
        response: the server closes the connection, and the client sees that something is missing.
        """
        await self._end_aside()
        self._is_complete = True
        if not self.is_open:
            self.is_open = True
            await self._in_time(respond(self._request, self._send, status, body, headers=headers))
            return
        if status < 400:
            await self.end(body)
        else:
            await self.write(body)

    async def write(self, piece: bytes) -> None:
        """Send a piece."""
        if self._aside is not None:
            await self._end_aside()
        self._writing_since = self._last_write = time.monotonic()
        if not self.is_open:
            await self._open()
        if piece:
            self.sent += len(piece)
            await self._send_body({"type": "http.response.body", "body": piece, "more_body": True})
        self._writing_since = 0.0

    def write_now(self, piece: bytes) -> bool:
        """Send a piece without waking the task of the work; False if that is not possible, and `write` has to do it."""
        if self._direct is None or self._aside is not None or not self.is_open:
            return False
        if self.sent + len(piece) > self._limits.answer:
            return False
        if piece:
            self._writing_since = now = time.monotonic()
            try:
                rest = self._direct.begin({"type": "http.response.body", "body": piece, "more_body": True})
            except Exception:  # noqa: BLE001  # an error of the server: raised again in the task of the work
                return False
            self.sent += len(piece)
            if rest is None:
                self._last_write, self._writing_since = now, 0.0
            else:
                self._aside = asyncio.create_task(self._in_time(rest))
        return True

    async def end(self, piece: bytes = b"") -> None:
        """Send the last piece, with the end of the response."""
        await self._end_aside()
        self._is_complete = True
        self._writing_since = time.monotonic()
        if not self.is_open:
            await self._open()
        self.sent += len(piece)
        await self._in_time(self._send_body({"type": "http.response.body", "body": piece}))
        self._task = None  # which ends by itself: for the server, a client that has its response has left

    async def _end_aside(self) -> None:
        """Wait for a write in progress beside the work: pieces and comments do not mix."""
        if self._aside is not None:
            aside, self._aside = self._aside, None
            await aside

    async def _open(self) -> None:
        self.is_open = True
        headers = raw_headers(self._request, self._headers)
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _in_time(self, sending: Awaitable[None]) -> None:
        """Wait for a write in progress; the timer ends the stream if the client does not read."""
        self._writing_since = time.monotonic()
        await sending
        self._last_write, self._writing_since = time.monotonic(), 0.0

    async def _write_all(self, pieces: AsyncIterator[bytes]) -> None:
        async with aclosing(pieces) as source:  # type: ignore[type-var]  # it is a generator
            async for piece in source:
                await self.write(piece)
                if self.is_full:
                    break

    async def _write_comment(self) -> None:
        if not self._writing_since:
            self._writing_since = time.monotonic()
            if not self.is_open:
                await self._open()
            await self._send({"type": "http.response.body", "body": self._comment, "more_body": True})
            self._last_write, self._writing_since = time.monotonic(), 0.0

    def _tick(self) -> None:
        """Check the deadlines: give up on a client that does not read, and send a comment after a silence."""
        now, limits = time.monotonic(), self._limits
        if self._writing_since and now - self._writing_since > limits.write_seconds:
            self._give_up()
            if self._direct is not None:
                self._direct.abort()  # else what the client does not read would keep the connection open
            return
        is_silent = not self._writing_since and now - self._last_write >= limits.keep_alive_seconds
        if is_silent and not self._is_complete:
            self._aside = asyncio.create_task(self._write_comment())
        pause = min(limits.keep_alive_seconds, limits.write_seconds) / 4
        self._timer = asyncio.get_running_loop().call_later(max(pause, 0.01), self._tick)

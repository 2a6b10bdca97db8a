"""Turns of clients at long work: a thread does it, and no client waits for all the work of another.

Python code in a thread gives the event loop a turn after each `SWITCH_SECONDS`, wherever it is, so the code of a
conversion need not be written as a generator. What such a thread must not do is to call C code for long: that is
limited where it is called.

A client has one thread at a time, and all of them have `THREADS`: each of these competes with the event loop.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from penstock.asgi.shares import Share

THREADS = 2
"""How many threads work at once."""

SWITCH_SECONDS = 0.001
"""After how long a thread lets others run, the event loop among them; 5 ms are usual, for each step of the loop."""

LONG_BODY = 64 * 1024
"""How many bytes a body has that is worked on in a thread; to ask a thread takes longer than to convert a short one."""

MANY_MESSAGES = 500
"""How many messages a conversation has that is worked on in a thread."""


def switch_often() -> None:
    """Let threads of this process take turns more often than usual."""
    sys.setswitchinterval(SWITCH_SECONDS)


class Turns:
    """The work of all clients: what is done, and what waits."""

    def __init__(self) -> None:
        self._working: Counter[str] = Counter()
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # by client; the first one is next

    def waiting(self, share: Share) -> int:
        """How much work of a client waits."""
        return len(self._waiting.get(share.client, ()))

    @asynccontextmanager
    async def turn(self, share: Share) -> AsyncGenerator[None]:
        """Wait for a turn of a client, and end it afterwards."""
        await self._begin(share.client)
        try:
            yield
        finally:
            self._end(share.client)

    async def _begin(self, client: str) -> None:
        if not self._waiting and self._may_work(client):
            self._working[client] += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(client, deque()).append(turn)
        self._start()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._end(client)  # the turn had come
            else:
                self._leave(client, turn)
            raise

    def _may_work(self, client: str) -> bool:
        return self._working.total() < THREADS and not self._working[client]

    def _start(self) -> None:
        """Begin the turns of those whose turn it is; a client whose turn has come is the last one afterwards."""
        for client in [client for client in self._waiting if not self._working[client]]:
            if not self._may_work(client):
                return
            waiting = self._waiting.pop(client)
            self._working[client] += 1
            waiting.popleft().set_result(None)
            if waiting:
                self._waiting[client] = waiting

    def _leave(self, client: str, turn: asyncio.Future[None]) -> None:
        waiting = self._waiting[client]
        waiting.remove(turn)
        if not waiting:
            del self._waiting[client]

    def _end(self, client: str) -> None:
        self._working[client] -= 1
        if not self._working[client]:
            del self._working[client]
        self._start()

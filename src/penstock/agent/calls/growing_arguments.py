"""The arguments of a call that the model is writing, and the `prepare` function that reads them."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from inspect import iscoroutinefunction
from typing import Any, Literal

import msgspec

from penstock.agent.calls.tool_exceptions import log_raised
from penstock.agent.run_errors import is_interrupt
from penstock.calls.rope import Rope
from penstock.errors import UsageError
from penstock.jsontext.partial import JSONPiece, PartialJSON
from penstock.jsontext.values import canonical_json
from penstock.tools.growing import Growing

_SETTLE = 512  # how many unread pieces of text are joined into one


class GrowingArguments(Growing):
    """Arguments that grow on the loop of the run, and are read on the same or on another loop.

    What was not read is kept as text, and parsed when it is read: a slow function gets longer pieces.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # the function may run on another loop than the run
        self._unread = Rope()
        self._appended = 0
        self._view = PartialJSON()
        self._pieces: deque[JSONPiece] = deque()
        self._waiting: list[asyncio.Future[None]] = []
        self._state: Literal["open", "closed", "discarded"] = "open"
        self._has_ended = False
        self._cleanups: list[Callable[[], object]] = []

    def __aiter__(self) -> AsyncIterator[tuple[tuple[str | int, ...], Any]]:
        return self

    async def __anext__(self) -> tuple[tuple[str | int, ...], Any]:
        while True:
            with self._lock:
                if self._state == "discarded":
                    raise asyncio.CancelledError("the call was discarded")
                if not self._pieces:
                    self._parse()
                if self._pieces:
                    piece = self._pieces.popleft()
                    return piece.path, piece.piece
                if self._state == "closed":
                    raise StopAsyncIteration
                waiter = asyncio.get_running_loop().create_future()
                self._waiting.append(waiter)
            await waiter

    def on_discard(self, cleanup: Callable[[], object]) -> None:
        """Call this if the call is discarded, or `prepare` fails."""
        if iscoroutinefunction(cleanup):
            raise UsageError("on_discard takes a plain function: nobody awaits what an async one returns")
        with self._lock:
            self._cleanups.append(cleanup)

    # -- for the run -----------------------------------------------------------------------------------------------

    def feed(self, text: str) -> None:
        """Add text of the arguments."""
        with self._lock:
            self._unread.append(text)
            self._appended += 1
            if self._appended % _SETTLE == 0:
                self._unread.settle()
        self._wake()

    def close(self, arguments: dict[str, Any]) -> bool:
        """The arguments are complete; False if they are not what was read, so that this must be discarded."""
        with self._lock:
            self._parse()
            read = self._view.value if self._appended else {}
            if self._state == "open" and _is_same(read, arguments):
                self._state = "closed"
        self._wake()
        return self._state == "closed"

    def discard(self) -> None:
        """The call is discarded."""
        with self._lock:
            self._state = "discarded"
            has_ended = self._has_ended
        self._wake()
        if has_ended:
            self._clean_up()

    async def during(self, prepare: Callable[[], Any]) -> Any:
        """The result of the function that reads this; nothing is left behind if it fails, or if nobody needs it."""
        try:
            result = await prepare()
        except BaseException:
            self._clean_up()
            raise
        with self._lock:
            self._has_ended = True
            is_discarded = self._state == "discarded"
        if is_discarded:
            self._clean_up()
            raise asyncio.CancelledError("the call was discarded")
        return result

    def _parse(self) -> None:
        """Parse what was not read; the lock is held."""
        if text := self._unread.text():
            self._unread = Rope()
            self._pieces.extend(self._view.feed(text))

    def _wake(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            with suppress(RuntimeError):  # its loop is closed
                waiter.get_loop().call_soon_threadsafe(_settle, waiter)

    def _clean_up(self) -> None:
        while self._cleanups:
            cleanup = self._cleanups.pop()
            try:
                cleanup()
            except BaseException as error:  # it is user code
                if is_interrupt(error):
                    raise
                log_raised("a function of on_discard", cleanup, error)


def grown(arguments: dict[str, Any]) -> GrowingArguments:
    """Arguments that are complete."""
    growing = GrowingArguments()
    growing.feed(msgspec.json.encode(arguments).decode())
    growing.close(arguments)
    return growing


def _is_same(value: Any, arguments: dict[str, Any]) -> bool:
    try:
        return canonical_json(value) == canonical_json(arguments)
    except (TypeError, ValueError, RecursionError):
        return False


def _settle(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)

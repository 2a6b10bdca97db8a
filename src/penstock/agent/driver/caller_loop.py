"""The event loop of the code that began a run: calls on it from any thread, which share one wake-up of the loop."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary, ref


class Mailbox:
    """The calls that wait for one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = ref(loop)
        self._calls: deque[Callable[[], None]] = deque()
        self._is_due = False

    def post(self, call: Callable[[], None]) -> None:
        """Make this call on the loop, soon; calls are made in order. From any thread."""
        self._calls.append(call)
        if not self._is_due and (loop := self._loop()) is not None:
            self._is_due = True
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._empty)

    def _empty(self) -> None:
        self._is_due = False
        calls = self._calls
        try:
            while calls:
                calls.popleft()()
        finally:
            if calls and not self._is_due:  # one raised, which the loop reports; the others are made all the same
                self._is_due = True
                asyncio.get_running_loop().call_soon(self._empty)


_mailboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, Mailbox] = WeakKeyDictionary()


def mailbox_of(loop: asyncio.AbstractEventLoop) -> Mailbox:
    """The mailbox of a loop; called on the loop itself."""
    if loop not in _mailboxes:
        _mailboxes[loop] = Mailbox(loop)
    return _mailboxes[loop]


class CallerLoop:
    """The loop on which a run is driven, once it has begun. Until then, calls are made at once."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self.mailbox: Mailbox  # for calls from other threads that are many: they cost one wake-up

    def attach(self) -> None:
        """The run begins on the running loop; a `RuntimeError` if there is none."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self.mailbox = mailbox_of(self._loop)

    @property
    def running(self) -> asyncio.AbstractEventLoop:
        """The loop of a run that has begun."""
        assert self._loop is not None
        return self._loop

    @property
    def is_here(self) -> bool:
        """Whether this is the thread of the loop."""
        return self._thread == threading.get_ident()

    @property
    def is_closed(self) -> bool:
        """Whether nothing can happen on the loop any more."""
        return self._loop is not None and self._loop.is_closed()

    def call(self, callback: Callable[[], None]) -> None:
        """Call this on the loop: now, if this is its thread."""
        if self.is_here or self._loop is None:
            callback()
        else:
            self.call_soon(callback)

    def call_and_wait(self, callback: Callable[[], None], seconds: float) -> None:
        """Call this on the loop, and wait for it, at most this many seconds; now, if the loop cannot."""
        if self.is_here or self._loop is None or self._loop.is_closed():
            callback()
            return
        is_done = threading.Event()

        def call() -> None:
            try:
                callback()
            finally:
                is_done.set()

        with suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(call)
            is_done.wait(seconds)

    def call_soon(self, callback: Callable[[], None]) -> None:
        """Call this on the loop, but not now; nothing happens if the loop is closed."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(callback)


def is_stopped(task: asyncio.Task[Any]) -> bool:
    """Whether a task was cancelled by others, as when its loop ends, and not by itself."""
    return task.cancelled() and task.cancelling() > 0

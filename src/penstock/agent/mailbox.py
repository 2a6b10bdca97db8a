"""Calls from other threads to an event loop, which share one wake-up of the loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress
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
        if not self._is_due:
            self._wake()

    def _wake(self) -> None:
        if (loop := self._loop()) is None:
            return
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
                self._wake()


_mailboxes: WeakKeyDictionary[asyncio.AbstractEventLoop, Mailbox] = WeakKeyDictionary()


def mailbox_of(loop: asyncio.AbstractEventLoop) -> Mailbox:
    """The mailbox of a loop; called on the loop itself."""
    if loop not in _mailboxes:
        _mailboxes[loop] = Mailbox(loop)
    return _mailboxes[loop]

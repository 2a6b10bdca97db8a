"""Rate limits that the requests of a process share: after a 429, all requests with the same key wait together.

Without this, a limit that one request meets is met by all others too, each of which would retry on its own. A pause is
known by a digest of the address, the model and the key: providers count per model, and a fallback model must not wait.
When a pause is over, the requests that wait start one after another, at first slowly, because the limit may still
hold; then the first of them meets it, and the others wait again.
"""

from __future__ import annotations

import random
import threading
from itertools import count

from msgspec import Struct

from penstock.transport.threads.forks import after_fork

LONGEST_PAUSE = 60.0
"""How many seconds requests wait for a limit that another one met; the provider may ask for longer."""

MAX_PAUSES = 1000
"""How many keys can be paused at once; then the oldest pause is forgotten."""

FIRST_GAP = 0.05
"""The seconds between the first two requests after a pause."""

GAP_RATIO = 0.98
"""How much shorter each gap is than the one before: all requests that wait start within `FIRST_GAP / 0.02` seconds."""


_numbers = count(1)


class SendTime(Struct, frozen=True):
    """When a request may be sent: at `start`, of the clock, after the pause with this number, which ends at `until`."""

    start: float
    until: float
    number: int


class _Pause:
    """A pause of one key, and the requests after it."""

    def __init__(self) -> None:
        self.until = self.next = float("-inf")
        self.gap = FIRST_GAP
        self.number = 0

    def extend(self, until: float) -> None:
        if until > self.until:
            self.until = self.next = until
            self.gap = FIRST_GAP
            self.number = next(_numbers)

    def next_send(self) -> SendTime:
        time = SendTime(self.next, self.until, self.number)
        self.next += self.gap * random.uniform(0.5, 1.5)
        self.gap *= GAP_RATIO
        return time


class SharedLimits:
    """The pauses of all keys; for any thread and event loop."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget all pauses, also in a child process, which must not use the lock of its parent."""
        self._lock = threading.Lock()
        self._pauses: dict[bytes, _Pause] = {}

    def pause(self, key: bytes, now: float, seconds: float) -> None:
        """A request with this key met a limit, and should be sent again after this many seconds."""
        with self._lock:
            for other in [other for other, pause in self._pauses.items() if pause.next < now]:
                del self._pauses[other]
            while key not in self._pauses and len(self._pauses) >= MAX_PAUSES:
                del self._pauses[next(iter(self._pauses))]
            self._pauses.setdefault(key, _Pause()).extend(now + min(seconds, LONGEST_PAUSE))

    def next_send(self, key: bytes, now: float) -> SendTime | None:
        """When a request with this key may be sent; None if at once."""
        with self._lock:
            pause = self._pauses.get(key)
            if pause is None or pause.next < now:
                return None
            return pause.next_send()

    def is_current(self, key: bytes, time: SendTime) -> bool:
        """Whether this time still holds: not if the limit was met again since."""
        with self._lock:
            pause = self._pauses.get(key)
            return pause is None or pause.number == time.number


shared_limits = SharedLimits()
"""The limits of this process."""

after_fork(shared_limits.reset)


class KeyLimit:
    """The shared limit of one key."""

    def __init__(self, key: bytes, limits: SharedLimits = shared_limits) -> None:
        self._key = key
        self._limits = limits

    def pause(self, now: float, seconds: float) -> None:
        """A request met the limit, and should be sent again after this many seconds."""
        self._limits.pause(self._key, now, seconds)

    def next_send(self, now: float) -> SendTime | None:
        """When a request may be sent; None if at once."""
        return self._limits.next_send(self._key, now)

    def is_current(self, time: SendTime) -> bool:
        """Whether this time still holds: not if the limit was met again since."""
        return self._limits.is_current(self._key, time)

"""A thread that ends waits that take too long, for connections that block.

A socket has a timeout of its own, but HTTP clients fix it when a request begins. Here each wait has the time that it
should have, and a wait can be ended from another thread too.
"""

from __future__ import annotations

import threading
import time
from math import inf
from typing import Protocol


class Watched(Protocol):
    """Something that waits until its `deadline`, in the time of `time.monotonic`, and can be woken before."""

    deadline: float | None

    def expire(self) -> None: ...


class Watchdog:
    """Wakes what has waited too long. Its thread lives while there is something to watch."""

    def __init__(self) -> None:
        self._watched: set[Watched] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self.next_check = inf
        """Until when it sleeps. Whoever sets an earlier deadline calls `wake`."""

    def watch(self, one: Watched) -> None:
        with self._changed:
            self._watched.add(one)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="penstock-watchdog", daemon=True)
                self._thread.start()
            self._changed.notify()

    def forget(self, one: Watched) -> None:
        with self._changed:
            self._watched.discard(one)
            self._changed.notify()

    def wake(self) -> None:
        """Check the deadlines now."""
        with self._changed:
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._watched:
                    self._thread = None
                    return
                late = self._look(time.monotonic())
            for one in late:
                one.expire()

    def _look(self, now: float) -> set[Watched]:
        """What has waited too long; if nothing has, sleep until something may have."""
        self.next_check = inf  # first of all: a deadline that is set from here on wakes us, one set before is seen
        due = [(deadline, one) for one in self._watched if (deadline := one.deadline) is not None]
        late = {one for deadline, one in due if deadline <= now}
        self._watched -= late
        if not late:
            self.next_check = min((deadline for deadline, _ in due), default=inf)
            self._changed.wait(self.next_check - now if due else None)
        return late


watchdog = Watchdog()

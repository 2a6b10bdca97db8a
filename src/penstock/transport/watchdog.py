"""A thread that ends waits that take too long, for connections that block.

A socket has a timeout of its own, but HTTP clients fix it when a request begins. Here each wait has the time that it
should have, and a wait can be ended from another thread too.
"""

from __future__ import annotations

import threading
import time
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

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._watched:
                    self._thread = None
                    return
                now = time.monotonic()
                late = {one for one in self._watched if one.deadline is not None and one.deadline <= now}
                self._watched -= late
                deadlines = [one.deadline for one in self._watched if one.deadline is not None]
                if not late:
                    self._changed.wait(min(deadlines) - now if deadlines else None)
            for one in late:
                one.expire()


watchdog = Watchdog()

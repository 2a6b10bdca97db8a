"""A thread that ends reads of blocking connections at their deadlines.

HTTP clients set the timeout of a socket once per request, but each read here has its own.
"""

from __future__ import annotations

import threading
import time
from math import inf
from typing import Protocol

from penstock.transport.forks import after_fork

LONGEST_SLEEP = 10.0
"""The seconds after which it looks again if no read has a deadline: a read whose deadline is later need not wake it."""


class Watched(Protocol):
    """A connection with a `deadline` in the time of `time.monotonic`; `expire` ends its wait."""

    deadline: float | None

    def expire(self) -> None: ...


class Watchdog:
    """Expires connections that exceed their deadline. Its thread runs while there is a connection to watch."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start again, also in a child process, which has neither the thread of its parent nor its connections."""
        self._watched: set[Watched] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self.next_check = inf
        """The time until which it sleeps; `wake` must be called when an earlier deadline is set."""

    def watch(self, connection: Watched) -> None:
        with self._changed:
            self._watched.add(connection)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="penstock-watchdog", daemon=True)
                self._thread.start()
            self._changed.notify()

    def forget(self, connection: Watched) -> None:
        with self._changed:
            self._watched.discard(connection)
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
                late = self._check(time.monotonic())
            for connection in late:
                connection.expire()

    def _check(self, now: float) -> set[Watched]:
        """The connections past their deadline; if there are none, sleeps until the next, or `LONGEST_SLEEP`."""
        self.next_check = inf  # first: a deadline that is set later wakes this thread, an earlier one is read below
        due = [(deadline, watched) for watched in self._watched if (deadline := watched.deadline) is not None]
        late = {watched for deadline, watched in due if deadline <= now}
        self._watched -= late
        if not late:
            self.next_check = min((deadline for deadline, _ in due), default=now + LONGEST_SLEEP)
            self._changed.wait(self.next_check - now)
        return late


watchdog = Watchdog()
after_fork(watchdog.reset)

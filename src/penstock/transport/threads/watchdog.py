"""A thread that ends the waits of sync code at their deadlines: reads of blocking connections, and tools.

HTTP clients set the timeout of a socket once per request, but each read here has its own.
"""

from __future__ import annotations

import threading
import time
from math import inf
from typing import Protocol

from penstock.transport.threads.forks import after_fork

LONGEST_SLEEP = 10.0
"""The longest sleep between two checks: later deadlines, and removed ones, need not wake it."""


class Watched(Protocol):
    """A connection or a timer with a `deadline` in the time of `time.monotonic`; `expire` ends the wait.

    `expire` must not block: it is called in the thread that watches all others.
    """

    deadline: float | None

    def expire(self) -> None: ...


class Watchdog:
    """Expires connections and timers at their deadlines. Its thread ends soon after the last one.

    A request that is answered in time does not wake it: on a busy machine, a thread that wakes up delays the others.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start again, also in a child process, which has neither the thread of its parent nor its connections."""
        self._watched: set[Watched] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self.next_check = inf
        """The time until which it sleeps; `wake` must be called when an earlier deadline is set."""

    @property
    def count(self) -> int:
        """How many connections and timers it watches."""
        return len(self._watched)

    def watch(self, watched: Watched) -> None:
        """Expire this at its deadline; a `RuntimeError` if no thread can be started."""
        with self._changed:
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="penstock-watchdog", daemon=True)
                thread.start()  # if this fails, the next call tries again
                self._thread = thread
            self._watched.add(watched)
            if watched.deadline is not None and watched.deadline < self.next_check:
                self._changed.notify()

    def forget(self, watched: Watched) -> None:
        with self._changed:
            self._watched.discard(watched)

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
            for watched in late:
                try:
                    watched.expire()
                except Exception as error:  # noqa: BLE001  # reported: without this thread, nothing else would expire
                    details = type(error), error, error.__traceback__, threading.current_thread()
                    threading.excepthook(threading.ExceptHookArgs(details))

    def _check(self, now: float) -> set[Watched]:
        """The items past their deadline; if there are none, sleeps until the next deadline, at most `LONGEST_SLEEP`."""
        self.next_check = inf  # before the deadlines are read: one that is set after that wakes this thread
        everything = list(self._watched)  # a copy: the garbage collector may close a connection meanwhile
        due = [(deadline, watched) for watched in everything if (deadline := watched.deadline) is not None]
        late = {watched for deadline, watched in due if deadline <= now}
        self._watched -= late
        if not late:
            self.next_check = min([deadline for deadline, _ in due] + [now + LONGEST_SLEEP])
            self._changed.wait(self.next_check - now)
        return late


watchdog = Watchdog()
after_fork(watchdog.reset)

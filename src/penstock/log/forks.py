"""Forks: a child process inherits what its parent shares between threads, and only the thread that forked."""

from __future__ import annotations

import os
import threading
from weakref import WeakSet

FORK_SECONDS = 5.0
"""How many seconds a fork waits at most for a thread that holds a lock: as long as a write waits for others."""


class ForkLock:
    """A lock that is held while the process forks: so no child inherits it from a thread that it does not have.

    SQLite needs this too. A child in which a transaction of its parent seems to be open could never write. Use it as
    `with it.lock`: a method of this class could be interrupted by Ctrl-C when it has just acquired the lock.
    """

    def __init__(self) -> None:
        self.reset()
        _locks.add(self)

    def reset(self) -> None:
        """Replace the lock by one that nobody holds, also in a child process."""
        self.lock = threading.RLock()  # reentrant: the garbage collector may close a file in a thread that holds it


class _Held(threading.local):
    """The locks that a thread holds while it forks."""

    locks: tuple[threading.RLock, ...] = ()


_locks: WeakSet[ForkLock] = WeakSet()
_held = _Held()


def _before() -> None:
    locks = [shared.lock for shared in list(_locks)]
    _held.locks = tuple(lock for lock in locks if lock.acquire(timeout=FORK_SECONDS))


def _in_parent() -> None:
    locks, _held.locks = _held.locks, ()
    for lock in locks:
        lock.release()


def _in_child() -> None:
    _held.locks = ()
    for shared in list(_locks):
        shared.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)

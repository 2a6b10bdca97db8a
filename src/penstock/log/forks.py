"""Forks: a child process inherits the shared state of its parent's threads, but only the thread that forked.

A fork waits until no other thread uses shared state. So a child inherits no lock of a missing thread, and nothing half
done.
"""

from __future__ import annotations

import os
import threading
import time
from weakref import ref

FORK_SECONDS = 10.0
"""How many seconds a fork waits at most for threads that hold locks: longer than a write waits for other processes."""


HIGHEST_RANK = 3
"""The ranks of locks begin with 0."""


class Shared:
    """What the threads of a process share, under its `lock`, which is held while the process forks.

    Use it as `with shared.lock`: a method of this class could be interrupted by Ctrl-C when it has just acquired the
    lock. A thread that holds such a lock may wait only for one of a higher `rank`: forks acquire them in this order.
    A subclass calls `__init__` last, because another thread may fork from then on.
    """

    rank = 0

    def __init__(self) -> None:
        self.lock = threading.RLock()  # reentrant: the garbage collector may close a file in a thread that holds it
        key = id(self)
        _shared[key] = ref(self, lambda _: _shared.pop(key, None))

    def before_fork(self) -> None:
        """The process is about to fork; this thread has the lock."""

    def in_child(self) -> None:
        """This is a child process, right after the fork: nobody has the lock."""
        self.lock = threading.RLock()


class _Held(threading.local):
    """The locks that a thread holds while it forks."""

    locks: tuple[threading.RLock, ...] = ()


_shared: dict[int, ref[Shared]] = {}  # a dict can be copied while threads add to it, a `WeakSet` cannot
_held = _Held()


def _all() -> list[Shared]:
    return [shared for reference in list(_shared.values()) if (shared := reference()) is not None]


def _before() -> None:
    end = time.monotonic() + FORK_SECONDS
    held: list[Shared] = []
    for rank in range(HIGHEST_RANK + 1):  # the locks of a rank may keep other threads from adding some of the next
        for shared in _all():
            if shared.rank == rank and shared.lock.acquire(timeout=max(0.0, end - time.monotonic())):
                _held.locks += (shared.lock,)  # at once: Ctrl-C may interrupt the next one
                held.append(shared)
    for shared in held:
        shared.before_fork()


def _in_parent() -> None:
    locks, _held.locks = _held.locks, ()
    for lock in locks:
        lock.release()


def _in_child() -> None:
    _held.locks = ()
    for shared in _all():
        shared.in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)

"""Forks: a child process does not use the connections, threads and locks that it inherits.

A child that wrote to an inherited socket, or ended its TLS session, would break the connection of its parent. So the
sockets are closed in the child without notifying the server, and what is shared in a process is created again.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Protocol
from weakref import WeakSet


class Closable(Protocol):
    """A socket, or what closes one."""

    def close(self) -> None: ...


_sockets: WeakSet[Closable] = WeakSet()


def after_fork(reset: Callable[[], None]) -> None:
    """Call this in each child process right after the fork; never, on a platform without forks."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=reset)


def close_in_children(sock: Closable) -> None:
    """Close this socket in child processes."""
    _sockets.add(sock)


def _close_inherited() -> None:
    for sock in list(_sockets):
        try:
            sock.close()  # closes only the descriptor, also of a TLS socket
        except OSError:
            pass
    _sockets.clear()


after_fork(_close_inherited)

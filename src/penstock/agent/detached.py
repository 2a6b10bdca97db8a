"""Runs that continue in this process without a reader: they are given back to their stores when the program ends."""

from __future__ import annotations

import atexit
import weakref
from typing import Protocol

from penstock.transport.forks import after_fork


class DetachedDriver(Protocol):
    """A driver of a run without a reader."""

    def end(self) -> None:
        """Give the run back, if it has not ended."""
        ...


_drivers: weakref.WeakSet[DetachedDriver] = weakref.WeakSet()


def give_back_at_exit(driver: DetachedDriver) -> None:
    """Close this driver when the program ends, so that another process can continue its run at once."""
    _drivers.add(driver)


after_fork(_drivers.clear)  # a child process does not have their threads; its parent gives the runs back


@atexit.register
def _give_back() -> None:
    for driver in list(_drivers):
        driver.end()

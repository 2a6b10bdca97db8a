"""Operations on a store are tried again while it fails for the moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from penstock.log.store import StoreError

T = TypeVar("T")

PATIENCE = 60.0
"""How many seconds a store may fail before whoever needs it gives up."""


def patiently(operation: Callable[[], T]) -> T:
    """What an operation on a store returns; it is tried again while the store fails for the moment."""
    end, pause = time.monotonic() + PATIENCE, 0.05
    while True:
        try:
            return operation()
        except StoreError as error:
            if not error.is_temporary or time.monotonic() + pause > end:
                raise
        time.sleep(pause)
        pause = min(pause * 2, 1.0)

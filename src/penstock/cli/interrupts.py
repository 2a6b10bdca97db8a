"""Ctrl-C, once or twice: the first interrupts, the second only counts."""

from __future__ import annotations

import signal
import time
from types import FrameType
from typing import Self

_LOOK = 0.02  # seconds between two checks; Windows wakes up for Ctrl-C after a sleep


class Interrupts:
    """Counts Ctrl-C while it is entered. The first raises `KeyboardInterrupt`, the third does too."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Self:
        self._before = signal.signal(signal.SIGINT, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _interrupt(self, _number: int, _frame: FrameType | None) -> None:
        self.count += 1
        if self.count != 2:  # what the first has interrupted is cleaned up meanwhile
            raise KeyboardInterrupt

    def comes_again(self, seconds: float) -> bool:
        """Whether a second Ctrl-C comes within this time, or has come."""
        end = time.monotonic() + seconds
        while self.count < 2 and time.monotonic() < end:
            time.sleep(_LOOK)
        return self.count >= 2

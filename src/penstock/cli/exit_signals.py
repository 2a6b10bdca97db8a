"""The signals that end a command."""

from __future__ import annotations

import signal
import sys


def exit_signals() -> list[int]:
    """SIGTERM, and SIGHUP unless it is ignored, as under `nohup`."""
    numbers = [getattr(signal, "SIGHUP", None)]  # Windows has none
    hangups = [number for number in numbers if number and signal.getsignal(number) is not signal.SIG_IGN]
    return [signal.SIGTERM, *hangups]


def exit_normally_on_signals() -> None:
    """Let these signals raise `SystemExit`: the cursor is shown again, the history is saved."""
    for number in exit_signals():
        signal.signal(number, _exit)


def _exit(number: int, _frame: object) -> None:
    sys.exit(128 + number)

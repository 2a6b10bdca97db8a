"""Exceptions that end the program, and not the function that they happen to interrupt."""

from __future__ import annotations

import signal
from traceback import walk_tb


def is_of_signal_handler(error: BaseException) -> bool:
    """Whether this is the `SystemExit` of a signal handler, which Python raises wherever the main thread is.

    `sys.exit()` in a user's function is an error of that function.
    """
    if not isinstance(error, SystemExit):
        return False
    handlers = map(signal.getsignal, signal.valid_signals())
    codes = {getattr(handler, "__code__", None) for handler in handlers if callable(handler)}
    return any(frame.f_code in codes for frame, _ in walk_tb(error.__traceback__))

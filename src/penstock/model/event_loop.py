"""A warning for blocking calls in async code, which stall every other task of the event loop."""

from __future__ import annotations

import sys
import warnings

from penstock.transport.threads.loop_thread import driver_loop

_warned: set[str] = set()


def warn_if_blocking(call: str, instead: str, stacklevel: int = 3) -> None:
    """Warn once per process if this call blocks a running event loop, except in notebooks, where one always runs.

    For a function that the user calls: the warning names the line of that call.
    """
    asyncio = sys.modules.get("asyncio")
    if asyncio is None or _warned:
        return
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    if _is_notebook() or driver_loop.is_here:  # there, sync code of the user runs: a validator of an output
        return
    _warned.add(call)
    warnings.warn(
        f"{call} in async code blocks the event loop until it returns; use `{instead}`", RuntimeWarning, stacklevel
    )


def _is_notebook() -> bool:
    """Whether the code runs in a cell of IPython, and so perhaps in the event loop of a notebook."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None

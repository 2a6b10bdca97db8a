"""Coroutines that sync code waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from penstock.model.event_loop import warn_if_blocking
from penstock.transport.threads.loop_thread import resolve

T = TypeVar("T")


def run_coroutine(work: Coroutine[Any, Any, T], call: str, instead: str) -> T:
    """The result of a coroutine, for the function `call` of the API.

    It gets an event loop of its own. Where one is running, as in a notebook, it runs on the loop of sync code.
    """
    warn_if_blocking(call, instead, stacklevel=4)
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    result: T = resolve(work)
    return result

"""A fixture that fails a test which leaves a thread, socket or event loop behind. Import it to use it in a file."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator

import pytest

from penstock.transport.threads.loop_thread import shared_loop
from tests.scripted_runs import SOON

SHARED = {"penstock-watchdog", "penstock-loop", "penstock-driver", "penstock-mcp", "penstock-idle"}
"""The threads of the process, which no run owns."""


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No thread is left, except those of tools that cannot be stopped, which the tests end themselves."""
    before = set(threading.enumerate())
    gc.freeze()  # older objects are skipped below, which saves most of the time
    yield
    shared_loop.close()  # with the threads that its tasks used
    end = time.monotonic() + SOON
    while left := {one for one in threading.enumerate() if one.is_alive() and one.name not in SHARED} - before:
        assert time.monotonic() < end, left
        time.sleep(0.01)
    gc.collect()  # an open socket or event loop warns here, and warnings are errors

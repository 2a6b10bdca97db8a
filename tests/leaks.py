"""What a run may leave behind: nothing. Import the fixture, and it holds for every test of the file."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator

import pytest

from tests.runs import SOON


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """No thread is left behind, except those of tools that cannot be stopped, which the tests stop themselves."""
    before = set(threading.enumerate())
    gc.freeze()  # what is older is not looked at below, which is most of the time that it takes
    yield
    end = time.monotonic() + SOON
    while left := {one for one in threading.enumerate() if one.is_alive() and "watchdog" not in one.name} - before:
        assert time.monotonic() < end, left
        time.sleep(0.01)
    gc.collect()  # a socket or a loop that was left open warns here, and warnings are errors
    gc.unfreeze()

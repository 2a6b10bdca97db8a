"""How much the expensive tests try: `make test` has a budget of time, `make test-all` tries everything.

THOROUGH=1 python -m pytest tests/test_laws.py
"""

from __future__ import annotations

import os

IS_THOROUGH = bool(os.environ.get("THOROUGH"))
"""Whether the tests try every case that they know, however long it takes."""


def share(all_cases: int, few_cases: int) -> int:
    """How many cases to try."""
    return all_cases if IS_THOROUGH else few_cases


def places(length: int, few: int = 100) -> range:
    """The places between 0 and `length` at which to cut or to stop: all of them if there are few, else spread evenly.

    The first one depends on the length, so that inputs of different lengths are cut at different places of a frame.
    """
    step = 1 if IS_THOROUGH else 1 + length // few
    return range(length % step, length, step)

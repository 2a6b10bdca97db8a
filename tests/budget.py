"""How much the expensive tests try: `make test` has a budget of time, `THOROUGH=1` tries everything.

THOROUGH=1 python -m pytest tests/wires/test_laws.py

Behind THOROUGH are, beside what the tests themselves say: all places to cut a vector or a text (`places`; else about
two dozen, spread over it); all cases of the tests that call `sample`, or `each` with `few` (calls quoted in every
margin and encoding, cut recordings, damaged streams, the points at which chaos hits a worker, the wheel with each of
the smaller extras); and three times as many examples of hypothesis. The rest is chosen by a seed, which the summary
prints: each run tries other places and cases, and `SEED=7 make test` tries those of the seed 7 again.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

Case = TypeVar("Case")

IS_THOROUGH = bool(os.environ.get("THOROUGH"))
"""Whether the tests try every case that they know, however long it takes."""
SEED = os.environ.setdefault("SEED", str(random.SystemRandom().randrange(1_000_000)))
"""The seed of what is chosen at random; all processes of a test session inherit it."""


def share(all_cases: int, few_cases: int) -> int:
    """How many cases to try."""
    return all_cases if IS_THOROUGH else few_cases


def sample(cases: Sequence[Case], few: int) -> list[Case]:
    """The cases to try: all of them if there are few, else so many, chosen at random."""
    count = len(cases) if IS_THOROUGH else min(few, len(cases))
    return random.Random(f"{SEED} {len(cases)}").sample(cases, count)


def places(length: int, few: int = 25) -> range:
    """The places between 0 and `length` at which to cut or to stop: all of them if there are few, else spread evenly.

    The first one is random, and depends on the length, so that the cuts fall on different places of a frame.
    """
    step = 1 if IS_THOROUGH else 1 + length // few
    return range(random.Random(f"{SEED} {length}").randrange(step), length, step)

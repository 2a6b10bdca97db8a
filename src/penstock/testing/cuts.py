"""Cuts bytes into pieces, as a network does: at any place."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Literal

from penstock.errors import UsageError

Cutting = Literal["bytes"] | int | None
"""None: no cuts. "bytes": a cut after every byte. A number: the seed of random cuts."""

_SIZES = (1, 1, 2, 3, 7, 40, 200, 1500)


def cuts(data: bytes, how: Cutting = None) -> list[bytes]:
    """Cuts the data into pieces."""
    match how:
        case None:
            return [data]
        case "bytes":
            return [data[start : start + 1] for start in range(len(data))]
        case int():
            return list(_at_random(data, random.Random(how)))
        case _:
            raise UsageError(f'cuts must be None, "bytes" or an integer seed, not {how!r}')


def cuttings(data: bytes, seeds: int = 3) -> Iterator[list[bytes]]:
    """The data whole, byte by byte, and cut at random: a decoder must give the same result for each."""
    yield cuts(data)
    yield cuts(data, "bytes")
    for seed in range(seeds):
        yield cuts(data, seed)


def _at_random(data: bytes, dice: random.Random) -> Iterator[bytes]:
    """Cuts of varying size."""
    start = 0
    while start < len(data):
        size = dice.choice(_SIZES)
        yield data[start : start + size]
        start += size

"""Ways to cut bytes: a network cuts them anywhere, so a test of what reads them should too."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Literal

from penstock.errors import UsageError

Cutting = Literal["bytes"] | int | None
"""None is uncut, "bytes" cuts at every byte, a number is the seed of cuts at random."""

_SIZES = (1, 1, 2, 3, 7, 40, 200, 1500)


def cuts(data: bytes, how: Cutting = None) -> list[bytes]:
    """The data in pieces."""
    match how:
        case None:
            return [data]
        case "bytes":
            return [data[at : at + 1] for at in range(len(data))]
        case int():
            return list(_at_random(data, random.Random(how)))
        case _:
            raise UsageError(f'cuts are None (uncut), "bytes", or the seed of random cuts, not {how!r}')


def cuttings(data: bytes, seeds: int = 3) -> Iterator[list[bytes]]:
    """The data whole, byte by byte, and cut at random in some ways: whatever reads it must make the same of each."""
    yield cuts(data)
    yield cuts(data, "bytes")
    for seed in range(seeds):
        yield cuts(data, seed)


def _at_random(data: bytes, dice: random.Random) -> Iterator[bytes]:
    """Now finely, now coarsely."""
    at = 0
    while at < len(data):
        size = dice.choice(_SIZES)
        yield data[at : at + size]
        at += size

"""Makes a failing case smaller: fewer frames, then fewer fields."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from tests.fuzz.cases import Case, Piece, without_piece
from tests.fuzz.mutations import places

MAX_TRIES = 600


def shrink(case: Case, still_fails: Callable[[Case], bool]) -> Case:
    """A small case that still fails; greedy, so not the smallest one. A call that comes twice needs all its frames."""
    tries = 0
    is_smaller = case.kind != "repeated"
    while is_smaller and tries < MAX_TRIES:
        is_smaller = False
        for candidate in _smaller(case):
            tries += 1
            if tries > MAX_TRIES:
                break
            if still_fails(candidate):
                case, is_smaller = candidate, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    size = len(case.pieces)
    step = size // 2
    while step:
        for start in range(0, size, step):
            yield without_piece(case, start, start + step)
        step //= 2
    if case.style != "usual" and case.style != "body":
        yield msgspec.structs.replace(case, style="usual")
    for at, piece in enumerate(case.pieces):
        for smaller in _smaller_frames(piece.frame):
            pieces = [*case.pieces]
            pieces[at] = Piece(smaller, piece.instead_of, piece.is_inserted)
            yield msgspec.structs.replace(case, pieces=pieces)


def _smaller_frames(frame: Any) -> Iterator[Any]:
    for at, (container, key) in enumerate(places(frame)):
        if key not in ("$bytes", "type"):
            smaller = copy.deepcopy(frame)
            inner, _ = places(smaller)[at]
            del inner[key]
            yield smaller
        if isinstance(container[key], str) and len(container[key]) > 3 and key not in ("$bytes", "type"):
            smaller = copy.deepcopy(frame)
            inner, _ = places(smaller)[at]
            inner[key] = inner[key][:3]
            yield smaller

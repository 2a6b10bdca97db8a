"""Ids that nobody has yet."""

from __future__ import annotations

from collections.abc import Callable


class FreeIds:
    """The ids that are taken. Who wants one of these gets it with a number."""

    __slots__ = ("_numbers", "_taken")

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._numbers: dict[str, int] = {}  # the last number that was tried, by how an id is spelled with the first

    def take(self, wanted: str, spelled: Callable[[int], str] | None = None) -> str:
        """The id, if nobody has it; else one with a number, from 2 on: `id_2`, or as `spelled` writes it."""
        made = wanted
        if made in self._taken:
            made = self._numbered(spelled or (lambda number: f"{wanted}_{number}"))
        self._taken.add(made)
        return made

    def _numbered(self, spelled: Callable[[int], str]) -> str:
        """Each number is tried once, so that many ids cost no more than they are."""
        first = spelled(1)
        number = self._numbers.get(first, 1) + 1
        while (made := spelled(number)) in self._taken:
            number += 1
        self._numbers[first] = number
        return made

    def add(self, id: str) -> None:
        """Somebody has this id, whoever else may have it too."""
        self._taken.add(id)

    def release(self, id: str) -> None:
        """The id is free again."""
        self._taken.discard(id)

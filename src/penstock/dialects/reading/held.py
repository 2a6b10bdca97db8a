"""Text that was read and is held back, because it is not known yet whether it is a call."""

from __future__ import annotations

MAX_HELD = 1024 * 1024
"""How many characters may be held back; then they are text."""


class Held:
    """What is held back, piece by piece."""

    __slots__ = ("_pieces", "_size")

    def __init__(self, first: str) -> None:
        self._pieces = [first]
        self._size = len(first)

    @property
    def room(self) -> int:
        """How much more can be held."""
        return MAX_HELD - self._size

    def add(self, piece: str) -> None:
        self._pieces.append(piece)
        self._size += len(piece)

    def give_back(self, size: int) -> None:
        """Forget the last characters, so many of them."""
        self._size -= size
        while size:
            last = self._pieces.pop()
            if len(last) > size:
                self._pieces.append(last[:-size])
            size -= min(size, len(last))

    def text(self) -> str:
        return "".join(self._pieces)

"""Text that comes in small pieces and is wanted whole, in little more memory than its length.

A list of eight-character pieces takes nine times their length, and so does `io.StringIO` up to Python 3.11. Joining
all of it now and then would cost the square of the length. So pieces are joined into strands, and strands with their
smaller neighbours: each character is copied a few times, and there are never many strands.
"""

from __future__ import annotations

PIECES = 4096
"""How many characters may come as pieces before they should be joined."""


class Rope:
    """A text in the making: `append` pieces, `settle` now and then, ask for the `text`."""

    __slots__ = ("_pieces", "_strands", "append")

    def __init__(self) -> None:
        self._strands: list[str] = []
        self._pieces: list[str] = []
        self.append = self._pieces.append

    def settle(self) -> None:
        """Join the pieces that have come."""
        if self._pieces:
            self._add_strand("".join(self._pieces))
            self._pieces.clear()

    def _add_strand(self, strand: str) -> None:
        strands = self._strands
        while strands and len(strands[-1]) <= 2 * len(strand):
            strand = strands.pop() + strand
        strands.append(strand)

    def text(self) -> str:
        """All of it."""
        self.settle()
        if len(self._strands) > 1:
            self._strands[:] = ["".join(self._strands)]
        return self._strands[0] if self._strands else ""

    def take(self) -> str:
        """All of it, which the rope then forgets."""
        text = self.text() if self._strands else "".join(self._pieces)
        self._strands.clear()
        self._pieces.clear()
        return text

"""A text that arrives in small pieces and is needed whole, in little more memory than its length.

A list of eight-character pieces takes nine times their length, and so does `io.StringIO` up to Python 3.11. Joining
everything now and then would cost the square of the length. So pieces are joined into strands, and strands with their
smaller neighbours: each character is copied a few times, and the number of strands stays small.
"""

from __future__ import annotations

PIECES = 4096
"""The number of characters after which the pieces should be joined by `settle`."""


class Rope:
    """A growing text: `append` pieces, call `settle` now and then, read the whole `text`, or only what is new."""

    __slots__ = ("_new", "_old", "_pieces", "append")

    def __init__(self) -> None:
        self._old: list[str] = []  # strands that `read_new` has returned
        self._new: list[str] = []  # strands that it has not
        self._pieces: list[str] = []  # the end of the text
        self.append = self._pieces.append

    def settle(self) -> None:
        """Joins the pieces into a strand."""
        if self._pieces:
            _add_strand(self._new, "".join(self._pieces))
            self._pieces.clear()

    def text(self) -> str:
        """Returns the whole text."""
        self.settle()
        for strands in (self._old, self._new):
            if len(strands) > 1:
                strands[:] = ["".join(strands)]
        return "".join(self._old + self._new)

    def read_new(self) -> str:
        """Returns the text that was appended since the last call."""
        new = "".join([*self._new, *self._pieces])
        self._new.clear()
        self._pieces.clear()
        if new:
            _add_strand(self._old, new)
        return new


def _add_strand(strands: list[str], strand: str) -> None:
    while strands and len(strands[-1]) <= 2 * len(strand):
        strand = strands.pop() + strand
    strands.append(strand)

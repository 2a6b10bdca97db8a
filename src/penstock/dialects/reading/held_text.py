"""Held text: what was read before it is known whether it is a call.

A grammar reads on before it knows what it reads. Meanwhile the text is held back, and `Source` decides what becomes
of it:

| method | when | what happens to the held text |
|---|---|---|
| `hold(mark)` | an opening mark was read | from here on, everything that is read is kept |
| `release()` | it is not a call | it is emitted as text |
| `drop()` | it is the markup of a call | it is discarded |
| `rewind()` | another grammar is tried | it is put back, to be read again |

If more than MAX_HELD characters are held, that is a `Mismatch`: what is held comes out as text.
"""

from __future__ import annotations

MAX_HELD = 1024 * 1024
"""How many characters may be held back because they may become a call; then they are released as text."""


class HeldText:
    """Pieces of text that are held back."""

    __slots__ = ("_pieces", "_size")

    def __init__(self, first: str) -> None:
        self._pieces = [first]
        self._size = len(first)

    def keep(self, piece: str) -> int:
        """Adds a piece; returns how many characters of it are too many and were not added."""
        excess = max(0, self._size + len(piece) - MAX_HELD)
        self._pieces.append(piece[: len(piece) - excess])
        self._size += len(piece) - excess
        return excess

    def give_back(self, size: int) -> None:
        """Removes characters from the end."""
        self._size -= size
        while size:
            last = self._pieces.pop()
            if len(last) > size:
                self._pieces.append(last[:-size])
            size -= min(size, len(last))

    def text(self) -> str:
        return "".join(self._pieces)

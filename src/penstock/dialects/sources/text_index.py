"""An index of texts that grows: finds where a value stands without searching the texts again.

All texts are in one buffer, which is cut into slots of eight bytes, and again into slots of four. Slots with the same
bytes are a chain, newest first (up to collisions). A value of two slots less one byte covers a whole slot wherever it
stands. So for each of the ways in which it can lie over the slots, the value is compared at the places of one of its
pieces, the one with the shortest chain. Values shorter than MIN_INDEXED bytes are for a table of words.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate

MAX_INDEXED = 32 * 1024 * 1024
"""The bytes of all texts in an index, with their readings. A text that does not fit is left out."""
MAX_PLACES = 32 * 1024
"""How many places are compared with a value, newest first."""
MIN_INDEXED = 7
"""The bytes of a value that the index finds."""

_PIECES = 64  # how many pieces of a value are looked up for each way in which it can lie over the slots
_BUCKETS = 1021  # at first
_END = b"\n"  # between texts: no folded text contains it


class TextIndex:
    """The folded texts of a conversation. Each text gets the next number."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._gaps: list[array[int]] = []  # for each text, the places in the buffer where words begin
        self._starts: list[int] = []
        self._chains = (_Chains(8, "Q"), _Chains(4, "I"))

    def add(self, layout: str) -> bool:
        """Adds a text, whose words have one space between them; returns whether it fits."""
        words = layout.encode("utf-8", "replace").split(b" ")
        folded = b"".join(words) + _END
        start = len(self._buffer)
        if start + len(folded) > MAX_INDEXED:
            return False
        folded += _END * (-len(folded) % 8)
        self._starts.append(start)
        self._gaps.append(array("I", accumulate(map(len, words), initial=start)))
        self._buffer += folded
        for chains in self._chains:
            chains.add(folded)
        return True

    def find(self, folded: bytes) -> Iterator[tuple[int, bool] | None]:
        """Yields the number of each text that contains a folded value, and whether it stands there as whole words.

        Newest places come first. The last item is None if there are more places than are compared.
        """
        chains = next(chains for chains in self._chains if len(folded) >= 2 * chains.size - 1)
        for count, start in enumerate(chains.places(folded)):
            if count >= MAX_PLACES:
                yield None
                return
            if start >= 0 and self._buffer.startswith(folded, start):
                text = bisect_right(self._starts, start) - 1
                yield text, self._is_boundary(text, start) and self._is_boundary(text, start + len(folded))

    def _is_boundary(self, text: int, place: int) -> bool:
        """Whether a place in the buffer is between words, and not within a word or a number."""
        gaps = self._gaps[text]
        near = bisect_left(gaps, place)
        if near < len(gaps) and gaps[near] == place:
            return True
        before = self._buffer[max(0, place - 4) : place].decode("utf-8", "ignore")[-1:]
        after = self._buffer[place : place + 4].decode("utf-8", "ignore")[:1]
        return not (before.isdigit() and after.isdigit()) and not (_is_cased(before) and _is_cased(after))


class _Chains:
    """The slots of one size, chained by their bytes. The table of chains grows with the texts."""

    def __init__(self, size: int, code: str) -> None:
        self.size = size
        self._code = code
        self._slots = array(code)
        self._previous = array("I")  # for each slot, the one before in its chain, counted from 1; 0 for none
        self._clear(_BUCKETS)

    def add(self, folded: bytes) -> None:
        """Adds the slots of a text."""
        first = len(self._slots)
        self._slots.frombytes(folded)
        if len(self._slots) > 2 * len(self._newest):
            self._clear(4 * len(self._newest) + 1)
            first = 0
        self._link(first)

    def _clear(self, buckets: int) -> None:
        self._newest, self._counts = array("I", bytes(4 * buckets)), array("I", bytes(4 * buckets))
        del self._previous[:]

    def _link(self, first: int) -> None:
        newest, counts, previous, buckets = self._newest, self._counts, self._previous, len(self._newest)
        for slot, piece in enumerate(self._slots[first:], first + 1):
            bucket = piece % buckets
            previous.append(newest[bucket])
            newest[bucket] = slot
            counts[bucket] += 1

    def places(self, folded: bytes) -> Iterator[int]:
        """The places where a value may begin; some are negative."""
        for offset, piece in self._rarest(folded):
            slot = self._newest[piece % len(self._newest)]
            while slot:
                yield (slot - 1) * self.size - offset
                slot = self._previous[slot - 1]

    def _rarest(self, folded: bytes) -> Iterator[tuple[int, int]]:
        """For each way in which a value can lie over the slots, the rarest of its pieces, and where that is in it."""
        for way in range(self.size):
            count = (len(folded) - way) // self.size
            pieces = memoryview(folded)[way : way + min(count, _PIECES) * self.size].cast(self._code)  # type: ignore[call-overload]
            counts = [self._counts[piece % len(self._counts)] for piece in pieces]
            best = counts.index(min(counts))
            yield way + best * self.size, pieces[best]


def _is_cased(character: str) -> bool:
    """Whether this is a letter of a script that separates words with spaces."""
    return character.isalpha() and character.upper() != character.lower()

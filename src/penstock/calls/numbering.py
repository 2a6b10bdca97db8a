"""Block numbers and unique call ids.

A call's id is made unique at these places, each with a `UniqueIds` of its own:

| who | when | scope |
|---|---|---|
| `Numbering.unique_id` | a wire or a dialect opens a call | one response |
| `run.numbering.RunNumbering` | a call of a response enters a run | one run |
| `healing.ids.CallIds` | a response is healed for a client | one conversation |
| `wires.shared.ids` | a history is encoded for a wire with its own id rules | one request |
| `wires.shared.call_matcher` | a history is read in which calls have no id | one history |
| `history.repair` | a history is repaired in which calls share an id | one history |
"""

from __future__ import annotations

import sys
from collections.abc import Callable

MAX_CALLS = 1000
"""How many calls a response may have; with one more, it ends with the error `too_many_calls`."""
MAX_BLOCKS = 10_000
"""How many blocks (texts, pieces of reasoning, calls, items) it may have; with one more, `too_many_blocks`."""


class ResponseLimit(Exception):
    """A response has more of something than a response may have: it ends here, with an error of this code.

    It is raised where the limit is reached, however deep in a frame or a text, and caught by the stage.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


class UniqueIds:
    """A set of ids that are in use. `take` appends a number to an id that is in use already."""

    __slots__ = ("_last_numbers", "_used")

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._last_numbers: dict[str, int] = {}  # the last number that was tried, by the spelling with number 1

    def take(self, preferred: str, spell: Callable[[int], str] | None = None) -> str:
        """Returns `preferred` if it is free, else the same with `_2`, `_3`, …, or what `spell` makes of that number."""
        id = preferred
        if id in self._used:
            id = self._numbered(spell or (lambda number: f"{preferred}_{number}"))
        self._used.add(id)
        return id

    def _numbered(self, spell: Callable[[int], str]) -> str:
        """Each number is tried once, so that the cost per id does not grow with the number of ids."""
        first = spell(1)
        number = self._last_numbers.get(first, 1) + 1
        while (id := spell(number)) in self._used:
            number += 1
        self._last_numbers[first] = number
        return id

    def add(self, id: str) -> None:
        """Marks an id as used, whether or not it was before."""
        self._used.add(id)

    def release(self, id: str) -> None:
        """Makes the id free again."""
        self._used.discard(id)


class Numbering:
    """The numbers of one response: blocks in the order of their first appearance, and unique call ids.

    Without a cap, it may have any number of calls: for parts that have no event for an error.
    """

    __slots__ = ("_ids", "_most", "_most_blocks", "_prefix", "calls", "next_block")

    def __init__(self, id_prefix: str, *, is_capped: bool = True) -> None:
        self._prefix = id_prefix
        self._ids = UniqueIds()
        self._most = MAX_CALLS if is_capped else sys.maxsize
        self._most_blocks = MAX_BLOCKS if is_capped else sys.maxsize
        self.calls = 0  # how many ids were given out
        self.next_block = 0

    def new_block(self) -> int:
        block = self.next_block
        if block >= self._most_blocks:
            raise ResponseLimit(
                "too_many_blocks", f"the response has more than {self._most_blocks} blocks, and was ended there"
            )
        self.next_block += 1
        return block

    def unique_id(self, id: str) -> str:
        """The provider's id, made unique if it was used before (QUIRKS 21); a generated one if it is empty."""
        self.count_call()
        if id:
            return self._ids.take(id)
        return self._ids.take(f"{self._prefix}0", lambda number: f"{self._prefix}{number - 1}")

    def count_call(self) -> None:
        """Counts a call; raises a `ResponseLimit` if there is one too many."""
        if self.calls >= self._most:
            raise ResponseLimit(
                "too_many_calls", f"the response has more than {self._most} tool calls, and was ended there"
            )
        self.calls += 1

    def lift_limit(self) -> None:
        """Lets the response end, although it has too many calls or blocks."""
        self._most = self._most_blocks = sys.maxsize

    def has_room_for(self, calls: int) -> bool:
        """Whether the response may have this many more calls."""
        return self.calls + calls <= self._most

    def rename(self, id: str, new: str) -> str:
        """The new id of a call, made unique; its old one is free again."""
        self._ids.release(id)
        self.calls -= 1
        return self.unique_id(new)

    def release(self, id: str) -> None:
        """Makes the id free again."""
        self._ids.release(id)

"""The numbers of a stream: which block, which call."""

from __future__ import annotations

from penstock.calls.unique_ids import FreeIds


class Blocks:
    """The numbers of a stream: blocks in order of first appearance, and ids for calls that came without one."""

    __slots__ = ("_ids", "_prefix", "next_block")

    def __init__(self, id_prefix: str) -> None:
        self._prefix = id_prefix
        self._ids = FreeIds()
        self.next_block = 0

    def take(self) -> int:
        block = self.next_block
        self.next_block += 1
        return block

    def unique_id(self, given: str) -> str:
        """The provider's id, made unique if it was used before (QUIRKS 21); a made-up one if there is none."""
        if given:
            return self._ids.take(given)
        return self._ids.take(f"{self._prefix}0", lambda number: f"{self._prefix}{number - 1}")

    def release(self, id: str) -> None:
        """The id is free again."""
        self._ids.release(id)

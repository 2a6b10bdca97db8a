"""The numbers of a stream: which block, which call."""

from __future__ import annotations


class Blocks:
    """The numbers of a stream: blocks in order of first appearance, and ids for calls that came without one."""

    __slots__ = ("_prefix", "_times_used", "next_block")

    def __init__(self, id_prefix: str) -> None:
        self._prefix = id_prefix
        self._times_used: dict[str, int] = {}
        self.next_block = 0

    def take(self) -> int:
        block = self.next_block
        self.next_block += 1
        return block

    def unique_id(self, given: str) -> str:
        """The provider's id, made unique if it was used before (QUIRKS 21); a made-up one if there is none."""
        used = self._times_used
        made = given or f"{self._prefix}0"
        while made in used:
            times = used[made]
            used[made] += 1
            made = f"{given}_{times + 1}" if given else f"{self._prefix}{times}"
        used[made] = 1
        return made

    def release(self, id: str) -> None:
        """The id is free again."""
        self._times_used.pop(id, None)

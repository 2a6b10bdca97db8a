"""The queue of what a guard holds back: chunks in their order, each with the check that it waits for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from penstock.events import StreamChunk, Usage
from penstock.guard.checks import Check


class Held:
    """A chunk that waits: for everything before it, and for its check, if it has one. Text is in its check."""

    __slots__ = ("check", "chunk", "size")

    def __init__(self, chunk: StreamChunk, check: Check | None, size: int) -> None:
        self.chunk = chunk
        self.check = check
        self.size = size


class HeldQueue:
    """The chunks that are held back; `size` is how many characters they have."""

    def __init__(self) -> None:
        self._items: deque[Held] = deque()
        self.size = 0

    @property
    def is_empty(self) -> bool:
        return not self._items

    def add(self, chunk: StreamChunk, check: Check | None = None, size: int = 1) -> Held:
        """Hold a chunk back; returns its place."""
        held = Held(chunk, check, size)
        self._items.append(held)
        self.size += size
        return held

    def add_usage(self, usage: Usage) -> None:
        """Hold token counts back; they replace those before them."""
        if self._items and isinstance(self._items[-1].chunk, Usage):
            self._items[-1].chunk = usage
        else:
            self.add(usage)

    def grow(self, held: Held, size: int) -> None:
        """The text at this place has this many characters now."""
        self.size += size - held.size
        held.size = size

    def take(self) -> Iterator[Held]:
        """Remove and return what need not wait any more."""
        while self._items and ((check := self._items[0].check) is None or check.is_settled):
            held = self._items.popleft()
            self.size -= held.size
            if check is None or check.state == "cleared":
                yield held

    def cut(self, check: Check | None) -> Usage | None:
        """Drop everything from the first chunk on that waits for this check; without one, all. Checks become void.

        So do open checks of what is left: nothing comes any more that could complete them. Returns the last token
        counts that were dropped.
        """
        items = [*self._items]
        start = next((place for place, held in enumerate(items) if check is None or held.check is check), 0)
        self._items = deque(items[:start])
        for held in self._items:
            if held.check is not None and held.check.state == "open":
                held.check.state = "void"
        usage: Usage | None = None
        for held in items[start:]:
            self.size -= held.size
            if held.check is not None and not held.check.is_settled:
                held.check.state = "void"
            if isinstance(held.chunk, Usage):
                usage = held.chunk
        return usage

"""The queue of held chunks, in order, each with its pending check."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from penstock.events import StreamChunk, Usage
from penstock.guard.checks import Check


class Held:
    """A held chunk: it waits for everything before it, and for its checks, if any. Text is in its check.

    `name_check` is that of the name of a call, if the call begins here and its tool is not declared.
    """

    __slots__ = ("check", "chunk", "name_check", "size")

    def __init__(self, chunk: StreamChunk, check: Check | None, size: int, name_check: Check | None) -> None:
        self.chunk = chunk
        self.check = check
        self.size = size
        self.name_check = name_check

    @property
    def checks(self) -> tuple[Check, ...]:
        return tuple(check for check in (self.check, self.name_check) if check is not None)


class HeldQueue:
    """The held chunks; `size` is their number of characters."""

    def __init__(self) -> None:
        self._items: deque[Held] = deque()
        self.size = 0

    @property
    def is_empty(self) -> bool:
        return not self._items

    def add(
        self, chunk: StreamChunk, check: Check | None = None, size: int = 1, name_check: Check | None = None
    ) -> Held:
        """Hold a chunk back; returns its place."""
        held = Held(chunk, check, size, name_check)
        self._items.append(held)
        self.size += size
        return held

    def add_usage(self, usage: Usage) -> None:
        """Hold token counts back; they replace earlier ones."""
        if self._items and isinstance(self._items[-1].chunk, Usage):
            self._items[-1].chunk = usage
        else:
            self.add(usage)

    def grow(self, held: Held, size: int) -> None:
        """Set the number of characters of the text at this place."""
        self.size += size - held.size
        held.size = size

    def take(self) -> Iterator[Held]:
        """Remove and return the chunks at the head that are cleared."""
        while self._items and all(check.is_settled for check in self._items[0].checks):
            held = self._items.popleft()
            self.size -= held.size
            if all(check.state == "cleared" for check in held.checks):
                yield held

    def cut(self, check: Check | None) -> Usage | None:
        """Drop everything from the first chunk that waits for this check; without a check, everything.

        Their checks become void, and so do open checks of the remaining chunks, which nothing can complete any more.
        Returns the last dropped token counts.
        """
        items = [*self._items]
        start = next((place for place, held in enumerate(items) if check is None or check in held.checks), 0)
        self._items = deque(items[:start])
        for held in self._items:
            if held.check is not None and held.check.state == "open":
                held.check.state = "void"
        usage: Usage | None = None
        for held in items[start:]:
            self.size -= held.size
            for dropped in held.checks:
                if not dropped.is_settled:
                    dropped.state = "void"
            if isinstance(held.chunk, Usage):
                usage = held.chunk
        return usage

"""One answer after the other: where several were asked for, their pieces come interleaved, which nobody can read."""

from __future__ import annotations

from penstock.events import Error, Finish, Retry, StreamChunk, Unknown, Usage

MAX_HELD = 100_000
"""How many events may wait for their turn; when there are more, the answer with most of them gets its turn at once."""


class Choices:
    """A stage that lets the events of one choice through, and holds those of the others until that one has finished."""

    def __init__(self) -> None:
        self.seen: set[int] = set()
        self._current: int | None = None
        self._held: dict[int, list[StreamChunk]] = {}

    def feed(self, event: StreamChunk) -> list[StreamChunk]:
        """The events whose turn it is."""
        if isinstance(event, Error | Retry | Unknown | Usage):
            return [event]
        self.seen.add(event.choice)
        if self._current is None:
            self._current = event.choice
        if event.choice == self._current:
            return [event, *self._go_on()] if isinstance(event, Finish) else [event]
        self._held.setdefault(event.choice, []).append(event)
        is_full = sum(map(len, self._held.values())) > MAX_HELD
        return self._take(max(self._held, key=lambda choice: len(self._held[choice]))) if is_full else []

    def close(self) -> list[StreamChunk]:
        """What is still held, choice after choice."""
        return [event for choice in sorted(self._held) for event in self._take(choice)]

    def _go_on(self) -> list[StreamChunk]:
        """A choice has finished: the next ones, up to one that has not."""
        self._current = None
        out: list[StreamChunk] = []
        while self._held and self._current is None:
            out += self._take(min(self._held))
            if isinstance(out[-1], Finish):
                self._current = None
        return out

    def _take(self, choice: int) -> list[StreamChunk]:
        self._current = choice
        return self._held.pop(choice)

"""Orders the choices of a response: their pieces arrive interleaved, and are shown one choice after the other."""

from __future__ import annotations

from penstock.events import Error, Finish, Retry, StreamChunk, Unknown, Usage

MAX_HELD = 100_000
"""The number of events that may be held back; beyond it, the choice with most of them is shown at once."""


class Choices:
    """Passes on the events of one choice, and holds back other choices until it has finished."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self._current: int | None = None
        self._held: dict[int, list[StreamChunk]] = {}

    def feed(self, event: StreamChunk) -> list[StreamChunk]:
        """The events that can be shown now."""
        if isinstance(event, Error | Retry | Unknown | Usage):
            return [event]
        self.numbers.add(event.choice)
        if self._current is None:
            self._current = event.choice
        if event.choice == self._current:
            return [event, *self._next_choices()] if isinstance(event, Finish) else [event]
        self._held.setdefault(event.choice, []).append(event)
        is_full = sum(map(len, self._held.values())) > MAX_HELD
        return self._take(max(self._held, key=lambda choice: len(self._held[choice]))) if is_full else []

    def close(self) -> list[StreamChunk]:
        """The remaining held events, choice by choice."""
        return [event for choice in sorted(self._held) for event in self._take(choice)]

    def _next_choices(self) -> list[StreamChunk]:
        """The events of the next choices, up to one that has not finished."""
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

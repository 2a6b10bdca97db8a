"""What penstock raises, by whose fault it is. What arrives from a provider is never raised by a stage: it is an event.

PenstockError
└── UsageError           the caller asked for something that does not exist
    └── UnknownWireError     ... a wire of that name
"""

from __future__ import annotations

from collections.abc import Iterable


class PenstockError(Exception):
    """The root of everything that penstock raises."""


class UsageError(PenstockError, ValueError):
    """The caller asked for something that cannot be done; the message says what can."""


class UnknownWireError(UsageError):
    """There is no wire of that name."""

    def __init__(self, name: object, known: Iterable[str]) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(f"no wire is called {name!r}; there are: {', '.join(self.known)}")

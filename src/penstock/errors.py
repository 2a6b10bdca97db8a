"""What penstock raises, by whose fault it is. What arrives from a provider is never raised by a stage: it is an event.

PenstockError
└── UsageError               the caller asked for something that cannot be done
    └── UnknownNameError         ... for something of a name that nothing has
        ├── UnknownWireError         ... a wire
        └── UnknownDialectError      ... a dialect
"""

from __future__ import annotations

from collections.abc import Iterable


class PenstockError(Exception):
    """The root of everything that penstock raises."""


class UsageError(PenstockError, ValueError):
    """The caller asked for something that cannot be done; the message says what can."""


class UnknownNameError(UsageError):
    """There is nothing of that name."""

    kind = "thing"

    def __init__(self, name: object, known: Iterable[str]) -> None:
        self.name = name
        self.known = tuple(known)
        super().__init__(f"no {self.kind} is called {name!r}{self._guess()}; there are: {', '.join(self.known)}")

    def _guess(self) -> str:
        from difflib import get_close_matches  # imported here: it costs more than all of this module

        plain = {known.replace("_", "-"): known for known in self.known}
        close = get_close_matches(str(self.name).lower().replace("_", "-"), plain, n=1, cutoff=0.5)
        return f", did you mean {plain[close[0]]!r}?" if close else ""


class UnknownWireError(UnknownNameError):
    """There is no wire of that name."""

    kind = "wire"


class UnknownDialectError(UnknownNameError):
    """There is no dialect of that name."""

    kind = "dialect"

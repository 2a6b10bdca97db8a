"""A problem of a history."""

from __future__ import annotations

from msgspec import Struct

from penstock.providers import ProblemKind


class Problem(Struct, frozen=True):
    """A reason why providers reject a history: its place, its description, and which providers.

    `where` is its place in the value that was passed; `message` and `part` are indexes in the messages read from it.
    """

    kind: ProblemKind
    where: str
    what: str
    providers: tuple[str, ...]
    message: int
    part: int | None = None

    def __str__(self) -> str:
        return f"{self.where}: {self.what} ({self.kind})"

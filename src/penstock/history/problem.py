"""A problem of a history."""

from __future__ import annotations

from msgspec import Struct

from penstock.providers import ProblemKind


class Problem(Struct, frozen=True):
    """Something in a history that providers refuse: where it is, what it is, and who refuses it.

    `where` is its place in what was passed; `message` and `part` are its numbers in the messages read from it.
    """

    kind: ProblemKind
    where: str
    what: str
    providers: tuple[str, ...]
    message: int
    part: int | None = None

    def __str__(self) -> str:
        return f"{self.where}: {self.what} ({self.kind})"

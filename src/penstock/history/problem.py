"""A problem of a history."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

ProblemKind = Literal[
    "call_without_result", "result_without_call", "duplicate_result", "misnamed_result", "misordered_results",
    "results_not_after_call", "split_results", "invalid_call", "repeated_id", "empty_id", "refused_id", "refused_name",
    "empty_part", "empty_message", "misplaced_part", "misplaced_state", "missing_signature", "refused_media",
    "roles_do_not_alternate", "does_not_begin_with_user", "user_after_results", "misplaced_system",
]  # fmt: skip


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

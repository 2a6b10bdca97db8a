"""What can be wrong with a history, and who refuses it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from penstock.providers import PROVIDERS

ProblemKind = Literal[
    "call_without_result", "result_without_call", "duplicate_result", "misnamed_result", "misordered_results",
    "results_not_after_call", "split_results", "invalid_call", "repeated_id", "empty_id", "refused_id",
    "empty_part", "empty_message", "misplaced_part", "misplaced_state", "missing_signature", "refused_media",
    "roles_do_not_alternate", "does_not_begin_with_user", "user_after_results",
]  # fmt: skip

ALL = frozenset(PROVIDERS)
TEMPLATED = frozenset({"ollama", "vllm", "sglang", "llamacpp", "lmstudio"})
"""Servers that put the messages through the model's template, and do not ask what belongs to what."""
PAIRING = ALL - TEMPLATED
CLAUDE = frozenset({"anthropic", "bedrock"})
GEMINI = frozenset({"google", "vertex"})

REFUSED_BY: dict[ProblemKind, frozenset[str]] = {
    "call_without_result": PAIRING,
    "result_without_call": PAIRING,
    "duplicate_result": PAIRING,
    "misnamed_result": GEMINI,
    "misordered_results": GEMINI,
    "results_not_after_call": PAIRING,
    "split_results": CLAUDE | GEMINI,
    "invalid_call": ALL - {"openai", "azure"},  # they take any text
    "repeated_id": CLAUDE | {"mistral"},
    "empty_id": PAIRING - GEMINI,
    "refused_id": CLAUDE | {"openai", "azure", "mistral"},  # others take what they once gave, and more
    "empty_part": CLAUDE | GEMINI,
    "empty_message": PAIRING,
    "misplaced_part": ALL,
    "misplaced_state": ALL,
    "missing_signature": CLAUDE,
    "refused_media": ALL,
    "roles_do_not_alternate": frozenset({"bedrock"}) | TEMPLATED,
    "does_not_begin_with_user": CLAUDE | GEMINI,
    "user_after_results": frozenset({"mistral"}),
}
"""Who refuses what; where it depends on more than the kind, the check says it."""


class Problem(Struct, frozen=True):
    """Something in a history that providers refuse: where it stands, what it is, and who refuses it."""

    kind: ProblemKind
    message: int
    part: int | None
    what: str
    providers: tuple[str, ...]

    @property
    def where(self) -> str:
        """Its place: the number of the message, and of the part in it."""
        return f"messages[{self.message}]" + ("" if self.part is None else f".parts[{self.part}]")

    def __str__(self) -> str:
        return f"{self.where}: {self.what} ({self.kind})"

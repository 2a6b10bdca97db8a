"""What can be wrong with a history, and who refuses it."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from penstock.providers import PROVIDERS

ProblemKind = Literal[
    "call_without_result", "result_without_call", "duplicate_result", "misnamed_result", "misordered_results",
    "results_not_after_call", "split_results", "invalid_call", "repeated_id", "empty_id", "refused_id", "refused_name",
    "empty_part", "empty_message", "misplaced_part", "misplaced_state", "missing_signature", "refused_media",
    "roles_do_not_alternate", "does_not_begin_with_user", "user_after_results", "misplaced_system",
]  # fmt: skip

ALL = frozenset(PROVIDERS)
TEMPLATED = frozenset({"ollama", "vllm", "sglang", "llamacpp", "lmstudio"})
"""Servers that put the messages through the model's template, and do not ask what belongs to what."""
PAIRING = ALL - TEMPLATED
OPENAI = frozenset({"openai", "azure"})
CLAUDE = frozenset({"anthropic", "bedrock"})
GEMINI = frozenset({"google", "vertex"})

REFUSED_BY: dict[ProblemKind, frozenset[str]] = {
    "call_without_result": PAIRING,
    "result_without_call": PAIRING,
    "duplicate_result": PAIRING,
    "misnamed_result": GEMINI,
    "misordered_results": GEMINI,
    "results_not_after_call": PAIRING,
    "split_results": GEMINI | {"bedrock"},
    "invalid_call": ALL - OPENAI,  # they take any text
    "repeated_id": CLAUDE | OPENAI | {"mistral", "cohere"},
    "empty_id": PAIRING - GEMINI,
    "refused_id": CLAUDE | OPENAI | {"mistral"},  # others take what they once gave, and more
    "refused_name": CLAUDE | OPENAI | GEMINI | {"mistral"},
    "empty_part": CLAUDE | GEMINI,
    "empty_message": CLAUDE | GEMINI | {"mistral", "cohere"},
    "misplaced_part": ALL,
    "misplaced_state": ALL,
    "missing_signature": CLAUDE | GEMINI,
    "refused_media": ALL,
    "roles_do_not_alternate": TEMPLATED | {"bedrock"},
    "does_not_begin_with_user": CLAUDE,
    "user_after_results": frozenset({"mistral"}),
    "misplaced_system": frozenset(name for name, row in PROVIDERS.items() if "system-only-first" in row.quirks),
}
"""Who refuses what; where it depends on more than the kind, the rule says it."""


class Problem(Struct, frozen=True):
    """Something in a history that providers refuse: where it stands, what it is, and who refuses it.

    `where` is its place in what was given; `message` and `part` are its numbers in the messages that were read from it.
    """

    kind: ProblemKind
    where: str
    what: str
    providers: tuple[str, ...]
    message: int
    part: int | None = None

    def __str__(self) -> str:
        return f"{self.where}: {self.what} ({self.kind})"

"""Which providers refuse which histories."""

from __future__ import annotations

from typing import Literal

from penstock.providers.rows import PROVIDERS


def speaking(wire: str) -> frozenset[str]:
    """The names of the providers with this wire."""
    return frozenset(name for name, provider in PROVIDERS.items() if provider.wire == wire)


TEMPLATED = frozenset({"ollama", "vllm", "sglang", "llamacpp", "lmstudio"})
"""Servers that put the messages through the model's template; they do not match calls and results."""
OPENAI = frozenset({"openai", "azure"})
CLAUDE = frozenset({"anthropic", "bedrock"})
GEMINI = frozenset({"google", "vertex"})
ALL = frozenset(PROVIDERS)
MATCHING = ALL - TEMPLATED
"""The providers that match results with calls."""

ProblemKind = Literal[
    "call_without_result", "result_without_call", "duplicate_result", "misnamed_result", "misordered_results",
    "results_not_after_call", "split_results", "invalid_call", "repeated_id", "empty_id", "refused_id", "refused_name",
    "empty_part", "empty_message", "misplaced_part", "misplaced_state", "missing_signature", "refused_media",
    "roles_do_not_alternate", "does_not_begin_with_user", "user_after_results", "misplaced_system",
]  # fmt: skip
"""The kinds of problems of a history."""
ProblemCase = Literal[
    "repeated_id_of_earlier_turn", "repeated_item", "blank_part", "blank_result", "empty_last_answer",
    "reasoning_at_the_end", "unsigned_reasoning", "unsigned_first_call", "begins_with_call",
]  # fmt: skip
"""Cases of these kinds that fewer, or other, providers refuse."""

REFUSED_BY: dict[ProblemKind | ProblemCase, frozenset[str]] = {
    "call_without_result": MATCHING,
    "result_without_call": MATCHING,
    "duplicate_result": MATCHING,
    "misnamed_result": GEMINI,
    "misordered_results": GEMINI,
    "results_not_after_call": MATCHING,
    "split_results": GEMINI | {"bedrock"},
    "invalid_call": ALL - OPENAI,  # they accept any text
    "repeated_id": CLAUDE | OPENAI | {"mistral", "cohere"},
    "repeated_id_of_earlier_turn": frozenset({"anthropic"}),
    "repeated_item": OPENAI,
    "empty_id": MATCHING - GEMINI,
    "refused_id": CLAUDE | OPENAI | {"mistral"},  # others accept the ids that they gave, and more
    "refused_name": CLAUDE | OPENAI | GEMINI | {"mistral"},
    "empty_part": CLAUDE | GEMINI,
    "blank_part": CLAUDE,
    "blank_result": CLAUDE,
    "empty_message": CLAUDE | GEMINI | {"mistral", "cohere"},
    "empty_last_answer": GEMINI | {"bedrock", "mistral", "cohere"},  # Anthropic lets the model begin it
    "misplaced_part": ALL,
    "misplaced_state": ALL,
    "reasoning_at_the_end": OPENAI,
    "missing_signature": CLAUDE | GEMINI,
    "unsigned_reasoning": CLAUDE,
    "unsigned_first_call": GEMINI,
    "refused_media": ALL,
    "roles_do_not_alternate": TEMPLATED | {"bedrock"},
    "does_not_begin_with_user": CLAUDE,
    "begins_with_call": CLAUDE | GEMINI,
    "user_after_results": frozenset({"mistral"}),
    "misplaced_system": frozenset(name for name, row in PROVIDERS.items() if "system-only-first" in row.quirks),
}
"""The providers that refuse a history, by what is wrong with it."""

"""Requests as the real providers judge them: what each refuses, and in which words.

Each module judges one wire, by the raw JSON alone. Where the words of a provider are not known, the module says so.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.testing.asked import Asked
from penstock.testing.strict import (
    anthropic,
    bedrock,
    cohere,
    gemini,
    mistral,
    ollama,
    openai_chat,
    openai_responses,
)
from penstock.testing.strict.refusal import Json, Refusal, Refusals

JUDGES: dict[str, Callable[[Json, str], Refusals]] = {
    "anthropic": anthropic.judge,
    "bedrock": bedrock.judge,
    "cohere": cohere.judge,
    "gemini": gemini.judge,
    "mistral": mistral.judge,
    "ollama": ollama.judge,
    "openai-chat": openai_chat.judge,
    "openai-responses": openai_responses.judge,
}


def refusal(asked: Asked) -> Refusal | None:
    """What the provider refuses a request for; None if it takes it."""
    return next(JUDGES[asked.wire](asked.body, asked.model), None)


__all__ = ["JUDGES", "Refusal", "refusal"]

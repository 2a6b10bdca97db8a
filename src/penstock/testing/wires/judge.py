"""Validates requests as the real providers do, with their error messages.

Each module validates the raw JSON of one wire. Where the message of a provider is not known, the module says so.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.testing.request import ReceivedRequest
from penstock.testing.wires.anthropic import judge as anthropic
from penstock.testing.wires.bedrock import judge as bedrock
from penstock.testing.wires.cohere import judge as cohere
from penstock.testing.wires.gemini import judge as gemini
from penstock.testing.wires.gemini_interactions import judge as gemini_interactions
from penstock.testing.wires.mistral import judge as mistral
from penstock.testing.wires.ollama import judge as ollama
from penstock.testing.wires.openai_chat import judge as openai_chat
from penstock.testing.wires.openai_responses import judge as openai_responses
from penstock.testing.wires.rejection import Json, Rejection, Rejections

JUDGES: dict[str, Callable[[Json, str], Rejections]] = {
    "anthropic": anthropic.judge,
    "bedrock": bedrock.judge,
    "cohere": cohere.judge,
    "gemini": gemini.judge,
    "gemini-interactions": gemini_interactions.judge,
    "mistral": mistral.judge,
    "ollama": ollama.judge,
    "openai-chat": openai_chat.judge,
    "openai-responses": openai_responses.judge,
}


def find_rejection(request: ReceivedRequest) -> Rejection | None:
    """The error that the provider would return; None if it accepts the request."""
    return next(JUDGES[request.wire](request.body, request.model), None)


__all__ = ["JUDGES", "Rejection", "find_rejection"]

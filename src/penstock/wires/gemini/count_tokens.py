"""Counting tokens with the method `countTokens` of a model. AI Studio takes a whole request, Vertex AI its fields."""

from __future__ import annotations

from penstock.wires.shared.token_counts import JSONObject, TokenCounter

WHOLE = "generateContentRequest"
FIELDS = ("contents", "systemInstruction", "tools", "generationConfig")
"""The fields of a request that Vertex AI takes."""


def _request(url: str, body: JSONObject) -> tuple[str, JSONObject]:
    model, _, _ = url.partition("?")[0].rpartition(":")
    counting = f"{model}:countTokens"
    if "/publishers/" in model:
        return counting, {name: body[name] for name in FIELDS if name in body}
    return counting, {WHOLE: {"model": f"models/{model.rpartition('/models/')[2]}", **body}}


def _counted(body: JSONObject) -> JSONObject:
    request = body.get(WHOLE, body)
    return request if isinstance(request, dict) else {}


COUNTER = TokenCounter("totalTokens", _request, _counted)

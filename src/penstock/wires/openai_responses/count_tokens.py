"""Counting tokens with `/v1/responses/input_tokens`, which takes the fields that count."""

from __future__ import annotations

from penstock.wires.shared.token_counts import JSONObject, TokenCounter

FIELDS = (
    "model", "input", "instructions", "tools", "tool_choice", "parallel_tool_calls", "reasoning", "text", "truncation",
    "previous_response_id", "conversation",
)  # fmt: skip
"""The fields of a request that it takes."""


def _request(url: str, body: JSONObject) -> tuple[str, JSONObject]:
    address, mark, query = url.partition("?")
    return f"{address}/input_tokens{mark}{query}", {name: body[name] for name in FIELDS if name in body}


COUNTER = TokenCounter("input_tokens", _request, lambda body: body)

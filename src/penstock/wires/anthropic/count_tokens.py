"""Counting tokens with `/v1/messages/count_tokens`, which refuses fields that do not count."""

from __future__ import annotations

from penstock.wires.shared.token_counts import JSONObject, TokenCounter

FIELDS = ("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control")
"""The fields of a request that it takes."""


def _request(url: str, body: JSONObject) -> tuple[str, JSONObject]:
    address, mark, query = url.partition("?")
    counted = {name: body[name] for name in FIELDS if name in body}
    return f"{address}/count_tokens{mark}{query}", counted


COUNTER = TokenCounter("input_tokens", _request, lambda body: body)

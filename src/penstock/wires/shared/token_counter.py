"""Endpoints that count the tokens of a request: how a provider is asked, and how a server is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

JSONObject = Mapping[str, Any]


class TokenCounter(Struct, frozen=True):
    """The endpoint of a wire that counts the input tokens of a request.

    `request` returns its URL and body, given those of the request; `counted` the body of the request, given that of the
    endpoint. `field` has the number in its response.
    """

    field: str
    request: Callable[[str, JSONObject], tuple[str, JSONObject]]
    counted: Callable[[JSONObject], JSONObject]

    def read(self, response: Any) -> int | None:
        """The number in a response; None if it has none."""
        tokens = response.get(self.field) if isinstance(response, Mapping) else None
        is_count = isinstance(tokens, int) and not isinstance(tokens, bool) and tokens >= 0
        return tokens if is_count else None

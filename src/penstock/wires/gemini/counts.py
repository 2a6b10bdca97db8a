"""Token counts of a Gemini response, which come with every chunk: each field replaces its earlier value (QUIRKS 88)."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple

from penstock.jsontext.portable import as_text
from penstock.wires.shared.decode_response.loose_frames import UNREADABLE

MAX_COUNTS = 256
"""How many counts are kept until their fields are merged, which takes less time for many at once."""
_BATCH = 16  # after a read of this many chunks they are merged at once, while they are in the cache
_NULL = Raw(b"null")


class Counts(Struct, gc=False, forbid_unknown_fields=True, rename="camel"):
    """The token counts of a chunk, in the usual fields. The details are not parsed, and None if they are missing."""

    prompt_token_count: int | None = None
    candidates_token_count: int | None = None
    total_token_count: int | None = None
    traffic_type: str | None = None
    prompt_tokens_details: Raw = None  # type: ignore[assignment]  # a union with Raw is not possible
    candidates_tokens_details: Raw = None  # type: ignore[assignment]
    thoughts_token_count: int | None = None
    cached_content_token_count: int | None = None
    cache_tokens_details: Raw = None  # type: ignore[assignment]
    tool_use_prompt_token_count: int | None = None
    tool_use_prompt_tokens_details: Raw = None  # type: ignore[assignment]


class LastCounts:
    """The last value of each field; the counts that are `waiting` have not been merged."""

    __slots__ = ("_fields", "add", "waiting")

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self.waiting: list[Counts] = []
        self.add = self.waiting.append

    def settle(self, size: int) -> None:
        """Merges the counts if they are many; to be called after each read of `size` chunks."""
        if size >= _BATCH or len(self.waiting) >= MAX_COUNTS:
            self._merge()

    def add_fields(self, fields: dict[str, Any]) -> None:
        """Adds counts in fields of any kind."""
        self._merge()
        self._fields.update((key, count) for key, count in fields.items() if count is not None)

    def fields(self) -> dict[str, Any]:
        """All fields so far, with their details parsed; the usual ones first, in an order of their own."""
        self._merge()
        usual = {name: self._fields[name] for name in Counts.__struct_encode_fields__ if name in self._fields}
        fields = {**usual, **self._fields}
        return {key: _parsed(count) if isinstance(count, Raw) else count for key, count in fields.items()}

    def _merge(self) -> None:
        columns = zip(*map(astuple, self.waiting), strict=True)
        for name, column in zip(Counts.__struct_encode_fields__, columns, strict=False):  # no columns without counts
            if column.count(None) < len(column):
                values = (value for value in reversed(column) if value is not None and value != _NULL)
                if (value := next(values, None)) is not None:
                    self._fields[name] = value
        self.waiting.clear()


def _parsed(details: Raw) -> Any:
    try:
        return msgspec.json.decode(details)
    except UNREADABLE:
        pass
    try:
        return json.loads(bytes(details), strict=False)
    except (ValueError, RecursionError):
        return as_text(bytes(details).decode("utf-8", "replace"))

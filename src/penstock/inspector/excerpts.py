"""Short excerpts of values, for lists of findings."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.jsontext.shown_text import one_line


def excerpt(value: Any, limit: int = 160) -> str:
    """The value as one line of text, truncated to `limit` characters."""
    return one_line(as_text(value), limit)


def as_text(value: Any) -> str:
    """A string as it is, any other value as JSON, and a value without JSON as its `repr`."""
    try:
        return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=repr).decode()
    except (TypeError, ValueError, RecursionError):
        return repr(value)

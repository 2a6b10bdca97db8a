"""Short excerpts of values, for lists of findings."""

from __future__ import annotations

import re
from typing import Any

import msgspec

# C0 except tab and newline, DEL, C1, bidirectional controls, other line separators, lone surrogates.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")
"""Characters that act on a terminal, or cannot be printed."""


def has_control(text: str) -> bool:
    """Whether the text has control characters other than tabs and newlines."""
    return CONTROL.search(text) is not None


def one_line(value: Any, limit: int = 160) -> str:
    """The value as one line of text, truncated to `limit` characters."""
    text = as_text(value)
    excess = len(text) - limit
    line = text[:limit].replace("\n", "\\n").replace("\t", "\\t")
    return f"{line}… ({excess:,} more characters)" if excess > 0 else line


def as_text(value: Any) -> str:
    """A string as it is, any other value as JSON, and a value without JSON as its `repr`."""
    try:
        return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=repr).decode()
    except (TypeError, ValueError, RecursionError):
        return repr(value)

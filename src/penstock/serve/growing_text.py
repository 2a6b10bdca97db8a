"""Growing texts of messages."""

from __future__ import annotations

from typing import Any


def append_text(fields: dict[str, Any], name: str, piece: str) -> None:
    """Append a piece to a text in `fields`, which may not be there yet."""
    text = fields.pop(name, "")  # with one reference it grows in place (decision 6)
    text += piece
    fields[name] = text

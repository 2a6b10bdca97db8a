"""Texts of clients and servers in the log of a gateway."""

from __future__ import annotations

MAX_LOGGED = 300
"""How many characters of a name or a message are logged."""


def one_line(text: str) -> str:
    """A text of a client or a server for the log: on one line, without control characters, and not too long."""
    text = text if text.isprintable() else text.encode("unicode_escape").decode()
    return text if len(text) <= MAX_LOGGED else f"{text[:MAX_LOGGED]}…"

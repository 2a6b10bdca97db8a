"""Recognises payloads that can only be a keep-alive. Any other unreadable payload is a hole in the stream."""

from __future__ import annotations

import re
from typing import Any

WORDS = frozenset(
    {"ping", "pong", "keep-alive", "keepalive", "keep alive", "heartbeat", "heart-beat", "noop", "[done]"}
)
"""The whole payload of a keep-alive, in any case."""
_COMMENT = re.compile(r':[^{}\[\]"\\]*')  # QUIRKS 104; with any of these characters it may be a piece of JSON


def is_keep_alive(payload: str) -> bool:
    """Whether a payload that is not JSON is harmless: empty, a comment sent as data, or one of `WORDS`."""
    text = payload.strip()
    return not text or text.lower() in WORDS or _COMMENT.fullmatch(text) is not None


def is_keep_alive_value(value: Any) -> bool:
    """Whether a JSON value that is not an object is harmless: null, an empty list, or one of `WORDS` as a string."""
    return value is None or value == [] or (isinstance(value, str) and is_keep_alive(value))

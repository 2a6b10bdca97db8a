"""Raw control characters in JSON strings, which JSON forbids and models write: each stands for itself.

A backslash before one is not an escape of JSON, so both characters stand for themselves.
"""

from __future__ import annotations

import re

CONTROLS = tuple(map(chr, range(0x20)))
"""The control characters that JSON strings must escape."""

_TOKEN = re.compile(r"\\[^\x00-\x1f]|(?P<backslash>\\)?(?P<control>[\x00-\x1f])")
_STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)  # without an end, up to the end: else it is quadratic
_AFTER_BACKSLASH = re.compile(r"\\[\x00-\x1f]")
_SHORT = {"\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_ESCAPES = {sign: _SHORT.get(sign, f"\\u{ord(sign):04x}") for sign in CONTROLS}


def escape_controls(text: str) -> str:
    """The text of a JSON string, with its raw control characters and the backslashes before them escaped."""
    return _TOKEN.sub(_escaped, text)


def _escaped(token: re.Match[str]) -> str:
    if token["control"] is None:  # an escape
        return token[0]
    return ("\\\\" if token["backslash"] else "") + _ESCAPES[token["control"]]


def lenient_json(text: str) -> str:
    """JSON text that a parser with `strict=False` reads, because no control character follows a backslash."""
    if _AFTER_BACKSLASH.search(text) is None:
        return text
    return _STRING.sub(lambda string: escape_controls(string[0]), text)

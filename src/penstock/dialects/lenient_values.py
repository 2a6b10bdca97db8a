"""Reads values in any bracket notation: JSON, Python, JavaScript, and what people write from memory.

It serves the search for calls in texts of a conversation (`source_calls`), where a value that is read wrongly costs
little. Nothing here decides what a call of the model means.
"""

from __future__ import annotations

import json
import re
from typing import Any

from penstock.dialects.encodings import decode_escapes

MAX_VALUE = 16 * 1024
"""How many characters a value may have, with its brackets."""
_DEEPEST = 32
_CLOSERS = {"(": ")", "[": "]", "{": "}"}
_TOKEN = re.compile(
    r"""
    (?P<string>"(?:[^"\\]|\\.){0,4096}"|'(?:[^'\\]|\\.){0,4096}'|`[^`]{0,4096}`)
    |(?P<open>[\[({])|(?P<close>[\])}])|(?P<comma>[,;])|(?P<colon>[:=])
    |(?P<word>[^\s\[\](){},;:="'`]+)|(?P<space>\s+)|(?P<other>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_decoder = json.JSONDecoder(strict=False)


def read_value(text: str, start: int) -> tuple[Any, int]:
    """Returns the value whose opening bracket is at `start`, None if its brackets do not match, and where it ends."""
    window = text[start : start + MAX_VALUE]
    if window[0] != "(":
        try:
            value, end = _decoder.raw_decode(window)
            return value, start + end
        except (ValueError, RecursionError):
            pass
    reader = _Values(window)
    value = reader.read()
    return value, start + reader.position


class _Values:
    """Reads one value in brackets. Arguments in parentheses are an object, those without a name are numbered."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.position = 0

    def read(self) -> Any:
        """Returns the value, None if its brackets do not match."""
        stack: list[_Level] = []
        value: Any = None
        while self.position < len(self._text):
            token = _TOKEN.match(self._text, self.position)
            assert token is not None  # the last alternative matches any character
            self.position = token.end()
            kind = token.lastgroup
            if kind == "open":
                if len(stack) == _DEEPEST:
                    return None
                stack.append(_Level(token[0]))
            elif kind == "close":
                level = stack.pop()
                if level.closer != token[0]:
                    return None
                value = level.build()
                if not stack:
                    return value
                stack[-1].add_value(value)
            else:
                stack[-1].add(kind or "", token[0])
        return None


class _Level:
    """What is between two brackets so far."""

    def __init__(self, bracket: str) -> None:
        self.closer = _CLOSERS[bracket]
        self._is_list = bracket == "["
        self._items: list[tuple[str, Any]] = []
        self._key = ""
        self._words: list[str] = []  # the text of the present item, outside of strings and brackets
        self._value: Any = None  # its string or bracket
        self._has_value = False

    def add_value(self, value: Any) -> None:
        self._value, self._has_value = value, True

    def add(self, kind: str, token: str) -> None:
        match kind:
            case "comma":
                self._end_item()
            case "colon" if not self._key and (self._words or isinstance(self._value, str)):
                self._key = str(self._value) if self._has_value else "".join(self._words).strip()
                self._words, self._value, self._has_value = [], None, False
            case "string" if not "".join(self._words).strip():
                self.add_value(decode_escapes(token[1:-1]))
            case _:
                self._words.append(token)

    def build(self) -> Any:
        self._end_item()
        if self._is_list:
            return [value for _, value in self._items]
        return {key or str(number): value for number, (key, value) in enumerate(self._items)}

    def _end_item(self) -> None:
        text = "".join(self._words).strip()
        if self._has_value or text:
            self._items.append((self._key, self._value if self._has_value else text))
        self._key, self._words, self._value, self._has_value = "", [], None, False

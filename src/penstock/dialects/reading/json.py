"""JSON inside a text: keys, strings and values, read as they arrive."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from penstock.dialects.reading.marks import Marks, marks_of
from penstock.dialects.reading.source import MAX_HEADER, Mismatch, Reading, Source, TextEnded
from penstock.jsontext.controls import CONTROLS, lenient_json
from penstock.jsontext.scan import SPACE, TO_QUOTE
from penstock.jsontext.surrogates import SurrogateJoiner

# -- the parts of an object ----------------------------------------------------------------------------------------


def next_key(source: Source) -> Reading[str | None]:
    """Reads the next key of an object and its colon; None at the end of the object."""
    if not (yield from at_key(source)):
        return None
    key = yield from short_string(source)
    yield from colon(source)
    return key


def at_key(source: Source) -> Reading[bool]:
    """Goes to the next key of an object; returns False if the object ends instead."""
    yield from source.space()
    if (yield from source.accept("}")):
        return False
    if (yield from source.accept(",")):
        yield from source.space()
    return True


def colon(source: Source) -> Reading[None]:
    """Reads the colon after a key, and white space around it."""
    yield from source.space()
    yield from source.expect(":")
    yield from source.space()


def short_string(source: Source) -> Reading[str]:
    """Reads a string of at most about MAX_HEADER characters: a key or a name."""
    yield from source.expect('"')
    text, mark = yield from source.upto('"', "\\")
    while mark == "\\":
        if len(text) > MAX_HEADER:
            source.fail("expected the end of a string sooner")
        text += mark + (yield from source.expect(*_AFTER_BACKSLASH))
        piece, mark = yield from source.upto('"', "\\")
        text += piece
    return as_text(f'"{text}"')


_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "u": ""}
_AFTER_BACKSLASH = (*_ESCAPES, *CONTROLS)
_HEX = tuple("0123456789abcdefABCDEF")
_IN_STRING = marks_of('"', "\\")


def string_text(source: Source, sink: Callable[[str], None]) -> Reading[None]:
    """Passes the text of a JSON string to `sink` as it arrives, after the opening quote."""
    joiner = SurrogateJoiner()
    try:
        while True:
            text, mark = source.take(_IN_STRING)
            give(joiner.feed(text), sink)
            if mark == '"':
                break
            if mark:
                give(joiner.feed((yield from read_escape(source, sink, joiner))), sink)
            else:
                yield from source.more()
    except TextEnded:
        give(joiner.close(), sink)
        raise
    give(joiner.close(), sink)


def give(text: str, sink: Callable[[str], None]) -> None:
    if text:
        sink(text)


def read_escape(source: Source, sink: Callable[[str], None], joiner: SurrogateJoiner) -> Reading[str]:
    """Reads an escape in a JSON string, after its backslash; returns the character that it stands for.

    If it is not a valid escape, it is passed to the sink as it was written.
    """
    raw = "\\"
    try:
        raw += yield from source.expect(*_AFTER_BACKSLASH)
        while raw[1] == "u" and len(raw) < 6:
            raw += yield from source.expect(*_HEX)
    except Mismatch:
        give(joiner.feed(raw), sink)
        raise
    if raw[1] == "u":
        return chr(int(raw.removeprefix("\\u"), 16))
    return _ESCAPES.get(raw[1], raw)  # a control character and its backslash stand for themselves


# -- values --------------------------------------------------------------------------------------------------------

_NO_JSON = "<>`"  # characters that JSON has only in strings; the marks and fences around it begin with them
_OUTSIDE = rf'[^"{{}}\[\]{_NO_JSON}]*+'
_TO_BRACKET = re.compile(_OUTSIDE + r'(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"' + _OUTSIDE + ")*+", re.DOTALL)
_SCALAR = re.compile(rf'[^\s,:"{{}}\[\]{_NO_JSON}]*')
_BRACKET_MARKS = marks_of("[TOOL_CALLS]", "[/TOOL_CALLS]")


class ValueEnd(Marks):
    """Searches for the end of a JSON value, or for a character that JSON has only in strings: there it is broken."""

    __slots__ = ("_depth", "_has_scalar", "_is_in_string", "_kind", "is_broken", "is_found")

    def __init__(self) -> None:
        self._kind = ""  # "nested", "string" or "scalar" once the first character is known
        self._depth = 0
        self._is_in_string = False
        self._has_scalar = False
        self.is_found = False
        self.is_broken = False

    def cannot_begin_in(self, text: str) -> bool:
        return self._is_in_string and '"' not in text and "\\" not in text

    def find(self, text: str, position: int, is_over: bool, limit: int) -> tuple[int, str]:
        """Returns how far the value goes in the text, and ""; sets `is_found` if that is its end."""
        if not self._kind:
            position = SPACE.match(text, position).end()  # type: ignore[union-attr]  # it matches the empty string
            if position == len(text):
                return position, ""
            self._kind = {"{": "nested", "[": "nested", '"': "string"}.get(text[position], "scalar")
            if self._kind == "string":
                self._is_in_string, position = True, position + 1
        if self._kind != "scalar":
            return self._scan(text, position, is_over), ""
        end = _SCALAR.match(text, position).end()  # type: ignore[union-attr]  # it matches the empty string
        self._has_scalar = self._has_scalar or end > position
        self.is_found = self._has_scalar and end < len(text)
        self.is_broken = not self._has_scalar and end < len(text)
        return end, ""

    def _scan(self, text: str, position: int, is_over: bool) -> int:
        while True:
            if self._is_in_string:
                position = self._leave_string(text, position, is_over)
                if self._is_in_string or self._kind == "string":
                    return position
            position = _TO_BRACKET.match(text, position).end()  # type: ignore[union-attr]  # it matches the empty string
            if position == len(text) or not self._passes(text, position, is_over):
                return position
            position += 1
            if self.is_found:
                return position

    def _passes(self, text: str, position: int, is_over: bool) -> bool:
        """Returns whether the character here, outside of strings, belongs to the value; counts the brackets."""
        match text[position]:
            case '"':
                self._is_in_string = True
            case "]" | "}":
                self._depth -= 1
                self.is_found = self._depth <= 0
            case "{":
                self._depth += 1
            case "[":
                if (mark := _BRACKET_MARKS.match(text, position, is_over)) is not None:
                    self.is_broken = bool(mark)  # "" means that more text is needed to decide
                    return False
                self._depth += 1
            case _:
                self.is_broken = True
                return False
        return True

    def _leave_string(self, text: str, position: int, is_over: bool) -> int:
        if quote := TO_QUOTE.match(text, position):
            self._is_in_string = False
            self.is_found = self._kind == "string"
            return quote.end()
        if is_over or not text.endswith("\\"):
            return len(text)
        rest = text[position:]
        return len(text) - (len(rest) - len(rest.rstrip("\\"))) % 2  # half an escape waits for the other half


def value(source: Source, sink: Callable[[str], None]) -> Reading[None]:
    """Passes a JSON value to `sink` as it arrives. A mark inside the value is a mismatch: the value was not closed."""
    end = ValueEnd()
    while True:
        piece, _ = source.take(end)
        if piece:
            sink(piece)
        if end.is_found:
            return
        if end.is_broken:
            source.fail("expected the rest of a JSON value")
        if source.is_over:
            raise TextEnded("the text ended inside a JSON value")
        yield


def json_text(source: Source) -> Reading[str]:
    """Reads a JSON value, and returns its text."""
    pieces: list[str] = []
    yield from value(source, pieces.append)
    return "".join(pieces)


def unwrapped(raw: str) -> str:
    """Returns the JSON of arguments that may be written as a string that contains the JSON."""
    inner = as_value(raw) if raw.startswith('"') else None
    return inner if isinstance(inner, str) and inner.lstrip().startswith("{") else raw


def as_value(raw: str) -> Any:
    try:
        return json.loads(lenient_json(raw), strict=False)
    except (ValueError, RecursionError):
        return None


def as_text(raw: str) -> str:
    """Returns the text of a JSON string or integer, "" for anything else. Models write ids as either."""
    value = as_value(raw)
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) else ""


def ignore(piece: str) -> None:
    """A sink that discards the text."""

"""JSON as it stands in a text: keys, strings and values, read piece by piece."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from penstock.dialects.reading.cursor import MAX_HEADER, Mismatch, Reading, TextEnded
from penstock.dialects.reading.marks import Marks, marks_of
from penstock.dialects.reading.source import Source
from penstock.jsontext.scan import SPACE, TO_QUOTE
from penstock.jsontext.surrogates import SurrogateJoiner

# -- the parts of an object ----------------------------------------------------------------------------------------


def next_key(source: Source) -> Reading[str | None]:
    """The next key of an object and its colon; None at the object's end."""
    if not (yield from at_key(source)):
        return None
    key = yield from short_string(source)
    yield from colon(source)
    return key


def at_key(source: Source) -> Reading[bool]:
    """Go to the next key of an object; False if the object ends instead, which is read."""
    yield from source.space()
    if (yield from source.accept("}")):
        return False
    if (yield from source.accept(",")):
        yield from source.space()
    return True


def colon(source: Source) -> Reading[None]:
    """The colon after a key, and the white space around it."""
    yield from source.space()
    yield from source.expect(":")
    yield from source.space()


def short_string(source: Source) -> Reading[str]:
    """A string that is a key or a name: it is short."""
    yield from source.expect('"')
    text, mark = yield from source.upto('"', "\\")
    while mark == "\\":
        if len(text) > MAX_HEADER:
            source.fail("expected the end of a string sooner")
        text += mark + (yield from source.expect(*_ESCAPES))
        piece, mark = yield from source.upto('"', "\\")
        text += piece
    return as_text(f'"{text}"')


_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "u": ""}
_HEX = tuple("0123456789abcdefABCDEF")
_IN_STRING = marks_of('"', "\\")


def string_text(source: Source, sink: Callable[[str], None]) -> Reading[None]:
    """The text of a JSON string, from after its opening quote on, given to `sink` as it comes."""
    joiner = SurrogateJoiner()
    try:
        while True:
            text, mark = source.take(_IN_STRING)
            give(joiner.feed(text), sink)
            if mark == '"':
                break
            if mark:
                give(joiner.feed((yield from escaped(source, sink, joiner))), sink)
            else:
                yield from source.more()
    except TextEnded:
        give(joiner.close(), sink)
        raise
    give(joiner.close(), sink)


def give(text: str, sink: Callable[[str], None]) -> None:
    if text:
        sink(text)


def escaped(source: Source, sink: Callable[[str], None], joiner: SurrogateJoiner) -> Reading[str]:
    """The character that an escape in a JSON string stands for, from after its backslash on.

    What proves to be no escape is given to the sink as it stands.
    """
    raw = "\\"
    try:
        raw += yield from source.expect(*_ESCAPES)
        while raw[1] == "u" and len(raw) < 6:
            raw += yield from source.expect(*_HEX)
    except Mismatch:
        give(joiner.feed(raw), sink)
        raise
    return chr(int(raw.removeprefix("\\u"), 16)) if raw[1] == "u" else _ESCAPES[raw[1]]


# -- values --------------------------------------------------------------------------------------------------------

_NO_JSON = "<>`"  # what JSON has in strings only: how the marks and fences begin that stand around it
_OUTSIDE = rf'[^"{{}}\[\]{_NO_JSON}]*+'
_TO_BRACKET = re.compile(_OUTSIDE + r'(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"' + _OUTSIDE + ")*+", re.DOTALL)
_SCALAR = re.compile(rf'[^\s,:"{{}}\[\]{_NO_JSON}]*')
_BRACKET_MARKS = marks_of("[TOOL_CALLS]", "[/TOOL_CALLS]")


class ValueEnd(Marks):
    """Looks for the end of one JSON value, and for what no JSON has outside of its strings: there it is broken."""

    __slots__ = ("_depth", "_in_string", "_kind", "is_broken", "is_found")

    def __init__(self) -> None:
        self._kind = ""  # "nested", "string" or "scalar" once the first character is known
        self._depth = 0
        self._in_string = False
        self.is_found = False
        self.is_broken = False

    def cannot_begin_in(self, text: str) -> bool:
        return self._in_string and '"' not in text and "\\" not in text

    def find(self, text: str, at: int, is_over: bool, most: int) -> tuple[int, str]:
        """How far the value goes in what has come; it says itself whether that is its end. There are no marks."""
        if not self._kind:
            at = SPACE.match(text, at).end()  # type: ignore[union-attr]  # it matches the empty string
            if at == len(text):
                return at, ""
            self._kind = {"{": "nested", "[": "nested", '"': "string"}.get(text[at], "scalar")
            if self._kind == "string":
                self._in_string, at = True, at + 1
        if self._kind != "scalar":
            return self._scan(text, at, is_over), ""
        at = _SCALAR.match(text, at).end()  # type: ignore[union-attr]  # it matches the empty string
        self.is_found = at < len(text)
        return at, ""

    def _scan(self, text: str, at: int, is_over: bool) -> int:
        while True:
            if self._in_string:
                at = self._leave_string(text, at, is_over)
                if self._in_string or self._kind == "string":
                    return at
            at = _TO_BRACKET.match(text, at).end()  # type: ignore[union-attr]  # it matches the empty string
            if at == len(text) or not self._passes(text, at, is_over):
                return at
            at += 1
            if self.is_found:
                return at

    def _passes(self, text: str, at: int, is_over: bool) -> bool:
        """Whether what stands here, outside of strings, belongs to the value; it counts the brackets."""
        match text[at]:
            case '"':
                self._in_string = True
            case "]" | "}":
                self._depth -= 1
                self.is_found = self._depth <= 0
            case "{":
                self._depth += 1
            case "[":
                if (mark := _BRACKET_MARKS.match(text, at, is_over)) is not None:
                    self.is_broken = bool(mark)  # if it is empty, it cannot be told yet
                    return False
                self._depth += 1
            case _:
                self.is_broken = True
                return False
        return True

    def _leave_string(self, text: str, at: int, is_over: bool) -> int:
        if quote := TO_QUOTE.match(text, at):
            self._in_string = False
            self.is_found = self._kind == "string"
            return quote.end()
        if is_over or not text.endswith("\\"):
            return len(text)
        rest = text[at:]
        return len(text) - (len(rest) - len(rest.rstrip("\\"))) % 2  # half an escape waits for its other half


def value(source: Source, sink: Callable[[str], None]) -> Reading[None]:
    """A JSON value, given to `sink` piece by piece as it comes; it ends early where a mark stands that no JSON has."""
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
    """The text of a JSON value."""
    pieces: list[str] = []
    yield from value(source, pieces.append)
    return "".join(pieces)


def unwrapped(raw: str) -> str:
    """The JSON of the arguments, taken out of the string that it may be written in."""
    inner = as_value(raw) if raw.startswith('"') else None
    return inner if isinstance(inner, str) and inner.lstrip().startswith("{") else raw


def as_value(raw: str) -> Any:
    try:
        return json.loads(raw, strict=False)
    except (ValueError, RecursionError):
        return None


def as_text(raw: str) -> str:
    """A string's text; a number as it stands. Ids come as either."""
    value = as_value(raw)
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) else ""


def ignore(piece: str) -> None:
    """What is read is of no use."""

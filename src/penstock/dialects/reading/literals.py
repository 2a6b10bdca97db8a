"""Python literals, converted to JSON as they arrive: strings, numbers, constants, lists, dicts, tuples and sets."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable
from json.encoder import encode_basestring
from math import isfinite
from typing import Literal

from penstock.dialects.reading.held_text import MAX_HELD
from penstock.dialects.reading.marks import marks_of
from penstock.dialects.reading.schema import quote as quoted
from penstock.dialects.reading.source import Mismatch, Reading, Source
from penstock.jsontext.scan import MAX_DEPTH

UNESCAPED = "a quote in a string may have ended it: escape quotes in strings with a backslash"
"""Why a call is a guess if a string in it may have ended too early."""
NOT_ENDED = "text follows the call directly, so it may have ended too early"

# -- strings -------------------------------------------------------------------------------------------------------

QUOTES = ("'''", '"""', "'", '"')
PREFIXES = ("", "r", "b", "u", "f", "rb", "br", "rf", "fr")
AFTER_VALUE = (",", ")", "]", "}")
"""What may follow a string, after white space. A quote followed by anything else is a character of the string."""

_STARTS = tuple(prefix + quote for prefix in (*PREFIXES, "R", "B", "U", "F") for quote in QUOTES)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\\": "\\", "'": "'",
            '"': '"', "\n": ""}  # fmt: skip
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_HEX, _OCTAL = "0123456789abcdefABCDEF", "01234567"
_CHARACTER = re.compile(r"[A-Za-z0-9 -]*")


def string(
    source: Source, sink: Callable[[str], None], quote: str, after: tuple[str, ...], prefix: str = ""
) -> Reading[bool]:
    """Passes the text of a string to `sink` as it arrives, after the opening quote; reads white space after it.

    Returns whether its end is certain: it is a guess if another quote before it was taken for a character.
    """
    is_raw, is_format = "r" in prefix, "f" in prefix
    marks = marks_of(quote, "\\", *(("{{", "}}", "{") if is_format else ()))
    is_clean = True
    while True:
        text, mark = source.take(marks)
        if text:
            sink(text)
        if not mark and not source.is_over:
            yield
            continue
        match mark:
            case "":
                yield from source.more()
            case "\\" if is_raw:
                sink("\\" + (yield from source.accept(quote[0], "\\")))
            case "\\":
                sink((yield from escape(source)))
            case "{":
                source.refuse(mark, "expected a string without expressions")
            case "{{" | "}}":
                sink(mark[0])
            case _:
                if end := (yield from string_end(source, sink, quote, after, is_clean)):
                    return is_clean and end == "certain"
                is_clean = False


StringEnd = Literal["", "certain", "guessed"]


def string_end(
    source: Source, sink: Callable[[str], None], quote: str, after: tuple[str, ...], is_clean: bool
) -> Reading[StringEnd]:
    """Returns whether the quote that was just read ends its string. If not, it is passed to the sink: `"it"s"`.

    Another string may follow and continue this one, but only if this one `is_clean`: no quote in it was a character.
    """
    while len(quote) == 3 and (yield from source.accept(quote[0])):
        sink(quote[0])
    text = quote + (yield from source.space())
    if (yield from source.sees(*after)) or not (yield from source.peek()):
        return "certain"
    if text == quote and (yield from source.accept(quote)):  # `"5' 11""`
        sink(quote)
        text = quote + (yield from source.space())
        if (yield from source.sees(*after)) or not (yield from source.peek()):
            return "guessed"
    elif is_clean and (text != quote or (yield from source.sees("+"))):
        if plus := (yield from source.accept("+")):
            text += plus + (yield from source.space())
        if (yield from source.sees(*_STARTS)):
            return "certain"
    sink(text)
    return ""


def escape(source: Source) -> Reading[str]:
    """Reads an escape after its backslash, and returns the character; an unknown escape stays as it is."""
    letter = yield from source.accept(*_ESCAPES, *_HEX_DIGITS, *_OCTAL, "N{")
    if letter in _ESCAPES:
        return _ESCAPES[letter]
    if letter in _HEX_DIGITS:
        return (yield from hex_escape(source, letter))
    if letter == "N{":
        return (yield from named_escape(source))
    if letter:
        return chr(int(letter + (yield from digits(source, _OCTAL, 2)), 8))
    return "\\"


def hex_escape(source: Source, letter: str) -> Reading[str]:
    """Reads `\\x41`, `\\u0041` or `\\U00000041`, and joins a surrogate pair."""
    number = yield from digits(source, _HEX, _HEX_DIGITS[letter])
    if len(number) < _HEX_DIGITS[letter] or (code := int(number, 16)) > 0x10FFFF:
        return f"\\{letter}{number}"
    if 0xD800 <= code < 0xDC00 and (yield from source.accept("\\u")):
        low = yield from digits(source, _HEX, 4)
        if len(low) == 4 and 0xDC00 <= int(low, 16) < 0xE000:
            return chr(0x10000 + ((code - 0xD800) << 10) + int(low, 16) - 0xDC00)
        source.unread("\\u" + low)
    return "\ufffd" if 0xD800 <= code < 0xE000 else chr(code)


def named_escape(source: Source) -> Reading[str]:
    """Reads `\\N{BULLET}`."""
    name = yield from source.match(_CHARACTER)
    closer = yield from source.accept("}")
    try:
        return unicodedata.lookup(name) if closer else f"\\N{{{name}"
    except KeyError:
        return f"\\N{{{name}}}"


def digits(source: Source, alphabet: str, most: int) -> Reading[str]:
    """Reads at most this many digits."""
    number = ""
    while len(number) < most and (digit := (yield from source.accept(*alphabet))):
        number += digit
    return number


# -- literals ------------------------------------------------------------------------------------------------------

_CLOSERS = {"[": "]", "{": "}", "(": ")", "(,": ")", "{,": "}"}
"""Open brackets, and what closes them. `(,` is a parenthesis with a comma in it: a tuple. `{,` is a set."""
_JSON_CLOSERS = {"[": "]", "{": "}", "(": "", "(,": "]", "{,": "]"}
_ATOM = re.compile(r"[\w.+-]*")
_CONSTANTS = {"True": "true", "False": "false", "None": "null", "true": "true", "false": "false", "null": "null"}
_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_INTEGER = re.compile(r"([+-]?)([0-9]+)")
_FLOAT = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
_BASED = re.compile(r"[+-]?0(?:[xX][0-9a-fA-F]{1,64}|[oO][0-7]{1,64}|[bB][01]{1,64})")


class JSONWriter:
    """Writes JSON. The content of a parenthesis is held back until it is known whether that is a tuple.

    The first item in braces is held back until it is known whether that is a set. If what is held back is longer than
    MAX_HELD, it is taken for neither. `opened` are the open brackets of the literal.
    `has_strings`: there was a string. `guessed_quote` is the quote of the last
    string with a guessed end.
    """

    __slots__ = ("_add", "_held", "_held_size", "_undecided", "guessed_quote", "has_strings", "opened")

    def __init__(self, add: Callable[[str], None]) -> None:
        self._add = add
        self._held: list[str] = []
        self._held_size = 0
        self._undecided: list[int] = []  # indexes in `_held` at which parentheses may get brackets; -1 if released
        self.opened: list[str] = []
        self.has_strings = False
        self.guessed_quote = ""

    @property
    def _is_holding(self) -> bool:
        return bool(self._undecided) and self._undecided[-1] >= 0

    def add(self, piece: str) -> None:
        if not self._is_holding:
            self._add(piece)
            return
        self._held.append(piece)
        self._held_size += len(piece)
        if self._held_size > MAX_HELD:
            self._undecided = [-1] * len(self._undecided)
            self._release()

    def string(self, text: str) -> None:
        """Adds a piece of a string."""
        piece = encode_basestring(text)[1:-1]
        if self._undecided:
            self.add(piece)
        else:  # the usual case
            self._add(piece)

    def open_parenthesis(self) -> None:
        """Opens a parenthesis, which may become a JSON list."""
        self._undecided.append(len(self._held))
        self._held.append("")

    def open_brace(self) -> None:
        """Opens braces, which may become a JSON list."""
        self._undecided.append(len(self._held))
        self._held.append("{")

    def decide(self, bracket: str, usual: str = "") -> None:
        """Decides what the last bracket becomes in JSON: a list's, an object's, or none.

        `usual` is what was written if the bracket could not be held back.
        """
        if (position := self._undecided.pop()) >= 0:
            self._held[position] = bracket
            if not self._is_holding:
                self._release()
        elif bracket != usual:
            raise Mismatch(f"the first item of a tuple or set is longer than MAX_HELD ({MAX_HELD} characters)")

    def flush(self) -> None:
        """Writes what is held back."""
        self._undecided.clear()
        self._release()

    def _release(self) -> None:
        held, self._held, self._held_size = "".join(self._held), [], 0
        if held:
            self._add(held)


def literal(source: Source, out: JSONWriter) -> Reading[None]:
    """Reads a Python literal, and writes it as JSON. It does not recurse: a piece costs the same at every depth."""
    opened = out.opened
    while True:
        if bracket := (yield from source.accept("[", "{", "(")):
            nest(opened, bracket, out)
        else:
            yield from scalar(source, out)
        is_item = not bracket
        if bracket == "{":
            is_item = yield from first_in_braces(source, out)
            if opened[-1] == "{" and is_item:  # a key and its colon
                continue
            if opened[-1] == "{," and not is_item:  # an item with brackets of its own
                continue
        while opened and (yield from closes(source, out, opened, is_item)):
            is_item = True
        if not opened:
            return
        if is_item:
            out.add(",")
        if opened[-1] == "{":
            yield from dict_key(source, out)


def nest(opened: list[str], bracket: str, out: JSONWriter) -> None:
    opened.append(bracket)
    if len(opened) >= MAX_DEPTH:  # the arguments themselves are one level
        raise Mismatch(f"nested deeper than MAX_DEPTH ({MAX_DEPTH})")
    if bracket == "(":
        out.open_parenthesis()
    elif bracket == "{":
        out.open_brace()
    else:
        out.add(bracket)


def closes(source: Source, out: JSONWriter, opened: list[str], is_item: bool) -> Reading[bool]:
    """Returns whether the innermost bracket closes here. If not, another item follows; a comma before it is read."""
    yield from source.space()
    has_comma = is_item and bool((yield from source.accept(",")))
    if has_comma:
        yield from source.space()
    if opened[-1] == "(" and (has_comma or (not is_item and (yield from source.sees(")")))):
        out.decide("[")
        opened[-1] = "(,"
    if (yield from source.accept(_CLOSERS[opened[-1]])):
        bracket = opened.pop()
        if bracket == "(":
            out.decide("")
        out.add(_JSON_CLOSERS[bracket])
        return True
    if is_item and not has_comma:
        source.fail(f"expected ',' or {_CLOSERS[opened[-1]]!r}")
    return False


def first_in_braces(source: Source, out: JSONWriter) -> Reading[bool]:
    """Reads what comes first in braces: a key and its colon, or a scalar of a set; decides which of them it is.

    Returns whether something was read: not in `{}`, and not if an item of a set has brackets.
    """
    yield from source.space()
    if (yield from source.sees("}")):
        out.decide("{", "{")
        return False
    is_nested = yield from source.sees("[", "{", "(")
    word = "" if is_nested else (yield from source.match(_ATOM))
    quote = yield from source.accept(*QUOTES)
    if quote:
        yield from strings(source, out, word, quote, (":", ",", "}"))
    yield from source.space()
    is_key = not is_nested and (yield from source.accept(":"))
    if not quote and not is_nested:
        value = atom(word) or source.refuse(word, "expected a key or a value")
        out.add(quoted(value) if is_key else value)
    out.decide("{" if is_key else "[", "{")
    if is_key:
        yield from source.space()
        out.add(":")
    else:
        out.opened[-1] = "{,"
    return not is_nested


def dict_key(source: Source, out: JSONWriter) -> Reading[None]:
    """Reads a key and its colon. Keys that are not strings become strings."""
    word = yield from source.match(_ATOM)
    if quote := (yield from source.accept(*QUOTES)):
        yield from strings(source, out, word, quote, (":", ",", "}"))
    else:
        out.add(quoted(atom(word) or source.refuse(word, "expected a key")))
    yield from source.space()
    yield from source.expect(":")
    yield from source.space()
    out.add(":")


def scalar(source: Source, out: JSONWriter) -> Reading[None]:
    """Reads a string, a number, or `True`, `False`, `None`."""
    word = yield from source.match(_ATOM)
    if quote := (yield from source.accept(*QUOTES)):
        yield from strings(source, out, word, quote, AFTER_VALUE)
    else:
        out.add(atom(word) or source.refuse(word, "expected a value"))


def strings(source: Source, out: JSONWriter, prefix: str, quote: str, after: tuple[str, ...]) -> Reading[None]:
    """Reads a string, or several adjacent ones, which are joined."""
    out.add('"')
    out.has_strings = True
    while quote:
        if prefix.lower() not in PREFIXES:
            source.refuse(prefix + quote, "expected a value")
        if not (yield from string(source, out.string, quote, after, prefix.lower())):
            out.guessed_quote = quote
        prefix = yield from source.match(_ATOM)
        quote = yield from source.accept(*QUOTES)
    if prefix:
        source.fail(f"expected {' or '.join(map(repr, after))}")
    out.add('"')


def plain_atom(word: str) -> str:
    """Returns the JSON of a constant or of a JSON number; "" for anything else."""
    return _CONSTANTS.get(word, "") or (word if _JSON_NUMBER.fullmatch(word) else "")


def atom(word: str) -> str:
    """Returns the JSON of a Python number or constant; "" for anything else."""
    if plain := plain_atom(word):
        return plain
    word = word.replace("_", "")
    if whole := _INTEGER.fullmatch(word):
        return whole[1].strip("+") + (whole[2].lstrip("0") or "0")
    if _BASED.fullmatch(word):
        return str(int(word, 0))
    if _FLOAT.fullmatch(word) and isfinite(float(word)):
        return json.dumps(float(word))
    return ""

"""The incremental JSON parser: the value so far, in one pass over the text as it arrives.

Each piece costs what the piece is long, however long the whole is, and no text raises an exception. `ValueScanner` in
`scan.py` only finds the end of a value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from penstock.errors import UsageError
from penstock.jsontext.controls import lenient_json
from penstock.jsontext.scan import MAX_DEPTH, SCALAR, SPACE, TO_QUOTE, ValueScanner, is_too_deep
from penstock.jsontext.surrogates import SurrogateJoiner, join_surrogates

__all__ = ["MAX_DEPTH", "JSONPiece", "PartialJSON", "ValueScanner", "is_too_deep"]


class JSONPiece(Struct, frozen=True):
    """What was added to the value at `path`.

    For a string it is the new text. For a number, `true`, `false` or `null` it is the value, and for an object or
    array the container, when it is complete. The empty path is the whole value.
    """

    path: tuple[str | int, ...]
    piece: Any
    is_complete: bool


# Text that can be unescaped: no incomplete escape, no lone surrogate.
_SAFE = re.compile(
    r'(?:[^"\\]|\\["\\/bfnrt\x00-\x1f]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*+'
)
_PAIR_LENGTH = 12  # length of an escaped surrogate pair, the longest token that must be complete
_LONE = re.compile(r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_MAY_PAIR = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?\Z")
_HALF_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?\Z|\\u[dD][89abAB][0-9a-fA-F]{2}")
_SCALAR_START = re.compile(
    r"(?:t(?:r(?:ue?)?)?|f(?:a(?:l(?:se?)?)?)?|n(?:u(?:ll?)?)?|-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE][+-]?[0-9]*)?)?)\Z"
)  # the beginning of a number or a literal
_MAX_KEY = 16 * 1024  # how long a key may be
_BETWEEN = -1  # the key or index in a container between two values
_MAX_SCALAR = 4096  # how long a number or a literal may be


class PartialJSON:
    """An incremental JSON parser: feed it text, read `value` at any time.

        view = PartialJSON()
        view.feed('{"city": "Par')
        view.value              # {'city': 'Par'}
        view.is_complete        # False

    `value` is live: its containers grow in place, so copy them to keep a snapshot. Strings are visible while they grow;
    numbers, `true`, `false` and `null` when they are complete. Raw control characters in strings are accepted, also
    after a backslash: both characters stand for themselves. `feed` also returns what is new, piece by piece. After text
    that is not JSON, `error` says what is wrong and where, and `value` does not change any more.
    """

    def __init__(self) -> None:
        self.is_complete = False
        self.error = ""
        self._tree = Tree()
        self._step: Callable[[str, int], int] = self._value
        self._carry = ""  # the beginning of an incomplete token
        self._joiner = SurrogateJoiner()
        self._fed = 0

    @property
    def value(self) -> Any:
        """The value so far; None while it is unknown."""
        return self._tree.root

    def feed(self, text: str) -> list[JSONPiece]:
        """Parses a piece of text; returns what it added, in order."""
        piece: Any = text
        if not isinstance(piece, str):
            raise UsageError(f"PartialJSON.feed takes text, not {type(piece).__name__}: decode bytes first")
        if self._joiner.pending or not text.isascii():
            text = self._joiner.feed(text)
        self._fed += len(text)
        if self._carry:
            text, self._carry = self._carry + text, ""
        position, size = 0, len(text)
        while position < size and not self.error:
            after = self._step(text, position)
            if after < 0:
                self._carry = text[position:]
                break
            position = after
        return self._tree.take_pieces()

    def close(self) -> list[JSONPiece]:
        """Ends the text; a number as the whole value is complete only now."""
        rest = self._joiner.close()
        if self._carry and not self._tree.open:
            rest += " "
        pieces = self.feed(rest) if rest else []
        if not self.is_complete and not self.error:
            self._fail("", 0, "the text ended before the value was complete")
        return pieces

    def is_field_complete(self, *path: str | int) -> bool:
        """Whether the field exists and will not change any more."""
        return self._tree.has(path) and (self.is_complete or not self._tree.is_open(path))

    # Each of the following parses one token at a position and returns the position after it, or -1 if it is incomplete.

    def _value(self, text: str, position: int) -> int:
        position = SPACE.match(text, position).end()  # type: ignore[union-attr]  # it matches the empty string
        if position == len(text):
            return position
        match text[position]:
            case "{":
                return self._open({}, self._first_key, text, position)
            case "[":
                return self._open([], self._first_item, text, position)
            case '"':
                self._tree.put("")
                self._step = self._string
                return position + 1
            case _:
                return self._scalar(text, position)

    def _open(self, container: Any, step: Callable[[str, int], int], text: str, position: int) -> int:
        if len(self._tree.open) >= MAX_DEPTH:
            return self._fail(text, position, f"nested deeper than MAX_DEPTH ({MAX_DEPTH})")
        self._tree.push(container)
        self._step = step
        return position + 1

    def _first_item(self, text: str, position: int) -> int:
        return self._close_or(text, position, "]", self._value)

    def _first_key(self, text: str, position: int) -> int:
        return self._close_or(text, position, "}", self._key)

    def _close_or(self, text: str, position: int, bracket: str, step: Callable[[str, int], int]) -> int:
        position = SPACE.match(text, position).end()  # type: ignore[union-attr]  # it matches the empty string
        if position == len(text):
            return position
        if text[position] == bracket:
            return self._closed(position)
        self._step = step
        return position

    def _key(self, text: str, position: int) -> int:
        position = SPACE.match(text, position).end()  # type: ignore[union-attr]  # it matches the empty string
        if position == len(text):
            return position
        if text[position] != '"':
            return self._fail(text, position, "expected a key in quotes")
        quote = TO_QUOTE.match(text, position + 1)
        if quote is None:
            return (
                -1
                if len(text) - position <= _MAX_KEY
                else self._fail(text, position, f"a key is longer than {_MAX_KEY}")
            )
        try:
            key = json.loads(lenient_json(text[position : quote.end()]), strict=False)
        except ValueError:
            return self._fail(text, position, "a key with a bad escape")
        self._tree.name(join_surrogates(key))
        self._step = self._colon
        return quote.end()

    def _colon(self, text: str, position: int) -> int:
        position = SPACE.match(text, position).end()  # type: ignore[union-attr]  # it matches the empty string
        if position == len(text):
            return position
        if text[position] != ":":
            return self._fail(text, position, "expected a colon")
        self._step = self._value
        return position + 1

    def _next(self, text: str, position: int) -> int:
        position = SPACE.match(text, position).end()  # type: ignore[union-attr]  # it matches the empty string
        if position == len(text):
            return position
        is_object = isinstance(self._tree.open[-1], dict)
        match text[position]:
            case ",":
                self._step = self._key if is_object else self._value
                self._tree.advance()
                return position + 1
            case "}" if is_object:
                return self._closed(position)
            case "]" if not is_object:
                return self._closed(position)
            case _:
                return self._fail(text, position, "expected a comma or the end")

    def _closed(self, position: int) -> int:
        self._tree.pop()
        self._after_value()
        return position + 1

    def _after_value(self) -> None:
        self._tree.settle()
        self.is_complete = not self._tree.open
        self._step = self._trailing if self.is_complete else self._next

    def _trailing(self, text: str, position: int) -> int:
        position = SPACE.match(text, position).end()  # type: ignore[union-attr]  # it matches the empty string
        if position < len(text):
            self.is_complete = False
            self._fail(text, position, "expected nothing after the value")
        return position

    def _string(self, text: str, position: int) -> int:
        end = _SAFE.match(text, position).end()  # type: ignore[union-attr]  # it matches the empty string
        new = text[position:end]
        if "\\" in new:
            new = json.loads(lenient_json(f'"{new}"'), strict=False)
        is_end = text.startswith('"', end)
        if is_end or new:
            self._tree.grow(new, is_end)
        if is_end:
            self._after_value()
            return end + 1
        if new or end == len(text):
            return end
        return self._odd_escape(text, end)

    def _odd_escape(self, text: str, position: int) -> int:
        """Parses a backslash that begins an incomplete escape, a lone surrogate, or an invalid escape."""
        if _LONE.match(text, position) and (
            len(text) - position >= _PAIR_LENGTH or not _MAY_PAIR.match(text, position)
        ):
            self._tree.grow("\ufffd", is_complete=False)
            return position + 6
        if len(text) - position < _PAIR_LENGTH and _HALF_ESCAPE.match(text, position):
            return -1
        return self._fail(text, position, "a bad escape in a string")

    def _scalar(self, text: str, position: int) -> int:
        end = SCALAR.match(text, position).end()  # type: ignore[union-attr]  # it matches the empty string
        if end - position > _MAX_SCALAR:
            return self._fail(text, position, f"a number or literal is longer than {_MAX_SCALAR}")
        if end == len(text):
            return -1 if _SCALAR_START.match(text, position) else self._fail(text, position, "expected a value")
        try:
            value = json.loads(text[position:end], parse_constant=_refuse)
        except ValueError:
            return self._fail(text, position, "expected a value")
        self._tree.put(value, is_complete=True)
        self._after_value()
        return end

    def _fail(self, text: str, position: int, problem: str) -> int:
        place = self._fed - len(text) + position
        self.error = f"{problem}, at character {place}" + (f": {text[position : position + 20]!r}" if text else "")
        return len(text)


class Tree:
    """The value under construction: its open containers, and the path of the next piece."""

    def __init__(self) -> None:
        self.root: Any = None
        self.open: list[Any] = []
        self._path: list[str | int] = []  # the present key or index in each open container
        self._keys: dict[str, str] = {}  # one string object per key, however often it occurs
        self._pieces: list[JSONPiece] = []

    def take_pieces(self) -> list[JSONPiece]:
        pieces, self._pieces = self._pieces, []
        return pieces

    def name(self, key: str) -> None:
        """Sets the key of the next value."""
        self._path[-1] = self._keys.setdefault(key, key)

    def settle(self) -> None:
        """Marks the end of a value."""
        if self.open:
            self._path[-1] = _BETWEEN

    def advance(self) -> None:
        """Moves on to the next item, after a comma."""
        if isinstance(self.open[-1], list):
            self._path[-1] = len(self.open[-1])

    def put(self, value: Any, *, is_complete: bool = False) -> None:
        """Adds a value, which may grow."""
        if not self.open:
            self.root = value
        elif isinstance(container := self.open[-1], dict):
            container[self._path[-1]] = value
        else:
            container.append(value)
        if is_complete:
            self._pieces.append(JSONPiece(tuple(self._path), value, True))

    def push(self, container: Any) -> None:
        self.put(container)
        self.open.append(container)
        self._path.append(0 if isinstance(container, list) else "")

    def pop(self) -> None:
        container = self.open.pop()
        self._path.pop()
        self._pieces.append(JSONPiece(tuple(self._path), container, True))

    def grow(self, new: str, is_complete: bool) -> None:
        """Extends the open string.

        The string is taken out of its container first: with a single reference CPython extends it in place, while one
        copy per piece would make a long string cost the square of its length.
        """
        if not self.open:
            text, self.root = self.root, None
            text += new
            self.root = text
        else:
            container, key = self.open[-1], self._path[-1]
            text, container[key] = container[key], None
            text += new
            container[key] = text
        self._pieces.append(JSONPiece(tuple(self._path), new, is_complete))

    def has(self, path: tuple[str | int, ...]) -> bool:
        value = self.root
        for key in path:
            match value:
                case dict() if key in value:
                    value = value[key]
                case list() if isinstance(key, int) and 0 <= key < len(value):
                    value = value[key]
                case _:
                    return False
        return value is not None or bool(path)

    def is_open(self, path: tuple[str | int, ...]) -> bool:
        """Whether the value at `path` is still being written."""
        return tuple(self._path[: len(path)]) == path


def _refuse(constant: str) -> None:
    raise ValueError(constant)

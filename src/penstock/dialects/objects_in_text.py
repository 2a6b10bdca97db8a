"""Calls that stand in a text as JSON objects: `{"name": …, "arguments": {…}}`, alone, in a row, or in an array."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct

from penstock.dialects.call import TextCall
from penstock.dialects.held import MAX_HELD
from penstock.dialects.line import FENCE
from penstock.dialects.marks import Marks, marks_of
from penstock.dialects.schema import quote
from penstock.dialects.source import MAX_HEADER, Mismatch, Over, Reading, Source
from penstock.halves import Halves
from penstock.scanner import SPACE, TO_QUOTE

# -- one call ------------------------------------------------------------------------------------------------------


ARGUMENTS = ("arguments", "parameters")
ALIASES = ("args", "input", "params", "tool_input", "kwargs")
"""What models call the arguments too; it counts only where an object follows."""


class Keys(Struct, frozen=True):
    """How the fields of a call object are called.

    `no_calls` are the names by which a model says that it calls nothing.
    """

    name: tuple[str, ...] = ("name",)
    arguments: tuple[str, ...] = ARGUMENTS
    id: tuple[str, ...] = ("id",)
    no_calls: tuple[str, ...] = ()


USUAL = Keys()

ReadCall = Callable[[Source], Reading[None]]
"""Reads one call object, from its brace on."""


def object_call(source: Source, keys: Keys = USUAL, name: str = "") -> Reading[None]:
    """`{"name": …, "arguments": {…}}`, its fields in any order; `name` counts if the object itself has none."""
    yield from source.expect("{")
    yield from fields(source, keys, name)


def fields(source: Source, keys: Keys = USUAL, name: str = "", id: str = "") -> Reading[None]:
    """A call object, from after its brace on; it may stand in another one, `{"type": "function", "function": {…}}`."""
    early, unread, is_inner = "", Unread(), False
    while (key := (yield from next_key(source))) is not None or is_inner:
        if key is None or (key == "function" and not is_inner and (yield from source.ahead("{"))):
            is_inner = key is not None
        elif key in keys.name or (key == "function" and (yield from source.sees('"'))):
            own = yield from short_string(source)
            yield from named_call(source, keys, own or name, id, early, unread, is_inner=is_inner)
            return
        elif (yield from has_arguments(source, keys, key)):
            early = yield from json_text(source)
        elif key in keys.id:
            id = as_text((yield from json_text(source)))
        else:
            yield from unread.read(source, key)
    call = source.begin(name, id)
    if early:
        call.add(unwrapped(early))
    end_object(source, call, unread, is_empty=not early)


def named_call(
    source: Source, keys: Keys, name: str, id: str, early: str, unread: Unread, *, is_inner: bool
) -> Reading[None]:
    """The rest of a call object, once its name is known; `early` are arguments that stood before it.

    If it is the inner one of two, its arguments may also stand in the outer one.
    """
    if name in keys.no_calls and name not in source.tools:
        only_calls(source)
        yield from skip_fields(source)
        yield from skip_fields(source) if is_inner else ()
        source.hold()
        return
    call = source.begin(name, id)
    is_empty = not early
    if early:
        call.add(unwrapped(early))
    while is_empty or not (yield from is_left_open(source)):
        key = yield from next_key(source)
        if key is None and not (is_inner and is_empty):
            break
        if key is None:
            is_inner = False
        elif is_empty and (yield from has_arguments(source, keys, key)):
            yield from arguments(source, call)
            is_empty = False
        else:
            yield from unread.read(source, key)
    end_object(source, call, unread, is_empty=is_empty)
    yield from skip_fields(source) if is_inner else ()


class Unread:
    """The fields of a call object that a call does not have: they may be arguments, written beside the others."""

    def __init__(self) -> None:
        self.fields: dict[str, str] = {}  # with their JSON
        self._room = MAX_HELD

    def read(self, source: Source, key: str) -> Reading[None]:
        """The value of a field that means nothing here."""
        if key in META:
            yield from value(source, ignore)
            return
        pieces: list[str] = []
        yield from value(source, partial(self._keep, pieces))
        self.fields[key] = "".join(pieces)

    def _keep(self, pieces: list[str], piece: str) -> None:
        self._room -= len(piece)
        if self._room >= 0:
            pieces.append(piece)

    def written(self) -> str:
        """The fields as an object."""
        return "{" + ", ".join(f"{quote(key)}: {raw}" for key, raw in self.fields.items()) + "}"


META = ("type", "id", "index", "call_id", "tool_call_id", "thought", "thoughts", "reasoning")
"""Fields that say something about a call, and are no arguments of it."""


def end_object(source: Source, call: TextCall, unread: Unread, *, is_empty: bool) -> None:
    """A call object has ended. Fields beside the arguments may belong there: then nobody knows what it meant."""
    beside = [key for key in unread.fields if is_empty or key in call.schema.keys or key in ARGUMENTS]
    why = f"write all arguments as one object: {', '.join(map(repr, beside))} stood beside it"
    if is_empty or beside:
        call.add(unread.written())
    if beside and not is_empty:
        call.fail("malformed", why)
        source.call = None
    elif beside:
        call.doubt(why, is_plain=True)
    source.end()


def has_arguments(source: Source, keys: Keys, key: str) -> Reading[bool]:
    """Whether the value of this field, which comes next, is the arguments."""
    if key in keys.arguments:
        return True
    return (key in ALIASES or key in ARGUMENTS) and (yield from source.sees("{", '"{'))


def arguments(source: Source, call: TextCall) -> Reading[None]:
    """The value of the arguments, passed on as it comes; some models write it as a string that holds the JSON."""
    if (yield from source.ahead('"')):
        yield from string_text(source, call.add)
    else:
        yield from value(source, call.add)


def skip_fields(source: Source) -> Reading[None]:
    """The other fields of an object, and its end."""
    while not (yield from is_left_open(source)) and (yield from next_key(source)) is not None:
        yield from value(source, ignore)


def is_left_open(source: Source) -> Reading[bool]:
    """Whether a call object that has all it needs lacks its brace, as what stands behind it shows."""
    spaces = yield from source.space()
    is_over = yield from source.sees(*source.ends, "]", FENCE)
    source.unread(spaces)
    return is_over


def only_key(call: TextCall, key: str) -> str:
    """The one argument that a tool has; if it has several, or none is known, it is called `key`."""
    keys = set(call.schema.keys)
    return keys.pop() if len(keys) == 1 else key


def only_calls(source: Source) -> None:
    """Where only declared tools are looked for, what is no call is text, marks and all."""
    if source.is_strict:
        raise Mismatch("there is no call")


# -- several calls -------------------------------------------------------------------------------------------------


def object_calls(source: Source, read: ReadCall = object_call) -> Reading[None]:
    """One call object, or several in a row, or an array of them; they may stand in a fence of their own."""
    fence = yield from source.close("```json", "```")
    yield from source.space()
    if (yield from source.ahead("[")):
        yield from source.space()
        yield from call_array(source, read)
    else:
        yield from read(source)
        while (yield from another_object(source)):
            yield from read(source)
    if fence:
        yield from source.close("```")


def call_array(source: Source, read: ReadCall) -> Reading[None]:
    """An array of calls, from its first element on. Its end may be missing, or a comma."""
    yield from read(source)
    while (yield from source.close(",")) or (yield from another(source, "{")):
        yield from source.space()
        if (yield from source.peek()) in ("", "]"):
            break
        yield from read(source)
    yield from source.close("]")


def another_object(source: Source) -> Reading[bool]:
    """Whether another object follows, perhaps after a comma; if none does, nothing is read."""
    before = yield from source.space()
    if (yield from source.ahead(",")):
        before += "," + (yield from source.space())
    if (yield from source.peek()) == "{":
        return True
    source.unread(before)
    return False


def another(source: Source, first: str) -> Reading[bool]:
    """Whether, white space aside, this character comes next; it is not read."""
    spaces = yield from source.space()
    if (yield from source.peek()) == first:
        return True
    source.unread(spaces)
    return False


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
    if (yield from source.ahead("}")):
        return False
    if (yield from source.ahead(",")):
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
    halves = Halves()
    try:
        while True:
            text, mark = source.take(_IN_STRING)
            give(halves.join(text), sink)
            if mark == '"':
                break
            if mark:
                give(halves.join((yield from escaped(source, sink, halves))), sink)
            else:
                yield from source.more()
    except Over:
        give(halves.rest(), sink)
        raise
    give(halves.rest(), sink)


def give(text: str, sink: Callable[[str], None]) -> None:
    if text:
        sink(text)


def escaped(source: Source, sink: Callable[[str], None], halves: Halves) -> Reading[str]:
    """The character that an escape in a JSON string stands for, from after its backslash on.

    What proves to be no escape is given to the sink as it stands.
    """
    raw = "\\"
    try:
        raw += yield from source.expect(*_ESCAPES)
        while raw[1] == "u" and len(raw) < 6:
            raw += yield from source.expect(*_HEX)
    except Mismatch:
        give(halves.join(raw), sink)
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
            raise Over("the text ended inside a JSON value")
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

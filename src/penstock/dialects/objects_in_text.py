"""Calls that stand in a text as JSON objects: `{"name": …, "arguments": {…}}`, alone, in a row, or in an array."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from penstock.dialects.call import TextCall
from penstock.dialects.marks import marks_of
from penstock.dialects.source import Reading, Source
from penstock.halves import Halves

# -- one call ------------------------------------------------------------------------------------------------------


class Keys(Struct, frozen=True):
    """How the fields of a call object are called.

    `no_calls` are the names by which a model says that it calls nothing.
    """

    name: tuple[str, ...] = ("name",)
    arguments: tuple[str, ...] = ("arguments", "parameters")
    id: tuple[str, ...] = ("id",)
    no_calls: tuple[str, ...] = ()


USUAL = Keys()

ReadCall = Callable[[Source], Reading[None]]
"""Reads one call object, from its brace on."""


def object_call(source: Source, keys: Keys = USUAL, name: str = "") -> Reading[None]:
    """`{"name": …, "arguments": {…}}`, its fields in any order; `name` counts if the object itself has none."""
    yield from source.expect("{")
    yield from fields(source, keys, name)


def fields(source: Source, keys: Keys = USUAL, name: str = "") -> Reading[None]:
    """A call object, from after its brace on."""
    id = early = ""
    while (key := (yield from next_key(source))) is not None:
        if key in keys.name:
            own = yield from short_string(source)
            yield from named_call(source, keys, own or name, id, early)
            return
        if key in keys.arguments:
            early = yield from source.json()
        elif key in keys.id:
            id = as_text((yield from source.json()))
        else:
            yield from source.value(ignore)
    source.begin(name, id).add(unwrapped(early) or "{}")
    source.end()


def named_call(source: Source, keys: Keys, name: str, id: str, early: str) -> Reading[None]:
    """The rest of a call object, once its name is known; `early` are arguments that stood before it."""
    if name in keys.no_calls and name not in source.tools:
        yield from skip_fields(source)
        source.hold()
        return
    call = source.begin(name, id)
    if has_arguments := bool(early):
        call.add(unwrapped(early))
    while (key := (yield from next_key(source))) is not None:
        if key in keys.arguments and not has_arguments:
            yield from arguments(source, call)
            has_arguments = True
        else:
            yield from source.value(ignore)
    if not has_arguments:
        call.add("{}")
    source.end()


def arguments(source: Source, call: TextCall) -> Reading[None]:
    """The value of the arguments, passed on as it comes; some models write it as a string that holds the JSON."""
    if (yield from source.ahead('"')):
        yield from string_text(source, call.add)
    else:
        yield from source.value(call.add)


def skip_fields(source: Source) -> Reading[None]:
    """The other fields of an object, and its end."""
    while (yield from next_key(source)) is not None:
        yield from source.value(ignore)


# -- several calls -------------------------------------------------------------------------------------------------


def object_calls(source: Source, read: ReadCall = object_call) -> Reading[None]:
    """One call object, or several in a row, or an array of them."""
    yield from source.space()
    if (yield from source.ahead("[")):
        yield from source.space()
        yield from call_array(source, read)
        return
    yield from read(source)
    while (yield from another(source, "{")):
        yield from read(source)


def call_array(source: Source, read: ReadCall) -> Reading[None]:
    """An array of calls, from its first element on. Its end may be missing, or a comma."""
    yield from read(source)
    while (yield from source.close(",")) or (yield from another(source, "{")):
        yield from source.space()
        if (yield from source.peek()) in ("", "]"):
            break
        yield from read(source)
    yield from source.close("]")


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
    """A string that is a key or a name: it is short, and there is no quote in it."""
    yield from source.expect('"')
    text, _ = yield from source.upto('"')
    return as_text(f'"{text}"')


_ESCAPES = {'"': '"', "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "u": ""}
_HEX = tuple("0123456789abcdefABCDEF")
_IN_STRING = marks_of('"', "\\")


def string_text(source: Source, sink: Callable[[str], None]) -> Reading[None]:
    """The text of a JSON string, from after its opening quote on, given to `sink` as it comes."""
    halves = Halves()
    while True:
        text, mark = source.take(_IN_STRING)
        if mark == "\\":
            text += yield from escaped(source)
        text = halves.join(text) + (halves.rest() if mark == '"' else "")
        if text:
            sink(text)
        if mark == '"':
            return
        if not mark:
            yield from source.more()


def escaped(source: Source) -> Reading[str]:
    """The character that an escape in a JSON string stands for, from after its backslash on."""
    mark = yield from source.expect(*_ESCAPES)
    if mark != "u":
        return _ESCAPES[mark]
    digits = ""
    for _ in range(4):
        digits += yield from source.expect(*_HEX)
    return chr(int(digits, 16))


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

"""Dialects that write a call as a JSON object, or as a name and the JSON of its arguments."""

from __future__ import annotations

import json
from typing import Any

from msgspec import Struct

from penstock.dialects.call import TextCall
from penstock.dialects.dialect import Dialect
from penstock.dialects.source import Reading, Source

# -- objects that are calls ----------------------------------------------------------------------------------------


class Keys(Struct, frozen=True):
    """How the fields of a call object are called."""

    name: tuple[str, ...] = ("name",)
    arguments: tuple[str, ...] = ("arguments", "parameters")
    id: tuple[str, ...] = ("id",)


USUAL = Keys()
COHERE = Keys(("tool_name",), ("parameters",), ("tool_call_id",))
INKLING = Keys(("name",), ("args",))


def object_call(source: Source, keys: Keys = USUAL) -> Reading[None]:
    """A call that is an object: `{"name": …, "arguments": {…}}`, its fields in any order."""
    name = id = early = ""
    call: TextCall | None = None
    yield from source.expect("{")
    while key := (yield from next_key(source)):
        if key in keys.arguments and name and call is None:
            call = source.begin(name, id)
            yield from arguments(source, call)
        elif key in keys.arguments:
            early = yield from source.json()
        elif key in keys.name:
            name = as_text((yield from source.json()))
        elif key in keys.id:
            id = as_text((yield from source.json()))
        else:
            yield from source.json()
    if call is None:
        call = source.begin(name, id)
        call.add(unwrapped(early) or "{}")
    source.end()


def next_key(source: Source) -> Reading[str]:
    """The next key of an object and its colon; the empty string at the object's end."""
    yield from source.space()
    if (yield from source.ahead("}")):
        return ""
    if (yield from source.ahead(",")):
        yield from source.space()
    if (yield from source.peek()) != '"':
        source.fail("expected a key")
    key = as_text((yield from source.json()))
    yield from source.space()
    yield from source.expect(":")
    yield from source.space()
    return key


def arguments(source: Source, call: TextCall) -> Reading[None]:
    """The value of the arguments, passed on as it comes; some models write it as a string that holds the JSON."""
    if (yield from source.peek()) == '"':
        call.add(unwrapped((yield from source.json())))
    else:
        yield from source.value(call.add)


def unwrapped(raw: str) -> str:
    """The JSON of the arguments, taken out of the string that it may be written in."""
    inner = as_value(raw) if raw.lstrip().startswith('"') else None
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


def object_calls(source: Source, keys: Keys = USUAL) -> Reading[None]:
    """One call object, or an array of them, or several in a row."""
    yield from source.space()
    if (yield from source.ahead("[")):
        yield from source.space()
        while not (yield from source.close("]")):
            yield from object_call(source, keys)
            yield from source.close(",")
            yield from source.space()
        return
    yield from object_call(source, keys)
    while (yield from another(source, "{")):
        yield from object_call(source, keys)


def another(source: Source, first: str) -> Reading[bool]:
    """Whether, white space aside, this character comes next; it is not read."""
    spaces = yield from source.space()
    if (yield from source.peek()) == first:
        return True
    source.unread(spaces)
    return False


def hermes(source: Source, mark: str) -> Reading[None]:
    """`<tool_call>{"name": …, "arguments": {…}}</tool_call>`"""
    yield from object_calls(source)
    yield from source.close(*CLOSERS.get(mark, ()))


CLOSERS = {
    "<tool_call>": ("</tool_call>",),
    "<longcat_tool_call>": ("</longcat_tool_call>",),
    "<tool_calls>": ("</tool_calls>",),
    "<TOOLCALL>": ("</TOOLCALL>",),
}

DIALECTS = {
    "hermes": Dialect(block=hermes, opens=("<tool_call>",), closes=("</tool_call>",)),
}

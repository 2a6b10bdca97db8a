"""Calls that are JSON objects: `{"name": …, "arguments": {…}}`, alone, in sequence, or in an array."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct, field

from penstock.calls.arguments import strict_object
from penstock.dialects.dialect import END_TOKENS
from penstock.dialects.reading.code_spans import FENCE
from penstock.dialects.reading.held_text import MAX_HELD
from penstock.dialects.reading.json import (
    as_text,
    as_value,
    ignore,
    json_text,
    next_key,
    short_string,
    string_text,
    unwrapped,
    value,
)
from penstock.dialects.reading.schema import quote
from penstock.dialects.reading.source import Mismatch, Reading, Source, TextEnded
from penstock.dialects.reading.text_call import TextCall

# -- one call ------------------------------------------------------------------------------------------------------


ARGUMENTS = ("arguments", "parameters")
ALIASES = ("args", "input", "params", "tool_input", "kwargs")
"""Other names that models use for the arguments; they count only if an object follows."""


class Keys(Struct, frozen=True):
    """The names of the fields of a call object.

    `no_calls` are values of the name with which a model says that it makes no call.
    """

    name: tuple[str, ...] = ("name",)
    arguments: tuple[str, ...] = ARGUMENTS
    id: tuple[str, ...] = ("id",)
    no_calls: tuple[str, ...] = ()


USUAL = Keys()

ReadCall = Callable[[Source], Reading[None]]
"""Reads one call object, beginning with its brace."""


def object_call(source: Source, keys: Keys = USUAL, name: str = "") -> Reading[None]:
    """Reads `{"name": …, "arguments": {…}}`, its fields in any order. `name` is used if the object has none."""
    yield from source.expect("{")
    yield from fields(source, keys, name)


def fields(source: Source, keys: Keys = USUAL, name: str = "") -> Reading[None]:
    """Reads a call object, after its brace. It may be inside another: `{"type": "function", "function": {…}}`."""
    read = FieldsBeforeName()
    while (key := (yield from next_key(source))) is not None or read.is_inner:
        if key is None or (key == "function" and not read.is_inner and (yield from source.accept("{"))):
            read.is_inner = key is not None
        elif key in keys.name or (key == "function" and (yield from source.sees('"'))):
            own_name = yield from short_string(source)
            yield from rest_of_object(source, keys, own_name or name, read)
            return
        elif not read.arguments and (yield from has_arguments(source, keys, key)):
            read.arguments = yield from json_text(source)
        elif key in keys.id:
            read.id = as_text((yield from json_text(source)))
        else:
            yield from read.others.read(source, key)
    call = begin(source, name, read)
    beside = add_beside(source, call, read.others, is_empty=not read.arguments)
    yield from object_end_ahead(source)
    end_object(source, call, read.others, beside, is_empty=not read.arguments)


def rest_of_object(source: Source, keys: Keys, name: str, read: FieldsBeforeName) -> Reading[None]:
    """Reads the rest of a call object after its name.

    If the object is inside another, its arguments may also be in the outer one.
    """
    is_inner = read.is_inner
    if name in keys.no_calls and name not in source.tools:
        fail_if_only_declared(source)
        yield from skip_fields(source)
        yield from skip_fields(source) if is_inner else ()
        source.hold()
        return
    call = begin(source, name, read)
    is_empty = not read.arguments
    while is_empty or not (yield from is_left_open(source)):
        key = yield from next_key(source)
        if key is None and not (is_inner and is_empty):
            break
        if key is None:
            is_inner = False
        elif is_empty and (yield from has_arguments(source, keys, key)):
            yield from arguments(source, call)
            is_empty = False
        elif key in keys.name and not is_inner:
            if as_text((yield from json_text(source))) != name:
                call.doubt("the call has two names")
        else:
            yield from read.others.read(source, key)
    beside = add_beside(source, call, read.others, is_empty=is_empty)
    if not is_inner:
        yield from object_end_ahead(source)
    end_object(source, call, read.others, beside, is_empty=is_empty)
    yield from skip_fields(source) if is_inner else ()


def begin(source: Source, name: str, read: FieldsBeforeName) -> TextCall:
    """Begins the call of a call object, with the arguments that came before its name."""
    call = source.begin(name, read.id)
    if read.arguments:
        call.add(unwrapped(read.arguments))
    return call


MAX_OTHER_FIELDS = 1024
"""How many fields that calls do not have a call object may have. A call with more of them is invalid."""


class OtherFields:
    """The fields of a call object that calls do not have. They may be arguments in the wrong place."""

    def __init__(self) -> None:
        self.fields: dict[str, str] = {}  # key to JSON
        self.are_too_many = False
        self._capacity = MAX_HELD

    def read(self, source: Source, key: str) -> Reading[None]:
        """Reads the value of a field."""
        is_one_more = key not in META and key not in self.fields and len(self.fields) >= MAX_OTHER_FIELDS
        self.are_too_many = self.are_too_many or is_one_more
        if key in META or is_one_more:
            yield from value(source, ignore)
            return
        pieces: list[str] = []
        yield from value(source, partial(self._keep, pieces))
        self.fields[key] = "".join(pieces)

    def _keep(self, pieces: list[str], piece: str) -> None:
        self._capacity -= len(piece)
        if self._capacity >= 0:
            pieces.append(piece)


class FieldsBeforeName(Struct):
    """What was read of a call object before its name. `arguments` are JSON; `is_inner`: it is inside another object."""

    id: str = ""
    arguments: str = ""
    is_inner: bool = False
    others: OtherFields = field(default_factory=OtherFields)


META = ("type", "id", "index", "call_id", "tool_call_id", "thought", "thoughts", "reasoning")
"""Fields about a call that are never its arguments."""


def add_beside(source: Source, call: TextCall, others: OtherFields, *, is_empty: bool) -> dict[str, str]:
    """Adds the arguments outside of the arguments' object to the call, and returns them: key to JSON.

    `is_empty`: the object had no field with the arguments. Otherwise those of the call are no longer JSON: text that
    follows in its line shows that a brace closed them too early.
    """
    beside = arguments_beside(source, call, others, is_empty=is_empty)
    if is_empty or beside:
        call.add("{" + ", ".join(f"{quote(key)}: {raw}" for key, raw in beside.items()) + "}")
    return beside


def end_object(source: Source, call: TextCall, others: OtherFields, beside: dict[str, str], *, is_empty: bool) -> None:
    """Ends the call of a call object. Arguments outside of the arguments' object make it invalid."""
    if others.are_too_many:
        call.doubt(f"the call has more than {MAX_OTHER_FIELDS} fields besides its name and its arguments")
    why = f"write all arguments into one object; outside of it: {', '.join(map(repr, beside))}"
    if beside and not is_empty:
        call.fail("malformed", why)
        source.call = None
    elif beside:
        call.doubt(why, is_unambiguous=not call.schema.keys or beside.keys() <= set(call.schema.keys))
    source.end()


def arguments_beside(source: Source, call: TextCall, others: OtherFields, *, is_empty: bool) -> dict[str, str]:
    """Returns the fields of a call object that may be arguments in the wrong place: key to JSON.

    If the object has no arguments, an object under any key may be them; if the tool is unknown too, any field may be
    one. Empty values do not count, nor do those that are in the arguments too.
    """
    if not others.fields:
        return {}
    tool_keys = set(call.schema.keys)
    is_unknown = is_empty and not (call.name in source.tools and call.schema.types)
    usual = {*ARGUMENTS, *(ALIASES if is_empty else ())}
    candidates = {
        key: raw
        for key, raw in others.fields.items()
        if is_unknown or key in tool_keys or key in usual or (is_empty and raw.startswith("{"))
    }
    arguments = strict_object(call.raw() if candidates else "") or {}

    def is_new(key: str, raw: str) -> bool:
        value = as_value(raw)
        if value is None:  # null, or too long to have been kept
            return raw != "null"
        if value in ("", {}, []):
            return is_empty and key in tool_keys
        return key not in arguments or arguments[key] != value

    return {key: raw for key, raw in candidates.items() if is_new(key, raw)}


def has_arguments(source: Source, keys: Keys, key: str) -> Reading[bool]:
    """Returns whether the field with this key has the arguments; its value comes next."""
    if key in keys.arguments:
        return True
    return (key in ALIASES or key in ARGUMENTS) and (yield from source.sees("{", '"{'))


def arguments(source: Source, call: TextCall) -> Reading[None]:
    """Adds the arguments to the call as they arrive. Some models write them as a string that contains the JSON."""
    if (yield from source.accept('"')):
        yield from string_text(source, call.add)
    else:
        yield from value(source, call.add)


def skip_fields(source: Source) -> Reading[None]:
    """Reads the other fields of an object, and its end."""
    while not (yield from is_left_open(source)) and (yield from next_key(source)) is not None:
        yield from value(source, ignore)


def is_left_open(source: Source) -> Reading[bool]:
    """Returns whether a call object lacks its closing brace: a mark follows that can only follow the object."""
    spaces = yield from source.space()
    is_left_open = yield from source.sees(*source.call_ends, "]", FENCE)
    source.unread(spaces)
    return is_left_open


_AFTER_OBJECT = (",", "]", "{", FENCE, *END_TOKENS)
_IN_KEY = re.compile(r'[^"\n]*')


def object_end_ahead(source: Source) -> Reading[None]:
    """Checks that what may follow a call object does; otherwise a brace or a quote ended it too early.

    `{"name": "f"}, "arguments": {…}}` must not run without its arguments. Text may follow if there is no closing tag,
    unless the arguments are not JSON: then it is part of the call.
    """
    goes_on = yield from field_ahead(source)
    spaces = yield from source.space()
    is_next = yield from source.sees(*source.call_ends, *_AFTER_OBJECT)
    is_end = not is_next and (yield from source.ends_with(*source.call_ends))
    source.unread(spaces)
    if is_end and source.is_cut:  # within a closing tag
        raise TextEnded("the text was cut off before the end of the call")
    if goes_on or (not is_next and not is_end and (source.is_enclosed or is_malformed(source.call, spaces))):
        raise Mismatch("expected the end of the call")


def is_malformed(call: TextCall | None, spaces: str) -> bool:
    """Returns whether text after these spaces, in the line of a call, shows that it ended too early."""
    return call is not None and "\n" not in spaces and strict_object(call.raw() or "{}") is None


def field_ahead(source: Source) -> Reading[bool]:
    """Returns whether a field of an object follows, so that the object has not ended: `, "arguments":`."""
    text = yield from source.space()
    if comma := (yield from source.accept(",")):
        text += comma + (yield from source.space())
    is_field = False
    if quote := (yield from source.accept('"')):
        text += quote + (yield from source.match(_IN_KEY))
        text += yield from source.accept('"')
        text += yield from source.space()
        is_field = yield from source.sees(":")
    is_unknown = source.is_cut and not (yield from source.peek())
    source.unread(text)
    if is_unknown:
        raise TextEnded("the text was cut off before the end of the call")
    return is_field


def only_key(call: TextCall, key: str) -> str:
    """Returns the name of the tool's only argument; `key` if it has several or its arguments are not known."""
    keys = set(call.schema.keys)
    return keys.pop() if len(keys) == 1 else key


def fail_if_only_declared(source: Source) -> None:
    """Raises a mismatch where only calls to declared tools are read: everything else stays text, with its marks."""
    if source.only_declared:
        raise Mismatch("there is no call")


# -- several calls -------------------------------------------------------------------------------------------------


def object_calls(source: Source, read: ReadCall = object_call) -> Reading[None]:
    """Reads one call object, several in sequence, or an array of them; they may be in a code fence."""
    fence = yield from source.accept_spaced("```json", "```")
    yield from source.space()
    if (yield from source.accept("[")):
        yield from source.space()
        yield from call_array(source, read)
    else:
        yield from read(source)
        while (yield from another_object(source)):
            yield from read(source)
    if fence:
        yield from source.accept_spaced("```")


def tagged_objects(source: Source, mark: str, closers: tuple[str, ...], read: ReadCall) -> Reading[None]:
    """Reads call objects after a tag, and the closing tag; another opening tag also closes the block."""
    yield from object_calls(source, read)
    while not (yield from source.accept_spaced(*closers)) and (yield from source.accept_spaced(mark)):
        yield from object_calls(source, read)


def names_tool(source: Source) -> Reading[bool]:
    """Returns whether an object comes next that names a declared tool; nothing is read."""
    pieces = [(yield from source.space())]
    named: Any = None
    if (yield from source.sees("{")):
        try:
            yield from value(source, pieces.append)
            named = as_value("".join(pieces))
        except Mismatch:
            pass
    source.unread("".join(pieces))
    return isinstance(named, dict) and isinstance(name := named.get("name"), str) and name in source.tools


def call_array(source: Source, read: ReadCall) -> Reading[None]:
    """Reads an array of calls, after its bracket. Commas and the closing bracket may be missing."""
    yield from read(source)
    while (yield from source.accept_spaced(",")) or (yield from another(source, "{")):
        yield from source.space()
        if (yield from source.peek()) in ("", "]"):
            break
        yield from read(source)
    yield from source.accept_spaced("]")


def another_object(source: Source) -> Reading[bool]:
    """Returns whether another object follows; a comma before it is read."""
    before = yield from source.space()
    if (yield from source.accept(",")):
        before += "," + (yield from source.space())
    if (yield from source.peek()) == "{":
        return True
    source.unread(before)
    return False


def another(source: Source, first: str) -> Reading[bool]:
    """Returns whether this character comes next, after white space; only the white space is read."""
    spaces = yield from source.space()
    if (yield from source.peek()) == first:
        return True
    source.unread(spaces)
    return False

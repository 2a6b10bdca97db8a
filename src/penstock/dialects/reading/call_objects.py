"""Calls that stand in a text as JSON objects: `{"name": …, "arguments": {…}}`, alone, in a row, or in an array."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from msgspec import Struct

from penstock.calls.arguments import strict_object
from penstock.dialects.reading.code_spans import FENCE
from penstock.dialects.reading.cursor import Mismatch, Reading
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
from penstock.dialects.reading.source import Source
from penstock.dialects.reading.text_call import TextCall

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
        if key is None or (key == "function" and not is_inner and (yield from source.accept("{"))):
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


META = ("type", "id", "index", "call_id", "tool_call_id", "thought", "thoughts", "reasoning")
"""Fields that say something about a call, and are no arguments of it."""


def end_object(source: Source, call: TextCall, unread: Unread, *, is_empty: bool) -> None:
    """A call object has ended. Fields beside the arguments may belong there: then nobody knows what it meant."""
    beside = arguments_beside(source, call, unread, is_empty=is_empty)
    why = f"write all arguments as one object: {', '.join(map(repr, beside))} stood beside it"
    if is_empty or beside:
        call.add("{" + ", ".join(f"{quote(key)}: {raw}" for key, raw in beside.items()) + "}")
    if beside and not is_empty:
        call.fail("malformed", why)
        source.call = None
    elif beside:
        call.doubt(why, is_plain=True)
    source.end()


def arguments_beside(source: Source, call: TextCall, unread: Unread, *, is_empty: bool) -> dict[str, str]:
    """The fields of a call object that may be arguments, with their JSON; `is_empty` says that it has no others.

    Of a tool that is not known, any may be one if there are no others. What says nothing, or nothing new, is left out.
    """
    if not unread.fields:
        return {}
    own = set(call.schema.keys)
    is_unknown = is_empty and not (call.name in source.tools and call.schema.types)
    usual = {*ARGUMENTS, *(ALIASES if is_empty else ())}
    found = {key: raw for key, raw in unread.fields.items() if is_unknown or key in own or key in usual}
    written = call.raw() if found else ""
    given = strict_object(written) or {}

    def is_new(key: str, raw: str) -> bool:
        meant = as_value(raw)
        if meant is None:  # too long, perhaps
            return raw != "null"
        if meant in ("", {}, []):
            return is_empty and key in own
        return key not in given or given[key] != meant

    return {key: raw for key, raw in found.items() if is_new(key, raw)}


def has_arguments(source: Source, keys: Keys, key: str) -> Reading[bool]:
    """Whether the value of this field, which comes next, is the arguments."""
    if key in keys.arguments:
        return True
    return (key in ALIASES or key in ARGUMENTS) and (yield from source.sees("{", '"{'))


def arguments(source: Source, call: TextCall) -> Reading[None]:
    """The value of the arguments, passed on as it comes; some models write it as a string that holds the JSON."""
    if (yield from source.accept('"')):
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
    is_over = yield from source.sees(*source.call_ends, "]", FENCE)
    source.unread(spaces)
    return is_over


def only_key(call: TextCall, key: str) -> str:
    """The one argument that a tool has; if it has several, or none is known, it is called `key`."""
    keys = set(call.schema.keys)
    return keys.pop() if len(keys) == 1 else key


def only_calls(source: Source) -> None:
    """Where only declared tools are looked for, what is no call is text, marks and all."""
    if source.only_declared:
        raise Mismatch("there is no call")


# -- several calls -------------------------------------------------------------------------------------------------


def object_calls(source: Source, read: ReadCall = object_call) -> Reading[None]:
    """One call object, or several in a row, or an array of them; they may stand in a fence of their own."""
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


def call_array(source: Source, read: ReadCall) -> Reading[None]:
    """An array of calls, from its first element on. Its end may be missing, or a comma."""
    yield from read(source)
    while (yield from source.accept_spaced(",")) or (yield from another(source, "{")):
        yield from source.space()
        if (yield from source.peek()) in ("", "]"):
            break
        yield from read(source)
    yield from source.accept_spaced("]")


def another_object(source: Source) -> Reading[bool]:
    """Whether another object follows, perhaps after a comma; if none does, nothing is read."""
    before = yield from source.space()
    if (yield from source.accept(",")):
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

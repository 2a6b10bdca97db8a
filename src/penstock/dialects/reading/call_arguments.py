"""The arguments that follow the name of a call: JSON, or the text of the only argument."""

from __future__ import annotations

import re
from collections.abc import Callable

from penstock.dialects.reading.call_objects import arguments, only_key
from penstock.dialects.reading.cursor import Reading, TextEnded
from penstock.dialects.reading.marks import marks_of
from penstock.dialects.reading.raw_values import told
from penstock.dialects.reading.source import Source
from penstock.dialects.reading.text_call import TextCall

NAME = re.compile(r"[^\s<>\[\]{}()\"'`]*")
"""A name or an id, where no mark of its own ends it."""


def name_ahead(source: Source) -> Reading[str]:
    """The name that stands next, white space around it aside."""
    yield from source.space()
    name = yield from source.match(NAME)
    yield from source.space()
    return name or source.fail("expected a name")


def named_call(source: Source, name: str, id: str = "", ends: tuple[str, ...] = ()) -> Reading[None]:
    """A call of which the name is known, from its arguments on; one of the `ends` follows if there are none."""
    call = source.begin(name, id)
    yield from json_arguments(source, call, *ends)
    source.end()


def closed_call(source: Source, name: str, id: str, ends: tuple[str, ...], following: tuple[str, ...]) -> Reading[None]:
    """The same, where one of the `ends` follows the arguments, or what is `following` if that was left out."""
    call = source.begin(name, id)
    yield from json_arguments(source, call, *ends)
    yield from more_arguments(source, call, *ends, *following)
    source.end()


def more_arguments(source: Source, call: TextCall, *ends: str) -> Reading[None]:
    """What follows the arguments up to their end, if that is JSON too: nobody knows which of it was meant."""
    spaces = yield from source.space()
    if (yield from source.sees(*_JSON)):
        call.add(spaces)
        source.unread((yield from source.flow(call.add, marks_of(*ends))))
    else:
        source.unread(spaces)


_JSON = tuple("{}[],")


def json_arguments(source: Source, call: TextCall, *ends: str) -> Reading[None]:
    """The JSON of a call's arguments; none at all if one of the `ends` comes at once, which is not read."""
    yield from source.space()
    if (yield from source.sees(*ends)):
        call.add("{}")
    elif (yield from source.sees("{", "[", '"', "null")):
        yield from arguments(source, call)
    else:
        source.fail("expected the arguments")


Body = Callable[[Callable[[str], None]], Reading[str]]
"""Reads raw text, which it gives to a sink, and returns the mark that ended it."""


def text_call(source: Source, call: TextCall, key: str, body: Body) -> Reading[str]:
    """A call that has nothing but text: the value of the one argument that its tool has, or else of `key`."""
    key = only_key(call, key)
    call.key(key)
    mark = yield from told(call, call.schema.field(key).writer, body)
    call.end_keys()
    source.end()
    return mark


def last_text(source: Source, sink: Callable[[str], None], *marks: str) -> Reading[str]:
    """Text up to a mark, or to the end of all, which counts only if the model ended there."""
    mark = yield from source.flow(sink, marks_of(*marks))
    if not mark and source.is_cut:
        raise TextEnded("the text was cut off inside a value")
    return mark

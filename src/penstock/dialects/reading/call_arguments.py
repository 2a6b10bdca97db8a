"""The arguments that follow the name of a call: JSON, or the text of the only argument."""

from __future__ import annotations

import re

from penstock.dialects.reading.call_objects import arguments, only_key
from penstock.dialects.reading.marks import marks_of
from penstock.dialects.reading.raw_values import ReadText, Sink, write_value
from penstock.dialects.reading.source import Reading, Source, TextEnded
from penstock.dialects.reading.text_call import TextCall

NAME = re.compile(r"[^\s<>\[\]{}()\"'`]*")
"""A name or an id that has no end mark."""


def name_ahead(source: Source) -> Reading[str]:
    """Reads a name, and white space around it."""
    yield from source.space()
    name = yield from source.match(NAME)
    yield from source.space()
    return name or source.fail("expected a name")


def named_call(source: Source, name: str, id: str = "", ends: tuple[str, ...] = ()) -> Reading[None]:
    """Reads the arguments of a call with this name. If one of the `ends` comes at once, it has none."""
    call = source.begin(name, id)
    yield from json_arguments(source, call, *ends)
    source.end()


def closed_call(source: Source, name: str, id: str, ends: tuple[str, ...], following: tuple[str, ...]) -> Reading[None]:
    """As `named_call`, where the arguments are followed by one of the `ends`, or if that is missing by `following`."""
    call = source.begin(name, id)
    yield from json_arguments(source, call, *ends)
    yield from more_arguments(source, call, *ends, *following)
    source.end()


def more_arguments(source: Source, call: TextCall, *ends: str) -> Reading[None]:
    """Adds JSON after the arguments to the call, which makes it invalid: it is not known which of them is right."""
    spaces = yield from source.space()
    if (yield from source.sees(*_JSON)):
        call.add(spaces)
        source.unread((yield from source.flow(call.add, marks_of(*ends))))
        return
    source.unread(spaces)
    if source.is_cut and not (yield from source.peek()):
        raise TextEnded("the text was cut off before the end of the call")


_JSON = tuple("{}[],")


def json_arguments(source: Source, call: TextCall, *ends: str) -> Reading[None]:
    """Reads the JSON of the arguments. If one of the `ends` comes at once, there are none, and it is not read."""
    yield from source.space()
    if (yield from source.sees(*ends)):
        call.add("{}")
    elif (yield from source.sees("{", "[", '"', "null")):
        yield from arguments(source, call)
    else:
        source.fail("expected the arguments")


def text_call(source: Source, call: TextCall, key: str, read: ReadText) -> Reading[str]:
    """Reads a call that is only text: the value of the tool's only argument, or of `key` if it has several."""
    key = only_key(call, key)
    call.key(key)
    mark = yield from write_value(call, call.schema.field(key).writer, read)
    call.end_keys()
    source.end()
    return mark


def last_text(source: Source, sink: Sink, *marks: str) -> Reading[str]:
    """Passes text to `sink` up to a mark, or to the end of the text if that was not cut; returns the mark."""
    mark = yield from source.flow(sink, marks_of(*marks))
    if not mark and source.is_cut:
        raise TextEnded("the text was cut off inside a value")
    return mark

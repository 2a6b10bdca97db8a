"""The arguments that follow the name of a call: JSON, or the text of the only argument."""

from __future__ import annotations

import re

from penstock.dialects.dialect import END_TOKENS
from penstock.dialects.reading.call_objects import arguments, field_ahead, is_malformed, only_key
from penstock.dialects.reading.marks import marks_of
from penstock.dialects.reading.raw_values import ReadText, Sink, write_value
from penstock.dialects.reading.recovery import rest_of_call
from penstock.dialects.reading.source import Mismatch, Reading, Source, TextEnded
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
    yield from object_end(source, call, *ends)
    source.end()


def object_end(source: Source, call: TextCall, *ends: str) -> Reading[None]:
    """Checks that the arguments of a call without an end mark do not go on: `{"a": 1}, "b": 2}` ended too early.

    Text in the same line is part of the call if its arguments are not JSON.
    """
    goes_on = yield from field_ahead(source)
    spaces = yield from source.space()
    is_text = (yield from source.peek()) and not (yield from source.sees(*ends, *END_TOKENS))
    source.unread(spaces)
    if goes_on or (is_text and is_malformed(call, spaces)):
        raise Mismatch("expected the end of the arguments")


def closed_call(source: Source, name: str, id: str, ends: tuple[str, ...], following: tuple[str, ...]) -> Reading[None]:
    """As `named_call`, where the arguments are followed by one of the `ends`, or if that is missing by `following`."""
    call = source.begin(name, id)
    yield from json_arguments(source, call, *ends)
    yield from rest_of_arguments(source, call, *ends, *following)
    source.end()


def rest_of_arguments(source: Source, call: TextCall, *ends: str) -> Reading[None]:
    """Adds what stands between the arguments and the end of the call to the call, which makes it invalid.

    Nobody knows then what the arguments are: there may be two objects, or an unescaped quote in a string.
    """
    spaces = yield from source.space()
    is_next = yield from source.sees(*ends, *END_TOKENS)
    is_end = not is_next and (yield from source.ends_with(*ends))
    source.unread(spaces)
    if is_end and source.is_cut:
        raise TextEnded("the text was cut off before the end of the call")
    if not is_next and not is_end:
        source.unread((yield from rest_of_call(source, call)))


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

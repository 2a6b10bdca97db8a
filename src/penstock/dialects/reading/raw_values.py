"""Raw values: unquoted text between tags, which may contain anything, even its own end tag.

An end tag therefore counts only if it is followed by what must follow it, or by the end of the text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from penstock.calls.arguments import MAX_ARGUMENTS
from penstock.dialects.reading.marks import marks_of
from penstock.dialects.reading.schema import quote
from penstock.dialects.reading.source import Mismatch, Reading, Source, TextEnded
from penstock.dialects.reading.text_call import TextCall

Sink = Callable[[str], None]
Writer = Callable[[str], str] | None
"""Converts a complete raw value to JSON; None if the value is a string, which is emitted as it arrives."""
ReadText = Callable[[Sink], Reading[str]]
"""Reads text, passes it to a sink as it arrives, and returns the mark that ended it."""
Ends = Mapping[str, tuple[str, ...]]
"""The marks at which a value may end. Each maps to the marks that may follow it, after white space; () for any text."""


def raw_text(source: Source, sink: Sink, ends: Ends) -> Reading[str]:
    """Passes raw text to `sink` as it arrives, and returns the mark that ended it."""
    marks = marks_of(*ends)
    while True:
        text, mark = source.take(marks)
        if text:
            sink(text)
        if mark and not ends[mark]:
            return mark
        if mark:
            spaces = yield from source.space()
            if (yield from source.sees(*ends[mark])):
                return mark
            if not (yield from source.peek()) and not source.is_cut:  # if it was cut, what followed is not known
                return mark
            source.unread(spaces)  # a mark may begin there
            sink(mark)
        elif source.is_over:
            raise TextEnded("the text ended inside a value")
        else:
            yield


def raw_value(source: Source, call: TextCall, write: Writer, ends: Ends) -> Reading[str]:
    """Reads a raw value of a call, and returns the mark that ended it."""
    return (yield from write_value(call, write, lambda sink: raw_text(source, sink, ends)))


def write_value(call: TextCall, write: Writer, read: ReadText) -> Reading[str]:
    """Adds a value to a call: a string as it arrives, anything else when it is complete.

    Returns the mark that ended it.
    """
    if write is None:
        call.add('"')
        mark = yield from read(call.string)
        call.add('"')
        return mark
    pieces: list[str] = []
    left = MAX_ARGUMENTS

    def keep(piece: str) -> None:
        nonlocal left
        left -= len(piece)
        if left >= 0:
            pieces.append(piece)
        else:
            call.overflow()

    try:
        mark = yield from read(keep)
    except Mismatch:
        call.add("".join(pieces))  # an invalid call shows what was there
        raise
    call.add(write("".join(pieces)))
    return mark


def json_or_text(raw: str) -> str:
    """Returns the text itself if it is JSON, else the text as a JSON string."""
    try:
        json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return quote(raw)
    return raw.strip()


def _refuse(constant: str) -> None:
    raise ValueError(constant)

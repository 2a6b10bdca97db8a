"""Raw values: text between tags, without quotes, which may contain anything, its own closing tag too.

A closing tag therefore counts only where what must follow it does, or where the text ends.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from penstock.calls.arguments import MAX_ARGUMENTS
from penstock.dialects.reading.cursor import Mismatch, Reading, TextEnded
from penstock.dialects.reading.marks import marks_of
from penstock.dialects.reading.schema import quote
from penstock.dialects.reading.source import Source
from penstock.dialects.reading.text_call import TextCall

Sink = Callable[[str], None]
Writer = Callable[[str], str] | None
"""How a raw value is written as JSON once it is complete; None for a string, which is told as it comes."""
Ends = Mapping[str, tuple[str, ...]]
"""The marks at which a value may end, and what must follow each, white space aside; nothing if it always counts."""


def raw_text(source: Source, sink: Callable[[str], None], ends: Ends) -> Reading[str]:
    """Raw text, given to `sink` as it comes; returns the mark that ended it."""
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
            if not (yield from source.peek()) and not source.is_cut:  # else more was to come, nobody knows what
                return mark
            source.unread(spaces)  # a mark may begin there
            sink(mark)
        elif source.is_over:
            raise TextEnded("the text ended inside a value")
        else:
            yield


def raw_value(source: Source, call: TextCall, write: Writer, ends: Ends) -> Reading[str]:
    """A raw value of a call: without `write` it is a string and is told as it comes, else when it is complete."""
    return (yield from told(call, write, lambda sink: raw_text(source, sink, ends)))


def told(call: TextCall, write: Writer, read: Callable[[Sink], Reading[str]]) -> Reading[str]:
    """A value of a call, as `read` gives it: without `write` it is told as it comes, else when it is complete."""
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
        call.add("".join(pieces))  # for whoever looks at the broken call
        raise
    call.add(write("".join(pieces)))
    return mark


def json_or_text(raw: str) -> str:
    """The value that the text is JSON of, as JSON; text that is no JSON is a string."""
    try:
        json.loads(raw, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return quote(raw)
    return raw.strip()


def _refuse(constant: str) -> None:
    raise ValueError(constant)

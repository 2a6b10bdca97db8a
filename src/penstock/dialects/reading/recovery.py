"""Malformed calls: what becomes of them, and where reading continues.

| the model writes | what we do |
|---|---|
| a tag in the wrong place | `expected`: the error message names the two usual tags, not all that are possible |
| a tag of a call that breaks inside the tag | `header`: the tag is part of the call's raw arguments, up to its end |
| a malformed call, and more calls in its block | `give_up`: the call ends as invalid, and the grammar continues |
| anything else that does not fit | the `Mismatch` reaches `Reader`, which gives up the call, and its block |

A malformed call owns everything up to its own end tag, or the rest of the text if that never comes: nothing in it is
text or another call (`give_up`). Calls after it wait for the end of the text, as after a raw value: see `unconfirmed`.

Values between tags have rules of their own: see `tagged_values`.
"""

from __future__ import annotations

from penstock.dialects.reading.marks import marks_of
from penstock.dialects.reading.source import Mismatch, Reading, Result, Source, TextEnded
from penstock.dialects.reading.text_call import TextCall


def give_up(source: Source, why: Mismatch, unread: tuple[str, ...] = ()) -> Reading[str]:
    """Ends the open call as malformed, with everything up to its end tag as its raw text; returns that tag.

    The tags in `unread` are left to be read.
    """
    assert source.call is not None
    source.add_held(source.call.add)
    if isinstance(why, TextEnded):
        source.call.add(source.rest())
        source.end_invalid("cut", str(why))
        return ""
    end = yield from rest_of_call(source, source.call)
    if end in unread:
        source.unread(end)
    source.end_invalid("malformed", str(why))
    return end


def rest_of_call(source: Source, call: TextCall) -> Reading[str]:
    """Adds the text up to the call's end tag to the call, and returns the tag; "" if it never comes.

    Start tags in that text have end tags of their own.
    """
    pairs = {tag: pair for pair in source.tags.outer for tag in (*pair.starts, *pair.ends)}
    marks, depths = marks_of(*pairs), dict.fromkeys(source.tags.outer, 0)
    while mark := (yield from source.flow(call.add, marks)):
        pair = pairs[mark]
        if mark in pair.ends and not depths[pair]:
            return mark
        depths[pair] += 1 if mark in pair.starts else -1
        call.add(mark)
    return ""


def expected(source: Source, marks: tuple[str, ...], *named: str) -> Reading[str]:
    """Reads the mark that must come next. An error message lists only the `named` ones."""
    try:
        return (yield from source.expect(*marks))
    except TextEnded:
        raise TextEnded(f"the text ended where {' or '.join(map(repr, named))} was expected") from None
    except Mismatch:
        raise Mismatch(f"expected {' or '.join(map(repr, named))}") from None


def header(
    source: Source, call: TextCall, start: str, reading: Reading[Result], ends: tuple[str, ...] = (">",)
) -> Reading[Result]:
    """Reads a tag of an open call; the tag is held. If it is malformed, all of it is added to the call's arguments."""
    try:
        result = yield from reading
    except Mismatch:
        source.rewind()
        call.add((yield from source.accept(start)))
        mark = yield from source.flow(call.add, marks_of(*ends, "<", "\n"))
        if mark in ends:
            call.add(mark)
        else:
            source.unread(mark)
        raise
    source.drop()
    return result

"""Malformed calls: what becomes of them, and where reading continues.

| the model writes | what we do |
|---|---|
| a tag in the wrong place | `expected`: the error message names the two usual tags, not all that are possible |
| a tag of a call that breaks inside the tag | `header`: the tag is part of the call's raw arguments, up to its end |
| a Python call that breaks in its arguments | `rest_of_call`: the rest is part of the call, up to its closing bracket |
| a malformed call, and more calls after it | `give_up`: the call ends as invalid, and the grammar continues |
| anything else that does not fit | the `Mismatch` reaches `Reader`, which ends the call as invalid, and its block |

Values between tags have rules of their own: see `tagged_values`.
"""

from __future__ import annotations

from penstock.dialects.reading.marks import marks_of
from penstock.dialects.reading.source import Mismatch, Reading, Result, Source, TextEnded
from penstock.dialects.reading.text_call import TextCall

_STRUCTURE = marks_of(*"()[]{}'\"\\")

MAX_SKIPPED = 1024
"""How many characters of a malformed call are skipped to find its end."""


def give_up(source: Source, why: Mismatch) -> None:
    """Ends the open call as malformed; nothing is held afterwards."""
    assert source.call is not None
    source.call.fail("malformed", str(why))
    source.call = None
    source.drop()


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


def rest_of_call(source: Source, call: TextCall, depth: int, quote: str = "") -> Reading[None]:
    """Adds the rest of a malformed call to it, up to the bracket that closes it, but at most MAX_SKIPPED characters.

    `depth` is the number of open brackets, `quote` the quote of an open string.
    """
    left = MAX_SKIPPED
    while depth and left:
        text, mark = source.take(_STRUCTURE, left)
        source.unread(text[left:])
        piece = text[:left] + mark
        call.add(piece)
        left -= len(piece)
        if not mark:
            if source.is_over:
                return
            if left:
                yield
        elif mark == "\\":
            call.add((yield from source.accept("'", '"', "\\")))
        elif quote or mark in ("'", '"'):
            quote = "" if mark == quote else quote or mark
        else:
            depth += 1 if mark in "([{" else -1

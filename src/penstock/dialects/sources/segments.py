"""Segments of a long text: pieces that overlap, so that what is not longer than the overlap is whole in one of them.

A segment is decoded and searched by functions that cannot be interrupted, each in a few milliseconds: a thread that
prepares a conversation must not stop the event loop of a server. Encodings that occur in one place only are decoded in
their segment only.
"""

from __future__ import annotations

SEGMENT = 64 * 1024
"""How many characters a segment has."""
OVERLAP = 16 * 1024
"""How many of them are also in the next segment."""
PIECE = 2048
"""How long a folded text may be to be whole in a segment, also where the text has it in an encoding."""

_NEAR = 2048  # how far before the end of a segment a line may begin that begins the next one
_SEPARATORS = " \n\t\"'`,;:(<>{}[]&|"
_ALIGNED = 12  # characters of base64, of hexadecimal and of escapes of three characters end here


def segments(text: str) -> list[str]:
    """Returns the segments of a text. They begin with a line, or where characters of base64 that belong together do."""
    if len(text) <= SEGMENT:
        return [text]
    pieces: list[str] = []
    start, run = 0, 0
    while len(text) - start > SEGMENT:
        pieces.append(text[start : start + SEGMENT])
        place = start + SEGMENT - OVERLAP
        run = max(run, *(text.rfind(separator, start, place) + 1 for separator in _SEPARATORS))
        line = text.rfind("\n", place - _NEAR, place) + 1
        start = line or place - (place - run) % _ALIGNED
    return [*pieces, text[start:]]


def pieces_of(folded: str) -> list[str]:
    """Returns the pieces of a folded text that are looked for one by one."""
    return [folded[start : start + PIECE] for start in range(0, len(folded), PIECE)] or [""]

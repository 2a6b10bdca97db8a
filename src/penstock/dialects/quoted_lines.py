"""Lines of a call in a text where every line has a margin: `// `, `mail.txt:12:`, the time of a log, a box.

Every tool prints its own margins, so there is no list of them. The lines of the call must follow each other,
and what is around them must look the same in each: words and numbers count as equal.
The model may also have added a margin itself; then it is part of the lines, and not of the text (`without_margin`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

MAX_COMPARED = 200_000
"""How many lines are compared for the calls of one request. A call for which these do not suffice counts as quoted."""

_WIDEST = 120  # how many characters a margin may have
_WORD = re.compile(r"\w+")
_TOKEN = re.compile(r"(\w+)|[^\w\s]")
_STRINGS = re.compile(r'(?<!\\)"\s{0,40},\s{0,40}"')  # between the strings of an array


class Comparisons:
    """How many lines may still be compared."""

    def __init__(self) -> None:
        self.left = MAX_COMPARED


def split_lines(text: str) -> list[str]:
    """Returns the lines of a text."""
    return text.split("\n")


def split_strings(text: str) -> list[str]:
    """Returns the strings of the arrays in a text: tools also return the lines of a file as an array."""
    return _STRINGS.split(text)


def has_lines(text: Sequence[str], lines: Sequence[str], comparisons: Comparisons) -> bool:
    """Returns whether a text has these lines, of which there are at least two. None of them is empty."""
    for index, line in enumerate(text):
        if (start := line.rfind(lines[0])) < 0:
            continue
        end, is_match = _compare(text, index, lines, line[start + len(lines[0]) :])
        comparisons.left -= end - index
        if is_match or comparisons.left < 0:
            return True
    return False


def _compare(text: Sequence[str], index: int, lines: Sequence[str], after: str) -> tuple[int, bool]:
    """Compares the lines after the first, which is at `index` and has `after` after it.

    Returns the number of the line that was compared last, and whether all lines are there.
    """
    margin: str | None = None
    number = 1
    while number < len(lines):
        index += 1
        if index == len(text):
            return index, False
        before = _before(text[index], lines[number], after, is_last=number == len(lines) - 1)
        if before is not None and margin in (None, before):
            number += 1
        else:  # it can only be a blank line, which has nothing but the margin
            before = _shape(text[index].removesuffix(after)) if len(text[index]) <= _WIDEST else None
            if before is None or margin not in (None, before):
                return index, False
        margin = before
    return index, True


def _before(text: str, line: str, after: str, *, is_last: bool) -> str | None:
    """Returns the shape of the margin before a line; None if the line is not there. Anything may follow the last."""
    start = text.find(line) if is_last else len(text) - len(line) - len(after)
    if 0 <= start <= _WIDEST and text.startswith(line if is_last else line + after, start):
        return _shape(text[:start])
    return None


def _shape(margin: str) -> str:
    return _WORD.sub("0", margin)


def without_margin(lines: Sequence[str]) -> Iterator[list[str]]:
    """Yields the lines of a call without a margin that the model has added to all of them but the first.

    A margin looks the same in each line, and where it ends is not known: each end is tried. If nothing but the last
    line is left, that has a word, and the margin ends with a sign or a number or consists of signs.
    """
    marked = [line for line in lines[1:] if line.strip()]
    tokens = [list(_TOKEN.finditer(line, 0, _WIDEST)) for line in marked]
    has_word = False
    for column in zip(*tokens, strict=False):
        if len({token[0] if token[1] is None else "" for token in column}) > 1:
            return
        has_word = has_word or column[0][1] is not None
        left = [line[token.end() :] for line, token in zip(marked, column, strict=True)]
        is_last_alone = not any(line.strip() for line in left[:-1])
        if is_last_alone and has_word and (column[-1][0].isalpha() or not _WORD.search(left[-1])):
            continue
        yield [lines[0], *left]

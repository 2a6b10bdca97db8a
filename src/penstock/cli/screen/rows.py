"""Rows of styled text: line breaking, truncation, and writing them to the console."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.segment import Segment, Segments

from penstock.cli.screen.terminal import STYLES
from penstock.jsontext.shown_text import escape

Styled = tuple[str, str]
"""A text and the name of its style."""
Row = tuple[Styled, ...]
"""One line."""
Width = int | None
"""The columns of a line; None if lines are not broken, as in a pipe."""

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ASCII = str.maketrans("╭╰│┿┑─━┄┊◆✓✗■↻▌›·…“”’" + SPINNER, ".'|||-=.:*+x#~_>-.\"\"'" + "|/-\\|/-\\|/")
"""The ASCII replacement of each symbol, of the same width."""
_WORDS = re.compile(r"\n|[ \t]+|[^ \t\n]+")
_TAB = 4


def wrap(texts: Iterable[Styled], width: Width) -> list[Row]:
    """The texts, one after the other, in rows of at most this width, broken between words.

    If text is appended later, only the last row changes.
    """
    rows: list[list[Styled]] = [[]]
    line = Line(width)
    for text, style in texts:
        for part in line.break_text(escape(text)):
            if part == "\n":
                rows.append([])
            elif rows[-1] and rows[-1][-1][1] == style:
                rows[-1][-1] = (rows[-1][-1][0] + part, style)
            else:
                rows[-1].append((part, style))
    return [tuple(row) for row in rows]


def hang(mark: Styled, texts: Iterable[Styled], width: Width) -> list[Row]:
    """The texts behind a mark; rows after the first are indented by its width."""
    indent = cell_len(mark[0])
    first, *rest = wrap(texts, None if width is None else width - indent)
    return [(mark, *first), *(((" " * indent, ""), *row) for row in rest)]


def paragraph(text: str, style: str, width: Width) -> list[Row]:
    """The text as rows of at most this width."""
    return [((plain(row).rstrip(), style),) for row in wrap([(text, style)], width)]


def fit(text: str, width: int) -> str:
    """The text on one line, truncated to this width."""
    line = " ".join(escape(text).split())
    return line if cell_len(line) <= width else set_cell_size(line, max(width - 1, 0)) + "…"[:width]


def plain(row: Row) -> str:
    """The text of a row without styles."""
    return "".join(text for text, _ in row)


def width_of(row: Row) -> int:
    """The number of columns that a row takes."""
    return sum(cell_len(text) for text, _ in row)


def encodable(console: Console, text: str) -> str:
    """The text, with ASCII in place of our symbols if the console's encoding is not Unicode."""
    return text.translate(_ASCII) if console.options.ascii_only else text


def write_rows(console: Console, rows: Sequence[Row], *, end: str = "\n", before: str = "", after: str = "") -> None:
    """Writes rows in one write: each followed by `end`, all of them between `before` and `after`."""
    last = Segment(end, control=[])  # it may clear the line, so it is not text that the console escapes
    segments = [
        segment
        for row in rows
        for segment in (*(Segment(encodable(console, text), STYLES[style]) for text, style in row if text), last)
    ]
    with console.capture() as capture:
        console.print(Segments(segments), end="", crop=False)
    # `print` alone would keep its buffer when Ctrl-C interrupts it, and print it again the next time.
    console.file.write(f"{before}{capture.get()}{after}")
    console.file.flush()


class Line:
    """Breaks text into lines: the column reached, and whether a break is possible there."""

    def __init__(self, limit: Width) -> None:
        self._limit = None if limit is None else max(limit, 1)
        self._column = 0
        self._may_break = True

    def break_text(self, text: str) -> Iterable[str]:
        """The parts of the text, with "\\n" for each line break."""
        if self._limit is None:
            yield from re.findall(r"\n|[^\n]+", text)
            return
        for word in _WORDS.findall(text.expandtabs(_TAB)):
            for part in [word] if word == "\n" else self._break_word(word, self._limit):
                self._column = 0 if part == "\n" else self._column + cell_len(part)
                self._may_break = part[-1] in " \n"
                yield part

    def _break_word(self, word: str, limit: int) -> list[str]:
        """Breaks before the word if it then fits, otherwise inside it; spaces at a break are dropped."""
        if self._column + cell_len(word) <= limit:
            return [word]
        if word.isspace():
            return ["\n"]
        if self._may_break and self._column and cell_len(word) <= limit:
            return ["\n", word]
        return self._split(word, limit)

    def _split(self, word: str, limit: int) -> list[str]:
        parts: list[str] = []
        begin, column = 0, self._column
        for index, character in enumerate(word):
            if column + cell_len(character) > limit:
                parts += [word[begin:index], "\n"]
                begin, column = index, 0
            column += cell_len(character)
        return [part for part in (*parts, word[begin:]) if part]

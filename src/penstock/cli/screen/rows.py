"""Rows of a terminal: styled texts that fit its width, and the characters of ours that not every terminal has."""

from __future__ import annotations

from collections.abc import Iterable

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.segment import Segment, Segments

from penstock.cli.screen.terminal import STYLES, WORDS, Line, Styled, visible

Row = tuple[Styled, ...]
"""One line: texts and the names of their styles."""

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_ASCII = str.maketrans("╭╰│┿┑─━┄┊◆✓✗■↻▌›·…“”’" + SPINNER, ".'|||-=.:*+x#~_>-.\"\"'" + "|/-\\|/-\\|/")
"""What stands for our marks where only ASCII can be shown; each as wide as what it replaces."""


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines of at most this width, broken at words; all but the last stay as they are if more follows."""
    lines, line = [""], Line(max(width, 1))
    for word in WORDS.findall(visible(text).expandtabs(4)):
        for part in ["\n"] if word == "\n" else line.broken(word):
            if part == "\n":
                lines.append("")
                line.restart()
            else:
                lines[-1] += part
                line.advance(part)
    return lines


def paragraph(text: str, style: str, width: int) -> list[Row]:
    """The text as rows of at most this width."""
    return [((line.rstrip(), style),) for line in wrapped(text, width)]


def fitted(text: str, width: int) -> str:
    """The text on one line of at most this width; what does not fit is left out, and that is shown."""
    line = " ".join(visible(text).split())
    return line if cell_len(line) <= width else set_cell_size(line, max(width - 1, 0)) + "…"[:width]


def width_of(row: Row) -> int:
    """How many columns a row takes."""
    return sum(cell_len(text) for text, _ in row)


def rendered(console: Console, rows: Iterable[Row], end: str = "\n") -> list[str]:
    """The rows as the terminal is sent them, each with its end."""
    return [_rendered(console, row) + end for row in rows]


def print_rows(console: Console, rows: Iterable[Row]) -> None:
    """Print rows that stay."""
    segments = [segment for row in rows for segment in _segments(console, (*row, ("\n", "")))]
    console.print(Segments(segments), end="", crop=False)


def _rendered(console: Console, row: Row) -> str:
    with console.capture() as captured:
        console.print(Segments(_segments(console, row)), end="", crop=False)
    return captured.get()


def _segments(console: Console, row: Row) -> list[Segment]:
    table = _ASCII if console.options.ascii_only else {}
    return [Segment(text.translate(table), STYLES[style]) for text, style in row]

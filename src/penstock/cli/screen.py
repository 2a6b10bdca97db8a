"""Where the readable view prints: blocks behind a gutter, lines broken at words, and nothing that acts on the terminal.

What a model or a server wrote is not to be trusted with a terminal: an escape sequence could rewrite what stands above,
retitle the window or fill the clipboard. So every character that is not for reading is shown, not sent.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Hashable
from typing import Any

import msgspec
from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style

STYLES = {
    name: Style.parse(definition)
    for name, definition in {
        "": "none", "name": "bold cyan", "arguments": "cyan", "aside": "dim", "reasoning": "dim italic", "good": "green",
        "bad": "red", "odd": "yellow", "escaped": "yellow reverse", "title": "bold",
    }.items()
}  # fmt: skip

MAX_WIDTH = 100
"""Lines longer than this are tiring to read, however wide the terminal is."""

# C0 but for tab and newline, DEL, C1, what turns the direction of writing, other line ends, halves of characters.
_CONTROL = re.compile("([\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+)")
_WORDS = re.compile(r"\n|[ \t]+|[^ \t\n]+")
_TAB = 8


def visible(text: str) -> str:
    """The text with everything that could act on a terminal spelled out, newline and tab excepted."""
    return _CONTROL.sub(lambda found: _spelled(found[1]), text)


def _spelled(characters: str) -> str:
    return characters.encode("unicode_escape").decode()


def has_control(text: str) -> bool:
    """Whether the text holds anything that `visible` would spell out."""
    return _CONTROL.search(text) is not None


def one_line(value: Any, limit: int = 160) -> str:
    """A value, or text, as one line of a bearable length."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    more = len(text) - limit
    shown = text[:limit].replace("\n", "\\n").replace("\t", "\\t")
    return f"{shown}… ({more:,} more characters)" if more > 0 else shown


class OurConsole(Console):
    """A console that leaves it to the command how to end when nobody reads on."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def open_console() -> Console:
    """The console for standard output: plain text if that is no terminal, or if NO_COLOR asks for it."""
    if hasattr(sys.stdout, "reconfigure"):  # a terminal that cannot show a character still shows which it is
        sys.stdout.reconfigure(errors="backslashreplace")
    color_system = None if os.environ.get("NO_COLOR") else "auto"
    return OurConsole(color_system=color_system, markup=False, emoji=False, highlight=False)


class Screen:
    """Prints blocks. Each begins on a line of its own, after a blank line; lines of one block may start with a gutter."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._pending: list[Segment] = []
        self._block: Hashable = None
        self._gutter = Segment("")
        self._line = Line(min(console.width, MAX_WIDTH) if console.is_terminal else 0)

    def begin(self, block: Hashable, gutter: str = "", style: str = "") -> bool:
        """Go on with this block, or begin it if another one was last; whether it begins."""
        if block == self._block:
            return False
        self.end_line()
        if self._block is not None:
            self._put("\n")
        self._block = block
        self._gutter = Segment(gutter, STYLES[style])
        return True

    def is_at(self, block: Hashable) -> bool:
        """Whether this block was the last to be printed."""
        return block == self._block

    def line(self, *spans: tuple[str, str]) -> None:
        """A line made of texts and their styles, without a gutter."""
        self.end_line()
        gutter, self._gutter = self._gutter, Segment("")
        for text, style in spans:
            self.write(text, style)
        self.end_line()
        self._gutter = gutter

    def write(self, text: str, style: str = "") -> None:
        """Text that flows on from where the last one ended."""
        for at, run in enumerate(_CONTROL.split(text)):
            if at % 2:
                self._flow(_spelled(run), "escaped")
            elif run:
                self._flow(run, style)

    def _flow(self, text: str, style: str) -> None:
        is_short = not self._line.limit or self._line.has_room(text)
        for word in text.splitlines(keepends=True) if is_short else _WORDS.findall(text):
            body = word.removesuffix("\n")
            if body:
                self._word(body, style)
            if body != word:
                self._new_line()

    def _word(self, word: str, style: str) -> None:
        for part in self._line.broken(word):
            if part == "\n":
                self._new_line()
                continue
            if not self._line.column:
                self._begin_line()
            self._put(part, style)
            self._line.advance(part)

    def _begin_line(self) -> None:
        if self._gutter.text:
            self._pending.append(self._gutter)
            self._line.indent(len(self._gutter.text))

    def _new_line(self) -> None:
        if not self._line.column:
            self._begin_line()
        self._put("\n")
        self._line.restart()

    def end_line(self) -> None:
        """Go to the start of a line, unless it is there already."""
        if self._line.column:
            self._new_line()

    def _put(self, text: str, style: str = "") -> None:
        self._pending.append(Segment(text, STYLES[style]))

    def flush(self) -> None:
        """Send what was printed to the terminal."""
        pending, self._pending = self._pending, []
        if pending:
            self._console.print(Segments(pending), end="", crop=False)


class Line:
    """The line being printed: how far it has come, and what still fits. A limit of 0 is none."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.column = 0
        self._indent = 0
        self._may_break = True

    def restart(self) -> None:
        self.column = self._indent = 0
        self._may_break = True

    def indent(self, width: int) -> None:
        self.column = self._indent = width

    def advance(self, text: str) -> None:
        *_, last = text.rpartition("\t")
        if last is not text:
            self.column += _TAB * text.count("\t")
        self.column += cell_len(last)
        self._may_break = text[-1] in " \t"

    def has_room(self, text: str) -> bool:
        return self.column + cell_len(text) + _TAB * text.count("\t") <= self.limit

    def broken(self, word: str) -> list[str]:
        """The word, with line breaks where it needs them: before it if that helps, else within it."""
        if not self.limit or self.has_room(word):
            return [word]
        if word.isspace():
            return ["\n"]
        if self._may_break and self.column > self._indent and self._indent + cell_len(word) <= self.limit:
            return ["\n", word]
        return self._split(word)

    def _split(self, word: str) -> list[str]:
        parts, at, column = [], 0, self.column
        for place, character in enumerate(word):
            width = cell_len(character)
            if column + width > self.limit:
                parts += [word[at:place], "\n"]
                at, column = place, self._indent
            column += width
        return [part for part in [*parts, word[at:]] if part]

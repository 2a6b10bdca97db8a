"""Where the readable view prints: blocks behind a gutter, lines broken at words, and nothing that acts on the terminal.

What a model or a server wrote is not to be trusted with a terminal: an escape sequence could rewrite what stands above,
retitle the window or fill the clipboard. So every character that is not for reading is shown, not sent.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Hashable, Iterable
from io import TextIOWrapper
from typing import Any

import msgspec
from msgspec import Struct
from rich.cells import cell_len
from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style

STYLES = {
    name: Style.parse(definition)
    for name, definition in {
        "": "none", "name": "bold cyan", "arguments": "cyan", "aside": "dim", "reasoning": "dim italic",
        "good": "green", "bad": "red", "odd": "yellow", "escaped": "yellow reverse", "title": "bold",
        "frame": "cyan", "key": "dim", "busy": "yellow", "axis": "dim", "answer": "magenta",
    }.items()
}  # fmt: skip

MAX_WIDTH = 100
"""Lines longer than this are tiring to read, however wide the terminal is."""
MIN_WIDTH = 20
"""Lines shorter than this cannot be read, however narrow the terminal is."""

# C0 but for tab and newline, DEL, C1, what turns the direction of writing, other line ends, halves of characters.
_CONTROL = re.compile("([\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+)")
_LINES = re.compile(r"\n|[^\n]+")
WORDS = re.compile(r"\n|[ \t]+|[^ \t\n]+")
"""What a text is broken between: line ends, spaces, and the rest."""
_ACTING = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8-\xae]|\xe2\x81[\xa6-\xa9]")
_TAB = 8  # the most columns that a tab takes


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
    text = as_text(value)
    more = len(text) - limit
    shown = text[:limit].replace("\n", "\\n").replace("\t", "\\t")
    return f"{shown}… ({more:,} more characters)" if more > 0 else shown


def as_text(value: Any) -> str:
    """A text as it is, any other value as JSON, and what has no JSON as Python shows it."""
    try:
        return value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=repr).decode()
    except (TypeError, ValueError, RecursionError):
        return repr(value)


def harmless(line: bytes) -> bytes:
    """A line of JSON with everything spelled out that JSON allows as it stands and a terminal may obey."""
    return _ACTING.sub(lambda found: b"\\u%04x" % ord(found[0].decode()), line)


def write_lines(lines: Iterable[bytes], *, is_aside: bool = False) -> None:
    """Write JSON, each piece as lines of its own, at once, with nothing in it that a terminal may obey.

    What is said aside goes to standard error, beside what was asked for.
    """
    out = (sys.stderr if is_aside else sys.stdout).buffer
    out.writelines(harmless(line) + b"\n" for line in lines)
    out.flush()


class OurConsole(Console):
    """A console that leaves it to the command how to end when nobody reads on."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def open_console(*, is_plain: bool = False) -> Console:
    """The console for standard output: plain text if that is no terminal, or if it or NO_COLOR asks for that."""
    if isinstance(sys.stdout, TextIOWrapper):  # a terminal that cannot show a character still shows which it is
        sys.stdout.reconfigure(errors="backslashreplace")
    is_plain = is_plain or bool(os.environ.get("NO_COLOR"))
    return OurConsole(color_system=None if is_plain else "auto", markup=False, emoji=False, highlight=False)


Styled = tuple[str, str]
"""A text and the name of its style."""


class Gutter(Struct):
    """What stands before the next line of a block, and before those after it."""

    now: Segment
    rest: Segment


class Screen:
    """Prints blocks. Each begins on a line of its own, after a blank line; its lines may start with a gutter."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._pending: list[Segment] = []
        self._block: Hashable = None
        self._gutter = Gutter(Segment(""), Segment(""))
        self._line = self._new_line()

    def begin(self, block: Hashable, gutter: str = "", style: str = "") -> bool:
        """Go on with this block, or begin it if another one was last; whether it begins."""
        if block == self._block:
            return False
        self.end_line()
        if self._block is not None:
            self._put("\n")
        self._block = block
        self._gutter = Gutter(*[Segment(gutter, STYLES[style])] * 2)
        self._line = self._new_line()
        return True

    def is_at(self, block: Hashable) -> bool:
        """Whether this block was the last to be printed."""
        return block == self._block

    def line(self, mark: str, *texts: Styled) -> None:
        """A line of its own: a mark, then texts with their styles; a long one goes on behind the mark."""
        self.end_line()
        first = Segment(mark, STYLES[texts[0][1]])
        gutter, self._gutter = self._gutter, Gutter(first, Segment(" " * cell_len(mark)))
        self._line = self._new_line()
        for text, style in texts:
            self.write(text, style)
        self.end_line()
        self._gutter = gutter
        self._line = self._new_line()

    def write(self, text: str, style: str = "") -> None:
        """Text that flows on from where the last one ended."""
        for at, run in enumerate(_CONTROL.split(text)):
            if at % 2:
                self._flow(_spelled(run), "escaped")
            elif run:
                self._flow(run, style)

    def end_line(self) -> None:
        """Go to the start of a line, unless it is there already."""
        if self._line.column:
            self._break()

    def flush(self) -> None:
        """Send what was printed to the terminal."""
        pending, self._pending = self._pending, []
        if pending:
            with self._console.capture() as rendered:
                self._console.print(Segments(pending), end="", crop=False)
            # Not by the console itself: Ctrl-C while it writes would make it write the same again next time.
            self._console.file.write(rendered.get())
            self._console.file.flush()

    def _flow(self, text: str, style: str) -> None:
        for word in (_LINES if self._line.has_room(text) else WORDS).findall(text):
            for part in [word] if word == "\n" else self._line.broken(word):
                if part == "\n":
                    self._break()
                else:
                    self._begin_line()
                    self._put(part, style)
                    self._line.advance(part)

    def _begin_line(self) -> None:
        if not self._line.column:
            self._pending.append(self._gutter.now)
            self._gutter.now = self._gutter.rest

    def _break(self) -> None:
        self._begin_line()
        self._put("\n")
        self._line.restart()

    def _put(self, text: str, style: str = "") -> None:
        self._pending.append(Segment(text, STYLES[style]))

    def _new_line(self) -> Line:
        if not self._console.is_terminal:
            return Line(sys.maxsize)  # a file has no edge
        return Line(max(min(self._console.width, MAX_WIDTH) - cell_len(self._gutter.rest.text), MIN_WIDTH))


class Line:
    """The line that is being printed: how far it has come behind its gutter, and what still fits."""

    def __init__(self, limit: int) -> None:
        self.column = 0
        self._limit = limit
        self._may_break = True

    def restart(self) -> None:
        self.column = 0
        self._may_break = True

    def advance(self, text: str) -> None:
        self.column += _width(text)
        self._may_break = text[-1] in " \t"

    def has_room(self, text: str) -> bool:
        return self.column + _width(text) <= self._limit

    def broken(self, word: str) -> list[str]:
        """The word, with a line break before it if that makes it fit, else within it; spaces give way to a break."""
        if self.has_room(word):
            return [word]
        if word.isspace():
            return ["\n"]
        if self._may_break and self.column and _width(word) <= self._limit:
            return ["\n", word]
        return self._split(word)

    def _split(self, word: str) -> list[str]:
        parts: list[str] = []
        begin, column = 0, self.column
        for at, character in enumerate(word):
            if column + _width(character) > self._limit:
                parts += [word[begin:at], "\n"]
                begin, column = at, 0
            column += _width(character)
        return [part for part in (*parts, word[begin:]) if part]


def _width(text: str) -> int:
    return cell_len(text) + _TAB * text.count("\t")

"""The console.

Models and servers are not trusted with the terminal: an escape sequence could rewrite earlier output, change the
window title or fill the clipboard. Everything that is printed goes through `escape`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from io import TextIOWrapper

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.style import Style

from penstock.jsontext.shown_text import escape, escape_json

STYLES = {
    name: Style.parse(definition)
    for name, definition in {
        "": "none", "name": "bold cyan", "arguments": "cyan", "aside": "dim", "reasoning": "dim italic",
        "good": "green", "bad": "red", "odd": "yellow", "title": "bold",
        "frame": "cyan", "key": "dim", "busy": "yellow", "axis": "dim", "response": "magenta",
    }.items()
}  # fmt: skip

MAX_WIDTH = 100
"""Lines are never longer than this, however wide the terminal is."""
MIN_WIDTH = 20
"""Lines are never broken shorter than this, however narrow the terminal is."""


def write_lines(lines: Iterable[bytes], *, to_stderr: bool = False) -> None:
    """Writes lines of JSON and flushes them."""
    out = (sys.stderr if to_stderr else sys.stdout).buffer
    out.writelines(escape_json(line) + b"\n" for line in lines)
    out.flush()


class SafeConsole(Console):
    """A rich console that escapes all text, and raises `BrokenPipeError`, so that the command decides how to exit."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield Segment(escape(segment.text), segment.style) if segment.control is None else segment

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


def open_console(*, is_plain: bool = False) -> Console:
    """The console for standard output, without colour if `is_plain` or NO_COLOR is set."""
    if isinstance(sys.stdout, TextIOWrapper):  # characters that the encoding lacks are printed escaped
        sys.stdout.reconfigure(errors="backslashreplace")
    is_plain = is_plain or bool(os.environ.get("NO_COLOR"))
    console = SafeConsole(color_system=None if is_plain else "auto", markup=False, emoji=False, highlight=False)
    if console.legacy_windows and not is_plain:  # it would print escape sequences as they are
        return open_console(is_plain=True)
    return console

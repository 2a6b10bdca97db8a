"""The console, and text that is safe to print on it.

Models and servers are not trusted with the terminal: an escape sequence could rewrite earlier output, change the
window title or fill the clipboard. Every control character is therefore printed escaped.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from io import TextIOWrapper

from rich.console import Console
from rich.style import Style

from penstock.inspector.excerpts import CONTROL

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

# Letters, marks and symbols without a shape: fillers, joiners, variation selectors, the empty Braille pattern.
_SHAPELESS = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
_CONTROL_UTF8 = re.compile(rb"\x7f|\xc2[\x80-\x9f]|\xe2\x80[\xa8-\xae]|\xe2\x81[\xa6-\xa9]")


def escape(text: str) -> str:
    """Escapes everything in the text that could act on a terminal; newlines and tabs stay."""
    return CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def spell(text: str) -> str:
    """Escapes everything in the text that cannot be seen: control characters, and characters without a shape."""
    return "".join(
        character.encode("unicode_escape").decode() if _is_invisible(character) else character for character in text
    )


def _is_invisible(character: str) -> bool:
    return not character.isprintable() or _SHAPELESS.match(character) is not None


def escape_json(line: bytes) -> bytes:
    """Escapes the characters that JSON allows unescaped and that a terminal may act on."""
    return _CONTROL_UTF8.sub(lambda match: b"\\u%04x" % ord(match[0].decode()), line)


def write_lines(lines: Iterable[bytes], *, to_stderr: bool = False) -> None:
    """Writes lines of JSON and flushes them."""
    out = (sys.stderr if to_stderr else sys.stdout).buffer
    out.writelines(escape_json(line) + b"\n" for line in lines)
    out.flush()


class SafeConsole(Console):
    """A rich console that raises `BrokenPipeError`, so that the command decides how to exit."""

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

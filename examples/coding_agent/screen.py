"""What the person sees: the text of the model, one line per call, and the difference that a call would make."""

from __future__ import annotations

import json
import os
import re
import sys
from typing import Any, TextIO

import penstock

from .tools import planned_change
from .workspace import Workspace

_COLORS = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}
_UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]")
"""Control characters, and invisible ones: they could move the cursor, or hide what is approved."""
MAX_WIDTH = 100
MAX_LINES = 8


def visible(text: str) -> str:
    """The text with unsafe characters spelled out."""
    return _UNSAFE.sub(lambda match: f"\\x{ord(match[0]):02x}", text.replace("\r\n", "\n"))


class Screen:
    """Prints the events of runs."""

    def __init__(self, workspace: Workspace, output: TextIO | None = None) -> None:
        self._workspace = workspace
        self._output = sys.stdout if output is None else output
        self._is_colored = self._output.isatty() and "NO_COLOR" not in os.environ
        self._is_line_open = False

    def show(self, event: penstock.StreamEvent) -> None:
        """Print what an event tells the person."""
        match event:
            case penstock.Text():
                self._write(visible(event.text))
            case penstock.ToolStart():
                self.line(f"→ {event.name} {_short(event.arguments)}", "cyan")
            case penstock.ToolEnd():
                is_good = event.ending == "done"
                shown = _last_lines if event.name == "bash" and is_good else _summary
                time = f" ({event.seconds:.1f} s)" if event.seconds and event.seconds >= 1 else ""
                text = f"{'←' if is_good else '✗'} {shown(event.result.text)}{time}"
                self.line(text, "dim" if is_good else "yellow")
            case penstock.Said():
                self.line(f"» {event.message.text}", "bold")
            case penstock.Retry():
                self.line("the response was interrupted, and is requested again", "yellow")
            case penstock.Done() if event.reason != "answered":
                self.line(f"[{event.reason}] {event.why}", "yellow")
            case penstock.Done():
                cost = "" if event.usage.cost is None else f", ${event.usage.cost:.4f}"
                self.line(f"[{event.usage.input_tokens + event.usage.output_tokens} tokens{cost}]", "dim")
            case _:
                pass

    def ask(self, request: penstock.ApprovalRequest) -> None:
        """Print what a call would do, and the question whether it may."""
        what = f"{request.name} {request.arguments.get('path', request.arguments.get('command', ''))}"
        for line in visible(self._preview(request)).splitlines():
            self.line(line, {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], ""))
        if request.note:
            self.line(request.note, "yellow")
        self.prompt(f"{visible(what)}\n  run it? [y]es, [n]o, or what to do instead: ", "bold")

    def _preview(self, request: penstock.ApprovalRequest) -> str:
        """The difference that a call would make; a call that waited for others was requested without it."""
        if request.preview:
            return request.preview
        try:
            change = planned_change(self._workspace, request.name, request.arguments)
        except penstock.ToolError as error:
            return f"it would fail: {error}"
        return change.difference if change else ""

    def line(self, text: str, color: str = "") -> None:
        """Print a line of its own."""
        self._end_line()
        self._write(self._paint(visible(text), color) + "\n")

    def prompt(self, text: str, color: str = "") -> None:
        """Print a question; the answer follows on its line."""
        self._end_line()
        self._write(self._paint(text, color))
        self._is_line_open = False  # the person ends it

    def _end_line(self) -> None:
        if self._is_line_open:
            self._write("\n")

    def _write(self, text: str) -> None:
        self._output.write(text)
        self._output.flush()
        self._is_line_open = not text.endswith("\n") if text else self._is_line_open

    def _paint(self, text: str, color: str) -> str:
        return f"\x1b[{_COLORS[color]}m{text}\x1b[0m" if color and self._is_colored else text


def _short(arguments: dict[str, Any]) -> str:
    """The arguments of a call on one line."""
    text = " ".join(value if isinstance(value, str) else json.dumps(value) for value in arguments.values())
    return _summary(text)


def _summary(text: str) -> str:
    """The first line of a text, and how many more it has."""
    first, *rest = text.strip().splitlines() or [""]
    shown = first if len(first) <= MAX_WIDTH else f"{first[: MAX_WIDTH - 1]}…"
    return f"{shown} (+{len(rest)} lines)" if rest else shown


def _last_lines(text: str) -> str:
    """The last lines of the output of a command: the errors and the exit code are there."""
    return "\n  ".join(text.splitlines()[-MAX_LINES:])

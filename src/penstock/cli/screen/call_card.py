"""A call on the screen: its arguments as they are written, and below them what comes of it."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, Literal

import msgspec
from msgspec import Struct

from penstock.cli.screen.rows import SPINNER, Row, fitted, wrapped
from penstock.cli.screen.terminal import as_text
from penstock.jsontext.partial import PartialJSON

MAX_LINES = 6
"""How many lines of one argument are shown: its first ones, or its last while it is being written."""
MAX_RESULT_LINES = 4
"""How many lines of a result are shown."""
_KEY = 10  # the columns of the names of arguments, unless one is longer
_BAR = 12
_SPINS = 10  # a second

Phase = Literal["writing", "held", "asking", "running", "done", "failed", "void", "left"]


class Span(Struct, frozen=True):
    """From when to when something went on, by a monotonic clock."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


class Progress(Struct):
    """How far a call has come."""

    phase: Phase = "writing"
    call_id: str = ""  # under which it was started
    began: float = 0.0
    is_early: bool = False
    seconds: float | None = None
    report: Any = None
    told: str = ""  # what came of it


class Card:
    """One call: a head with its name, its arguments, and a foot with how far it is."""

    def __init__(self, id: str, name: str) -> None:
        self.id = id
        self.name = name
        self.progress = Progress()
        self._view = PartialJSON()
        self._raw: list[str] = []

    @property
    def is_settled(self) -> bool:
        """Whether nothing of it will change any more."""
        return self.progress.phase in ("done", "failed", "void", "left")

    def write(self, piece: str) -> None:
        """A piece of the arguments."""
        self._view.feed(piece)
        self._raw.append(piece)

    def state(self, arguments: Mapping[str, Any]) -> None:
        """The arguments as the protocol states them in the end."""
        self._view = PartialJSON()
        self.write(msgspec.json.encode(arguments, enc_hook=str).decode())

    def end(self, phase: Phase, told: str, seconds: float | None = None) -> None:
        """It is over, and this came of it."""
        self.progress = msgspec.structs.replace(self.progress, phase=phase, told=told, seconds=seconds)

    def rows(self, width: int, now: float) -> list[Row]:
        """The card as it is at this moment."""
        head: Row = (("╭─ ", "frame"), (fitted(self.name, width - 3) or "(no name)", "name"))
        return [head, *self._arguments(width), *self._foot(width, now)]

    def _arguments(self, width: int) -> list[Row]:
        value = self._view.value
        if not isinstance(value, dict):
            return self._field("", "".join(self._raw), width, 0, is_growing=True) if self._raw else []
        column = min(max([_KEY, *(len(key) + 2 for key in value)]), max(width // 3, 1))
        last = next(reversed(value), None) if self.progress.phase == "writing" and not self._view.is_complete else None
        return [
            row
            for key, item in value.items()
            for row in self._field(key, as_text(item), width, column, is_growing=key == last)
        ]

    def _field(self, key: str, text: str, width: int, column: int, *, is_growing: bool) -> list[Row]:
        is_writing = is_growing and self.progress.phase == "writing"
        lines = wrapped(text + ("▌" if is_writing else ""), width - 3 - column)
        if len(lines) > MAX_LINES:
            lines = ["…", *lines[1 - MAX_LINES :]] if is_writing else [*lines[: MAX_LINES - 1], "…"]
        names = [fitted(key, column - 1).ljust(column), *[" " * column] * (len(lines) - 1)]
        return [(("│  ", "frame"), (name, "key"), (line, "arguments")) for name, line in zip(names, lines, strict=True)]

    def _foot(self, width: int, now: float) -> list[Row]:
        mark, style, words, told = self._said(now)
        first = f"{mark} {words}" if words else mark
        told_style = style if style == "bad" else "aside" if style != "good" else ""
        lines = wrapped(f"{first}  {told}" if told else first, width - 3)
        if len(lines) > MAX_RESULT_LINES:
            lines = [*lines[: MAX_RESULT_LINES - 1], "…"]
        cut = len(first)
        rows: list[Row] = [(("╰─ ", "frame"), (lines[0][:cut], style), (lines[0][cut:], told_style))]
        return rows + [(("   ", ""), (line, told_style)) for line in lines[1:]]

    def _said(self, now: float) -> tuple[str, str, str, str]:
        """A mark, the style of both, how far it is, and what there is to tell."""
        progress = self.progress
        took = "" if progress.seconds is None else f"{progress.seconds:.1f} s"
        match progress.phase:
            case "writing":
                return spin(now), "arguments", "writing", ""
            case "held":
                return "·", "busy", "waits until the answer is over", ""
            case "asking" | "left":
                return "?", "busy", progress.told, ""
            case "running" if progress.seconds is not None:
                return "·", "good", took, "has ended, and waits until its call is confirmed"
            case "running":
                early = "  started early" if progress.is_early else ""
                return spin(now), "busy", f"{now - progress.began:.1f} s{early}", _report(progress.report)
            case "done":
                return "✓", "good", took, progress.told
            case "failed":
                return "✗", "bad", took, progress.told
            case "void":
                return "■", "busy", progress.told, ""


def spin(now: float) -> str:
    """The spinner at this moment."""
    return SPINNER[int(now * _SPINS) % len(SPINNER)]


def _report(data: Any) -> str:
    """What a tool reports, on one line: a bar if it says how much of how much is done."""
    match data:
        case None:
            return ""
        case {"done": int() | float() as done, "total": int() | float() as total, **rest} if (
            0 <= done <= total and 0 < total < inf
        ):
            filled = round(_BAR * done / total)
            of = " ".join([f"{done:g} of {total:g}", *(str(word) for word in rest.values())])
            return f"{'━' * filled}{'┄' * (_BAR - filled)} {fitted(of, 40)}"
        case _:
            return fitted(as_text(data), 60)

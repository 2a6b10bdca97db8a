"""A tool call on a page: its name, its arguments as they arrive, and its progress or result."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any, Literal, Protocol

import msgspec
from msgspec import Struct

from penstock.cli.screen.rows import SPINNER, Row, Styled, Width, fit, hang, plain, wrap
from penstock.cli.screen.terminal import MAX_WIDTH, MIN_WIDTH
from penstock.inspector.excerpts import as_text, excerpt
from penstock.jsontext.partial import PartialJSON

MAX_LINES = 6
"""The lines shown of one argument: the first ones, or the last ones while it is being written."""
MAX_RESULT_LINES = 4
"""The lines shown of a result."""
MAX_INNER_ROWS = 12
"""The rows shown of an agent inside a call, while it runs: the last ones."""
_KEY = 10  # columns for argument names, unless one is longer
_BAR = 12
_SPINS = 10  # per second

Phase = Literal["writing", "held", "asking", "running", "whole", "done", "failed", "void", "left"]


class Span(Struct, frozen=True):
    """The begin and the end of something, by a monotonic clock."""

    begin: float
    end: float

    @property
    def seconds(self) -> float:
        return self.end - self.begin


class Progress(Struct):
    """The state of a call."""

    phase: Phase = "writing"
    call_id: str = ""  # the id with which it was started
    began: float = 0.0
    is_early: bool = False
    seconds: float | None = None
    report: Any = None
    message: str = ""  # the result, the error or the reason


class InnerPage(Protocol):
    """The page of an agent that runs inside a call."""

    def take(self, width: Width, now: float) -> list[Row]:
        """Takes the rows that will not change any more."""
        ...

    def moving(self, width: Width, now: float) -> list[Row]:
        """The rows that have not been taken."""
        ...

    def settle(self, reason: str) -> None:
        """Settles everything."""
        ...


class CallCard:
    """One call. With `is_raw`, its id and the exact JSON text of its arguments are shown, and nothing is shortened.

    `inner` is the page of an agent that runs inside of it, within its frame.
    """

    def __init__(self, id: str, name: str, *, is_raw: bool = False) -> None:
        self.id = id
        self.name = name
        self.progress = Progress()
        self.is_raw = is_raw
        self.inner: InnerPage | None = None
        self._inner_rows: list[Row] = []
        self._raw: list[str] = []
        self._view = PartialJSON()

    @property
    def is_settled(self) -> bool:
        """Whether nothing on the card will change any more."""
        return self.progress.phase in ("whole", "done", "failed", "void", "left")

    @property
    def is_blank(self) -> bool:
        """Whether no arguments have arrived."""
        return not self._raw

    def write(self, piece: str) -> None:
        """Appends a piece of the arguments."""
        self._raw.append(piece)
        if not self.is_raw:
            self._view.feed(piece)

    def set_arguments(self, arguments: Mapping[str, Any]) -> None:
        """Replaces the arguments by their final value."""
        self._view, self._raw = PartialJSON(), []
        self.write(msgspec.json.encode(arguments, enc_hook=str).decode())

    def end(self, phase: Phase, message: str, seconds: float | None = None) -> None:
        """Settles the card."""
        if self.inner is not None:
            self.inner.settle("interrupted")
        self.progress = msgspec.structs.replace(self.progress, phase=phase, message=message, seconds=seconds)

    def rows(self, width: Width, now: float) -> list[Row]:
        """The card at this moment."""
        return [*self._head(width), *self._arguments(width), *self._inside(width, now), *self._foot(width, now)]

    def _head(self, width: Width) -> list[Row]:
        if self.is_raw:
            id = f"  {excerpt(self.id, 80)}" if self.id else ""
            return hang(("╭─ ", "frame"), [(excerpt(self.name, 80) or "(no name)", "name"), (id, "aside")], width)
        return [(("╭─ ", "frame"), (fit(self.name, (width or MAX_WIDTH) - 3) or "(no name)", "name"))]

    def _arguments(self, width: Width) -> list[Row]:
        if not self._raw:
            return []
        if self.is_raw:
            rows = wrap([("".join(self._raw).rstrip("\n"), "arguments")], None if width is None else width - 3)
            return [(("│  ", "frame"), *row) for row in rows]
        columns = width or MAX_WIDTH
        value = self._view.value
        if not isinstance(value, dict):
            return self._field("", "".join(self._raw), columns, 0, is_growing=True)
        column = min(max([_KEY, *(len(key) + 2 for key in value)]), max(columns // 3, 1))
        last = next(reversed(value), None) if self.progress.phase == "writing" and not self._view.is_complete else None
        return [
            row
            for key, item in value.items()
            for row in self._field(key, as_text(item), columns, column, is_growing=key == last)
        ]

    def _inside(self, width: Width, now: float) -> list[Row]:
        """What the agent inside has done."""
        if self.inner is None:
            return []
        columns = max((width or MAX_WIDTH) - 3, MIN_WIDTH // 2)
        self._inner_rows += self.inner.take(columns, now)
        rows = [*self._inner_rows, *self.inner.moving(columns, now)]
        if not self.is_settled and len(rows) > MAX_INNER_ROWS:
            rows = [(("…", "aside"),), *rows[-MAX_INNER_ROWS:]]
        return [(("│  ", "frame"), *row) for row in rows]

    def _field(self, key: str, text: str, width: int, column: int, *, is_growing: bool) -> list[Row]:
        is_writing = is_growing and self.progress.phase == "writing"
        lines = [plain(row) for row in wrap([(text + ("▌" if is_writing else ""), "")], width - 3 - column)]
        if len(lines) > MAX_LINES:
            lines = ["…", *lines[1 - MAX_LINES :]] if is_writing else [*lines[: MAX_LINES - 1], "…"]
        names = [fit(key, column - 1).ljust(column), *[" " * column] * (len(lines) - 1)]
        return [(("│  ", "frame"), (name, "key"), (line, "arguments")) for name, line in zip(names, lines, strict=True)]

    def _foot(self, width: Width, now: float) -> list[Row]:
        rows = hang(("╰─ ", "frame"), self._status(now), width)
        if len(rows) > MAX_RESULT_LINES and not self.is_raw:
            rows = [*rows[: MAX_RESULT_LINES - 1], (("   …", "aside"),)]
        return rows

    def _status(self, now: float) -> list[Styled]:
        """The state of the call, and a message about it."""
        progress = self.progress
        took = "" if progress.seconds is None else f"{progress.seconds:.1f} s"
        match progress.phase:
            case "writing":
                return _status(f"{spin(now)} writing", "arguments")
            case "held":
                return _status(f"· {progress.message or 'waits for the end of the response'}", "busy")
            case "asking" | "left":
                return _status(f"? {progress.message}", "busy")
            case "running" if progress.seconds is not None:
                return _status(f"· {took}", "good", "done, waits until its call is confirmed", "aside")
            case "running":
                early = "  started early" if progress.is_early else ""
                status = f"{spin(now)} {now - progress.began:.1f} s{early}"
                return _status(status, "busy", _report(progress.report), "aside")
            case "whole":
                return _status("✓ whole", "good", progress.message, "aside")
            case "done":
                return _status(f"✓ {took}", "good", progress.message)
            case "failed":
                return _status(f"✗ {took}", "bad", progress.message, "bad")
            case "void":
                return _status(f"■ {progress.message}", "busy")


def _status(status: str, style: str, message: str = "", message_style: str = "") -> list[Styled]:
    is_short = status[-1] == " "  # only a mark, and no time
    return [(status.rstrip(), style), (f"{' ' if is_short else '  '}{message}" if message else "", message_style)]


def spin(now: float) -> str:
    """The spinner at this moment."""
    return SPINNER[int(now * _SPINS) % len(SPINNER)]


def _report(data: Any) -> str:
    """A tool's progress report on one line; a bar if it has `done` and `total`."""
    match data:
        case None:
            return ""
        case {"done": int() | float() as done, "total": int() | float() as total, **rest} if (
            0 <= done <= total and 0 < total < inf
        ):
            filled = round(_BAR * done / total)
            count = " ".join([f"{done:g} of {total:g}", *(str(word) for word in rest.values())])
            return f"{'━' * filled}{'┄' * (_BAR - filled)} {fit(count, 40)}"
        case _:
            return fit(as_text(data), 60)

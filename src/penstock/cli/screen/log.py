"""A run as a log: one line for each thing that happens, for pipes, files and terminals that cannot be drawn on."""

from __future__ import annotations

from typing import assert_never

from rich.console import Console

from penstock.cli.screen.rows import print_rows
from penstock.cli.screen.terminal import one_line, visible
from penstock.events import (
    Error,
    Finish,
    Opaque,
    Reasoning,
    Refusal,
    Retry,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    Unknown,
    Usage,
)
from penstock.run.events import ApprovalRequest, Done, StepEnd, StepStart, StreamEvent, ToolEnd, ToolProgress, ToolStart

_LIMIT = 2000
_INDENT = " " * 19


class Log:
    """Prints the events of a run, each line with the seconds since the first; words are printed when they end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._zero: float | None = None
        self._words: list[str] = []
        self._kind = ""
        self._since = 0.0

    def add(self, event: StreamEvent, at: float) -> None:
        """Print what happened at this moment."""
        self._zero = at if self._zero is None else self._zero
        now = at - self._zero
        if isinstance(event, Text | Reasoning | Refusal):
            if event.type != self._kind:
                self.close()
                self._kind, self._since = event.type, now
            self._words.append(event.text)
        elif line := _line(event):
            self.close()
            what, told = line
            self._print(now, what, one_line(told, _LIMIT))

    def close(self) -> None:
        """Print the words that have come."""
        first, *rest = "".join(self._words).strip().split("\n")
        if first:
            self._print(self._since, self._kind, first)
        print_rows(self._console, [((f"{_INDENT}{visible(line)}".rstrip(), ""),) for line in rest])
        self._words, self._kind = [], ""

    def _print(self, now: float, what: str, told: str) -> None:
        print_rows(self._console, [((f"{now:6.2f}  {what:<9}  {visible(told)}".rstrip(), ""),)])


def _line(event: StreamEvent) -> tuple[str, str] | None:
    """What happened, and what there is to say about it; None if that is nothing."""
    match event:
        case StepStart():
            return "asked", f"request {event.step}"
        case StepEnd():
            return "answered", event.finish_reason
        case ToolStart():
            return "started", f"{event.name}{' early' if event.is_early else ''}"
        case ToolProgress():
            return "progress", f"{event.name} {one_line(event.data)}"
        case ToolEnd():
            what = "result" if event.ending == "done" else event.ending
            return what, f"{event.result.name}: {event.result.text}"
        case ApprovalRequest():
            return "waits", f"{event.name} for {'approval' if event.kind == 'approval' else 'its result'}"
        case Done():
            return "done", f"{event.reason}{f': {event.why}' if event.why else ''}"
        case _:
            return _chunk(event)


def _chunk(event: StreamChunk) -> tuple[str, str] | None:
    match event:
        case ToolCallStart():
            return "calls", event.name
        case ToolCallClosed():
            return "closed", f"{event.name} {one_line(event.arguments, _LIMIT)}"
        case ToolCall():
            return "call", f"{event.name} {one_line(event.arguments, _LIMIT)}"
        case ToolCallInvalid():
            return "invalid", f"{event.name}: {event.why}, {event.message}"
        case Error():
            return "error", f"{event.code} {event.message}".strip()
        case Retry():
            return "retry", f"{event.reason}: what the model said is void"
        case Text() | Reasoning() | Refusal() | ToolCallDelta() | Opaque() | Usage() | Finish() | Unknown():
            return None
        case _:
            assert_never(event)

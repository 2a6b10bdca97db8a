"""A run as a log: one line per event, for pipes, files and terminals that cannot be drawn on."""

from __future__ import annotations

from typing import assert_never

from rich.console import Console

from penstock.cli.runs.owners import parse_owner
from penstock.cli.screen.remark import RESET, Remark, Shown
from penstock.cli.screen.rows import write_rows
from penstock.cli.screen.run_page import cost_text, forked_text, prompt_of, replaced_text
from penstock.events import (
    ArgumentDelta,
    Error,
    Finish,
    Opaque,
    OutputDelta,
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
from penstock.inspector.excerpts import excerpt
from penstock.jsontext.shown_text import escape
from penstock.run.events import (
    ApprovalRequest,
    CallReviewed,
    CallVerdict,
    Decision,
    Done,
    HistoryReplaced,
    Nested,
    OutputInvalid,
    RequestKind,
    Reset,
    RunStart,
    Said,
    StepEnd,
    StepStart,
    Taken,
    ToolEnd,
    ToolPrepare,
    ToolProgress,
    ToolResults,
    ToolReturned,
    ToolStart,
    Waiting,
)
from penstock.run.forked import Forked
from penstock.run.inner_runs import unwrap

_LIMIT = 2000
_INDENT = " " * 19
NEEDS: dict[RequestKind, str] = {"approval": "approval", "deferred": "its result", "input": "an answer"}
"""What a call waits for, by the kind of its request."""


class RunLog:
    """Prints the events of a run, each with the seconds since the first; text is printed when it is complete.

    Events of sub-agents are indented, after the names of the tools around them.
    """

    def __init__(self, console: Console, calls: tuple[str, ...] = (), zero: float | None = None) -> None:
        self._console = console
        self._calls = calls  # names of the calls around this run
        self._prefix = f"{'  ' * len(calls)}{' › '.join(calls)}: " if calls else ""
        self._zero = zero
        self._names: dict[str, str] = {}  # names of calls, by id; a number is added to a repeated name
        self._inner: dict[str, RunLog] = {}  # the logs of agents inside of calls, by id
        self._texts: list[str] = []
        self._kind = ""
        self._since = 0.0

    def add(self, event: Shown, at: float) -> None:
        """Prints an event that arrived at this time."""
        self._zero = at if self._zero is None else self._zero
        now = at - self._zero
        if isinstance(event, Nested):
            self._log_of(event.path[0]).add(unwrap(event), at)
            return
        if isinstance(event, ToolStart):
            number = 1 + sum(name.partition(" ")[0] == event.name for name in self._names.values())
            self._names[event.call_id] = f"{event.name} {number}" if number > 1 else event.name
        elif isinstance(event, ToolEnd) and event.call_id in self._inner:
            self._inner.pop(event.call_id).close()
        if isinstance(event, Text | Reasoning | Refusal):
            if event.type != self._kind:
                self.close()
                self._kind, self._since = event.type, now
            self._texts.append(event.text)
        elif line := run_line(event):
            self.close()
            label, message = line
            self._print(now, label, excerpt(message, _LIMIT))

    def close(self) -> None:
        """Prints the text that has arrived."""
        first, *rest = "".join(self._texts).strip().split("\n")
        if first:
            self._print(self._since, self._kind, first)
        if rest:
            indent = _INDENT + " " * len(self._prefix)
            write_rows(self._console, [((f"{indent}{escape(line)}".rstrip(), ""),) for line in rest])
        self._texts, self._kind = [], ""

    def _log_of(self, call_id: str) -> RunLog:
        """The log of the agent inside a call."""
        if call_id not in self._inner:
            name = self._names.get(call_id, "agent")
            self._inner[call_id] = RunLog(self._console, (*self._calls, name), self._zero)
        return self._inner[call_id]

    def _print(self, now: float, label: str, message: str) -> None:
        line = f"{now:6.2f}  {label:<9}  {escape(self._prefix)}{escape(message)}"
        write_rows(self._console, [((line.rstrip(), ""),)])


_VERDICTS: dict[CallVerdict, str] = {
    "go": "it may run", "ask": "a person is asked", "refuse": "refused", "answer": "answered",
    "failed": "a hook failed",
}  # fmt: skip


_WAITS = "no worker is needed until a decision or a result comes"


def run_line(event: Shown) -> tuple[str, str] | None:
    """The label and the message of an event; None if it is not logged."""
    match event:
        case StepStart():
            return "asked", f"request {event.step}"
        case StepEnd():
            return "answered", event.finish_reason
        case ToolPrepare():
            return "prepares", event.name
        case ToolStart():
            return "started", f"{event.name}{' early' if event.is_early else ''}"
        case ToolProgress():
            return "progress", f"{event.name} {excerpt(event.data)}"
        case ToolEnd():
            label = "result" if event.ending == "done" else event.ending
            took = "" if event.seconds is None else f" in {event.seconds:.2f} s"
            return label, f"{event.result.name}{took}: {event.result.text}"
        case CallReviewed() | ToolReturned() | ApprovalRequest() | Decision():
            return _call_line(event)
        case Said():
            return "said", event.message.text
        case RunStart():
            return "prompt", prompt_of(event)
        case Taken() | Waiting() | Forked() | Reset():
            return _log_line(event)
        case Remark():
            return "note", event.text
        case OutputInvalid():
            return "invalid", f"output: {event.problem}"
        case HistoryReplaced():
            return "history", replaced_text(event)
        case ToolResults() | Nested():
            return None
        case Done():
            cost = "" if event.usage.cost is None else f" ({cost_text(event.usage)})"
            return "done", f"{event.reason}{cost}{f': {event.why}' if event.why else ''}"
        case _:
            return _chunk_line(event)


def _log_line(event: Taken | Waiting | Forked | Reset) -> tuple[str, str]:
    match event:
        case Taken():
            return "taken", f"by {parse_owner(event.owner).text}"
        case Waiting():
            return ("parked", event.why) if event.why else ("waits", _WAITS)
        case Forked():
            return "forked", forked_text(event)
        case Reset():
            return "reset", RESET


def _call_line(event: CallReviewed | ToolReturned | ApprovalRequest | Decision) -> tuple[str, str]:
    match event:
        case CallReviewed():
            return (
                "reviewed",
                f"{event.name}: {_VERDICTS[event.verdict]}{', with other arguments' if event.arguments else ''}",
            )
        case ToolReturned():
            return "returned", f"{event.name}: hooks see its result"
        case ApprovalRequest():
            return "waits", f"{event.name} for {NEEDS[event.kind]}"
        case Decision():
            return "decided", f"{'approved' if event.approved else 'declined'} {event.call_id}"


def _chunk_line(event: StreamChunk) -> tuple[str, str] | None:
    match event:
        case ToolCallStart():
            return "calls", event.name
        case ToolCallClosed():
            return "closed", f"{event.name} {excerpt(event.arguments, _LIMIT)}"
        case ToolCall():
            return "call", f"{event.name} {excerpt(event.arguments, _LIMIT)}"
        case ToolCallInvalid():
            return "invalid", f"{event.name}: {event.why}, {event.message}"
        case Error():
            return "error", f"{event.code} {event.message}".strip()
        case Retry():
            other = f"{event.model} is asked now, " if event.model else ""
            return "retry", f"{event.reason}: {other}ignore the response above"
        case Text() | Reasoning() | Refusal() | ToolCallDelta() | Opaque() | Usage() | Finish() | Unknown():
            return None
        case ArgumentDelta() | OutputDelta():
            return None
        case _:
            assert_never(event)

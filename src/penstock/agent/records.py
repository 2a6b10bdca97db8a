"""The log records of a run: what is unusual in it, such as failed tools, repaired calls and withdrawn responses.

Arguments, results and texts are not logged: they may hold secrets.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import uuid4

from penstock.agent.config import AgentConfig
from penstock.events import Error, Retry, ToolCall
from penstock.loggers import get_logger
from penstock.model.logs import RUN
from penstock.run.events import Done, StreamEvent, ToolEnd, ToolStart

_logger = get_logger("penstock.agent")
LOGGED = frozenset({Done, Error, Retry, ToolCall, ToolEnd, ToolStart})
"""The events that may be logged. Drivers look at these first: most of what a run emits is text."""

MAX_CODE = 80
"""The characters of an error code that are logged."""


class RunRecords:
    """Logs what is unusual in the events of one run, with its id."""

    def __init__(self, config: AgentConfig, run_id: str = "") -> None:
        self.run_id = run_id or uuid4().hex
        self._name = config.name
        self._rescues = config.rescues
        self._code = ""  # the code of the last error; its message may be content

    def enter(self) -> None:
        """Let the code of this context belong to the run."""
        RUN.set((self.run_id, self._name))

    def add(self, events: Iterable[StreamEvent]) -> None:
        """Log those of the events that are unusual."""
        for event in events:
            if type(event) in LOGGED:
                self._add(event)

    def refuse(self, kind: str, key: str) -> None:
        """Log that an input from another process was refused."""
        what = {"decide": "the decision on the call", "provide": "the result of the call"}.get(
            kind, f"the input {kind}"
        )
        self._warn("%s %s was refused: it came too late, or is not valid", what, key)

    def _add(self, event: StreamEvent) -> None:
        match event:
            case ToolEnd(ending="failed"):
                self._warn("the tool %s failed (call %s)", event.name, event.call_id)
            case ToolStart() if event.fault:
                self._warn("the call %s of %s is %s, and runs repaired", event.call_id, event.name, event.fault)
            case ToolCall() if self._rescues and event.origin.startswith("text:"):
                self._warn("the call %s of %s was found in the text", event.id, event.name)
            case Retry():
                self._warn("the response was withdrawn, and starts again")
            case Done(reason="limit"):
                self._warn("a limit ended the run: %s", event.why)
            case Error():
                self._code = event.code[:MAX_CODE]
            case Done(reason="error"):
                self._warn("the run failed: error (%s)", self._code or "no code")
            case Done(reason="cut"):
                self._warn("the run failed: cut (%s)", self._code or "the response was cut off before its end")
            case _:
                pass

    def _warn(self, message: str, *values: str) -> None:
        fields = {"run_id": self.run_id, "agent": self._name}
        _logger.warning(f"run %s: {message}", self.run_id, *values, extra=fields)

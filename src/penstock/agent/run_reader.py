"""What both drivers show of a run: how far it is, and, when it is over, how it came out."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from msgspec.structs import replace

from penstock.agent.config import AgentConfig
from penstock.errors import AlreadyReadError, ProviderError, UsageError
from penstock.events import Error, Text, ToolCall, ToolCallInvalid, ToolCallStart, Usage
from penstock.messages import Message
from penstock.run.commands import Command, StartTool
from penstock.run.events import ApprovalRequest, Done, EndReason, RequestKind, StepStart, StreamEvent
from penstock.run.machine import Run
from penstock.tools.outcome import Outcome, outcome
from penstock.tools.tool import Context

MAX_AHEAD = 10_000
"""How many events may wait for whoever reads the run; then the model and the tools wait for the reader."""

MAX_WAIT = 1.0
"""How many seconds a run that ends waits for what it told to end: a connection or a tool may not listen."""

PAUSE = 0.01
"""How many seconds a thread sleeps before it looks again whether there is room."""


class RunReader:
    """A run as its reader sees it."""

    def __init__(self, config: AgentConfig, run: Run, deps: Any) -> None:
        self.done: Done | None = None
        self.error: Exception | None = None
        self._last_error: Error | None = None
        self._config = config
        self._run = run
        self._deps = deps
        self._variables = copy_context()  # tools see the variables of whoever began the run, not of whoever decides
        self._has_begun = False
        self._is_read = False
        self._needs_break = False
        self._given = len(run.messages)
        self._resolved: set[tuple[str, RequestKind]] = set()

    @property
    def output(self) -> str:
        """The text of the last answer."""
        return self._run.output

    @property
    def messages(self) -> list[Message]:
        """The history at this moment, with which another run can go on, with any provider.

        While the model speaks, what it has said so far is in it as an answer that was cut. A call that has no result
        yet, because it runs or waits, has one that says so. `dump` keeps such a call open, to `resume` it.
        """
        return self._run.history

    @property
    def usage(self) -> Usage:
        """What all answers together have cost."""
        return self._run.usage

    @property
    def finish_reason(self) -> EndReason | None:
        """How the run ended; None while it goes on."""
        return self.done.reason if self.done else None

    @property
    def waiting(self) -> list[ApprovalRequest]:
        """The calls that wait for a person, or for their result from elsewhere, also before a stored run is read."""
        return self._run.waiting

    @property
    def has_answer(self) -> bool:
        """Whether the model has said anything in this run."""
        return any(message.role == "assistant" for message in self._run.messages[self._given :])

    def dump(self) -> bytes:
        """The run as JSON, to be continued elsewhere by `Agent.resume`."""
        return self._run.dump()

    def _check_open(self) -> None:
        if self.done is not None and self.done.reason == "paused":
            raise UsageError("the run is paused: go on with Agent.resume(run.dump()), and answer there")

    @property
    def _should_pause(self) -> bool:
        return self._config.approvals == "pause" and self._run.is_waiting and self.done is None

    def _claim(self) -> None:
        """Somebody begins to read."""
        if self._is_read:
            raise AlreadyReadError("a run can be read once: start another, or keep the events in a list")
        self._is_read = True

    def _happened(self, step: Callable[[], list[Command]]) -> list[Command]:
        """What is to be done after something happened; if the run itself cannot say it, it ends."""
        try:
            return step()
        except (Exception, SystemExit) as error:  # noqa: BLE001  # a user's code has a part in it
            return self._failed(error)

    def _out_of_time(self) -> list[Command]:
        """The run took longer than it may."""
        return self._run.expire(f"the run took longer than {self._config.limits.seconds:g} seconds")

    def _failed(self, error: BaseException) -> list[Command]:
        """The model could not be asked, or anything else broke; of a run that is over nobody wants to know."""
        if self._run.is_over:
            return []
        self.error = error if isinstance(error, Exception) else RuntimeError(f"something called for {error!r}")
        return self._run.failed(_told(error))

    def _note(self, event: StreamEvent) -> None:
        match event:
            case Error():
                self._last_error = event
            case Done():
                self.done = event
                if event.reason == "error" and self.error is None and self._last_error is not None:
                    self.error = _raised(self._last_error)
            case _:
                pass

    def _is_resolved(self, event: StreamEvent) -> bool:
        """Whether this asks for what was answered before anyone read that it was asked."""
        return isinstance(event, ApprovalRequest) and (event.call_id, event.kind) in self._resolved

    def _shown(self, event: StreamEvent) -> StreamEvent:
        """The event as it is shown: text that follows tools may begin on a line of its own."""
        if not self._config.separate_text:
            return event
        match event:
            case StepStart():
                self._needs_break = event.step > 1
            case ToolCallStart() | ToolCall() | ToolCallInvalid():
                self._needs_break = True
            case Text() if self._needs_break and event.text:
                self._needs_break = False
                has_own = event.text.startswith(("\n", "\r"))
                return event if has_own else Text(event.block, "\n" + event.text, event.choice)
            case _:
                pass
        return event

    def _request(self) -> dict[str, Any]:
        options = {**self._config.options, "id_prefix": f"call_{self._run.step}_"}
        return {"tools": list(self._config.tools.values()), "system_prompt": self._config.instructions, **options}

    def _context(self, start: StartTool, report: Callable[[Any], None]) -> Context[Any]:
        return Context(deps=self._deps, call_id=start.call_id, tool=start.name, step=self._run.step, report=report)


def _raised(error: Error) -> ProviderError:
    """The exception that an error in band is for those who want one."""
    return ProviderError(error.message, code=error.code, retryable=error.retryable, raw=error.raw)


def _told(error: BaseException) -> Error:
    """The event that says why the model could not be asked."""
    kind = type(error).__name__
    if isinstance(error, ProviderError):
        return Error(error.message or kind, error.code or kind, error.retryable)
    return Error(str(error) or kind, kind)


def provided(value: Any, is_error: bool) -> Outcome:
    """The outcome that a value from elsewhere is, as if a tool had returned it."""
    found = outcome(value)
    return replace(found, is_error=True) if is_error else found

"""What both drivers share: the state of a run as its reader sees it, while it runs and afterwards."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from typing import Any

from msgspec.structs import replace

from penstock.agent.config import AgentConfig
from penstock.errors import AlreadyReadError, ProviderError, UsageError
from penstock.events import Error, Text, ToolCall, ToolCallInvalid, ToolCallStart, Usage
from penstock.messages import History
from penstock.run.commands import Command, StartTool
from penstock.run.events import ApprovalRequest, Done, EndReason, StepStart, StreamEvent
from penstock.run.machine import Run
from penstock.run.outbox import Outbox
from penstock.tools.outcome import Outcome, as_outcome
from penstock.tools.tool import Context

MAX_WAIT = 1.0
"""How many seconds a run that ends waits for what it cancelled: a connection or a tool may not react."""

PAUSE = 0.01
"""How many seconds a thread sleeps before it checks again whether the reader has caught up."""


class RunReader:
    """A run as its reader sees it. The subclasses drive it: `AgentRun` in plain code, `AsyncAgentRun` in async code."""

    def __init__(self, config: AgentConfig, run: Run, deps: Any) -> None:
        self.done: Done | None = None
        self.error: Exception | None = None
        self._config = config
        self._run = run
        self._deps = deps
        self._outbox = Outbox()
        self._variables = copy_context()  # which tools see: those of the code that began the run
        self._has_begun = False
        self._is_read = False
        self._line_breaks = LineBreaks() if config.separate_text else None
        self._history_length = len(run.messages)

    @property
    def output(self) -> str:
        """The text of the last response."""
        return self._run.output

    @property
    def messages(self) -> History:
        """The history at this moment; another run can continue from it, with any provider.

        While the model streams, its response so far is in it as one that was cut. A call without a result, because it
        runs or waits, has one that says so; `dump` keeps such a call open, for `resume`.
        """
        return self._run.history

    @property
    def usage(self) -> Usage:
        """The tokens of all responses together."""
        return self._run.usage

    @property
    def finish_reason(self) -> EndReason | None:
        """How the run ended; None until then."""
        return self.done.reason if self.done else None

    @property
    def waiting(self) -> list[ApprovalRequest]:
        """The calls that wait for a decision or for their result from elsewhere, also before a stored run is read."""
        return self._run.waiting

    @property
    def has_answer(self) -> bool:
        """Whether the model has responded in this run."""
        return any(message.role == "assistant" for message in self._run.messages[self._history_length :])

    def dump(self) -> bytes:
        """The run as JSON, to be continued elsewhere by `Agent.resume`."""
        return self._run.dump()

    def _check_open(self) -> None:
        if self.done is not None and self.done.reason == "paused":
            raise UsageError("the run is paused: continue it with Agent.resume(run.dump()), and answer there")

    @property
    def _should_pause(self) -> bool:
        """Whether a reader who has read everything would wait for somebody else."""
        is_idle = not self._outbox.units and self.done is None
        return is_idle and self._config.approvals == "pause" and self._run.is_waiting

    def _claim(self) -> None:
        """Let nobody else read the run."""
        if self._is_read:
            raise AlreadyReadError("a run can be read once: start another, or keep the events in a list")
        self._is_read = True

    def _guarded(self, step: Callable[[], list[Command]]) -> list[Command]:
        """The commands of an input to the run; if it raises, the run fails."""
        try:
            return step()
        except (Exception, SystemExit) as error:  # noqa: BLE001  # the run calls a user's code
            return self._failed(error)

    def _expired(self) -> list[Command]:
        """The commands after the time limit of the run."""
        return self._run.expire(f"the run took longer than {self._config.limits.seconds:g} seconds")

    def _failed(self, error: BaseException) -> list[Command]:
        """The commands after the request to the model, or anything else, failed; none if the run is over."""
        if self._run.is_over:
            return []
        self.error = error if isinstance(error, Exception) else RuntimeError(f"something called for {error!r}")
        return self._run.failed(_error_event(error))

    def _remember(self, done: Done) -> None:
        self.done = done
        if done.reason == "error" and self.error is None and self._run.error is not None:
            self.error = _provider_error(self._run.error)

    def _request(self) -> dict[str, Any]:
        options = {**self._config.options, "id_prefix": f"call_{self._run.step}_"}
        return {"tools": list(self._config.tools.values()), "system_prompt": self._config.instructions, **options}

    def _context(self, start: StartTool, report: Callable[[Any], None]) -> Context[Any]:
        return Context(deps=self._deps, call_id=start.call_id, tool=start.name, step=self._run.step, report=report)


class LineBreaks:
    """Begins text that follows tool calls on a line of its own (`Agent(separate_text=True)`)."""

    def __init__(self) -> None:
        self._is_due = False

    def feed(self, event: StreamEvent) -> StreamEvent:
        match event:
            case StepStart():
                self._is_due = event.step > 1
            case ToolCallStart() | ToolCall() | ToolCallInvalid():
                self._is_due = True
            case Text() if self._is_due and event.text:
                self._is_due = False
                if not event.text.startswith(("\n", "\r")):
                    return Text(event.block, "\n" + event.text, event.choice)
            case _:
                pass
        return event


def provided(value: Any, is_error: bool) -> Outcome:
    """The outcome of a deferred call: its result from elsewhere, as if a tool had returned it."""
    result = as_outcome(value)
    return replace(result, is_error=True) if is_error else result


def _provider_error(error: Error) -> ProviderError:
    """The exception for an error that came in the stream."""
    return ProviderError(error.message, code=error.code, retryable=error.retryable, raw=error.raw)


def _error_event(error: BaseException) -> Error:
    """The event for an exception."""
    kind = type(error).__name__
    if isinstance(error, ProviderError):
        return Error(error.message or kind, error.code or kind, error.retryable)
    return Error(str(error) or kind, kind)

"""Questions that running tools ask: each waits for its answer from whoever reads the run."""

from __future__ import annotations

from concurrent.futures import Future
from functools import partial
from typing import Any

from penstock.agent.dispatcher import Dispatcher
from penstock.agent.driven_run import DrivenRun
from penstock.errors import ToolError
from penstock.results import Outcome
from penstock.run.commands import AnswerTool, Command, StartTool


class NoAnswerError(ToolError):
    """A question of a tool has no answer: nobody reads the run, it took too long, or the call has ended."""


class Questions:
    """The open questions of a run, at most one per execution, each with a timer."""

    def __init__(self, driven: DrivenRun, dispatcher: Dispatcher) -> None:
        self._driven = driven
        self._dispatcher = dispatcher
        self._answers: dict[str, Future[Outcome]] = {}

    def ask(self, start: StartTool, question: dict[str, Any], seconds: float) -> Future[Outcome]:
        """Ask the reader what a tool wants to know, from any thread; returns the answer, to wait for."""
        answer = Future[Outcome]()
        if not self._driven.config.is_read and not self._driven.ownership.has_log:
            answer.set_exception(NoAnswerError("nobody reads this run, so nobody can answer"))
            return answer
        self._answers[start.key] = answer
        emit = partial(self._emit, start, question, seconds)
        self._dispatcher.call(partial(self._dispatcher.report, emit))
        return answer

    def answer(self, command: AnswerTool) -> None:
        """The answer has come."""
        self._dispatcher.timers.cancel(_timer(command.key))
        if (answer := self._open(command.key)) is not None:
            answer.set_result(command.outcome)

    def close(self, key: str, why: str) -> None:
        """The question of a tool is not to be answered any more, if it has one."""
        self._dispatcher.timers.cancel(_timer(key))
        self._refuse(key, why)

    def _emit(self, start: StartTool, question: dict[str, Any], seconds: float) -> list[Command]:
        """The commands for a question; they start its timer."""
        if not (commands := self._driven.run.tool_asks(start.key, question)):
            self._refuse(start.key, "the call has ended, or asks another question")
        else:
            late = partial(self._dispatcher.report, partial(self._late, start, seconds))
            self._dispatcher.timers.start(_timer(start.key), seconds, late)
        return commands

    def _late(self, start: StartTool, seconds: float) -> list[Command]:
        """The time for an answer is over."""
        self._driven.run.question_closed(start.key)
        self._driven.outbox.withdraw(start.call_id, "input")
        self.close(start.key, f"no answer came within {seconds:g} seconds")
        return []

    def _refuse(self, key: str, why: str) -> None:
        if (answer := self._open(key)) is not None:
            answer.set_exception(NoAnswerError(why))

    def _open(self, key: str) -> Future[Outcome] | None:
        """Forget a question; returns its answer, to be set, if somebody waits for it."""
        answer = self._answers.pop(key, None)
        return answer if answer is not None and answer.set_running_or_notify_cancel() else None


def _timer(key: str) -> str:
    """The key of the timer of a question; those of tools are numbers."""
    return f"ask {key}"

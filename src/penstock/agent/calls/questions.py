"""Questions that running tools ask: each waits for its answer from whoever reads the run."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

from penstock.errors import ToolError
from penstock.results import Outcome


class NoAnswerError(ToolError):
    """A question of a tool has no answer: nobody reads the run, it took too long, or the call has ended."""


class Question:
    """The open question of a running tool. Any thread can wait for its `answer`."""

    def __init__(self) -> None:
        self.answer: Future[Outcome] = Future()
        self.timer: asyncio.TimerHandle | None = None

    def resolve(self, outcome: Outcome) -> None:
        """The answer has come."""
        if self._close():
            self.answer.set_result(outcome)

    def refuse(self, why: str) -> None:
        """The question is not to be answered any more."""
        if self._close():
            self.answer.set_exception(NoAnswerError(why))

    def _close(self) -> bool:
        """Stop its timer; returns whether somebody waits for the answer."""
        if self.timer is not None:
            self.timer.cancel()
        return not self.answer.done() and self.answer.set_running_or_notify_cancel()


def refused(why: str) -> Future[Outcome]:
    """The answer to a question that cannot be asked."""
    answer: Future[Outcome] = Future()
    answer.set_exception(NoAnswerError(why))
    return answer

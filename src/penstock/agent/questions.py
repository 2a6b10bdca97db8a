"""Questions that running tools ask: each waits for its answer from whoever reads the run."""

from __future__ import annotations

from concurrent.futures import Future

from penstock.errors import ToolError
from penstock.results import Outcome


class NoAnswerError(ToolError):
    """A question of a tool has no answer: nobody reads the run, it took too long, or the call has ended."""


class Questions:
    """The open questions of a run, at most one per execution."""

    def __init__(self) -> None:
        self._answers: dict[str, Future[Outcome]] = {}

    def open(self, key: str) -> Future[Outcome]:
        """The answer to a question of this execution, to wait for."""
        answer = self._answers[key] = Future[Outcome]()
        return answer

    def answer(self, key: str, outcome: Outcome) -> None:
        """The answer has come."""
        if (answer := self._answers.pop(key, None)) is not None and answer.set_running_or_notify_cancel():
            answer.set_result(outcome)

    def refuse(self, key: str, why: str) -> None:
        """There will be no answer; nothing happens if there is no question."""
        if (answer := self._answers.pop(key, None)) is not None and answer.set_running_or_notify_cancel():
            answer.set_exception(NoAnswerError(why))


def unanswered(why: str) -> Future[Outcome]:
    """The answer to a question that cannot be asked."""
    answer = Future[Outcome]()
    answer.set_exception(NoAnswerError(why))
    return answer

"""The owner of a run in another process: what a reader wants of the run goes to it through the store."""

from __future__ import annotations

from typing import Any

from penstock.errors import UsageError
from penstock.log.follower import Follower
from penstock.log.inputs import cancel_input, decision_input, message_input, result_input
from penstock.log.store import Input
from penstock.messages import Message


class RemoteOwner:
    """Leaves what the reader wants in the store, for whichever process owns the run."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    def cancel(self, why: str) -> None:
        self._put(cancel_input(self._follower.run_id, why))

    def decide(self, call_id: str, approved: bool, arguments: dict[str, Any] | None, reason: str) -> None:
        self._answer(decision_input(self._follower.run_id, call_id, approved, arguments, reason))

    def provide(self, call_id: str, value: Any, is_error: bool) -> None:
        self._answer(result_input(self._follower.run_id, call_id, value, is_error))

    def say(self, message: Message) -> None:
        self._put(message_input(self._follower.run_id, message))

    def _answer(self, answer: Input) -> None:
        if not self._put(answer):
            raise UsageError(f"the call {answer.key!r} was answered already, and only the first answer counts")

    def _put(self, input: Input) -> bool:
        """Leave an input; False if there was one like it, as a second cancel. Either way, the owner takes the first."""
        if self._follower.run.state.is_over:
            raise UsageError("the run is over")
        return self._follower.store.put(input)

"""Whether a call may run at all: its arguments, hooks, the approval predicate of its tool, and its provider."""

from __future__ import annotations

from penstock.messages import ToolResult
from penstock.results import Outcome
from penstock.run.calls.execution import Execution, ExecutionTable
from penstock.run.commands import CallReview, Output, ReviewCall
from penstock.run.events import CallReviewed, CallVerdict, ToolEnding
from penstock.run.rules import RunRules
from penstock.tools.policy import ToolPolicy

_ENDINGS: dict[CallVerdict, ToolEnding | None] = {"refuse": "declined", "answer": None, "failed": "failed"}
"""How a call ends that hooks do not let run; an answer may be one of success or of failure."""


def is_refused(review: CallReviewed | None) -> bool:
    """Whether hooks have decided that the call does not run."""
    return review is not None and review.verdict in _ENDINGS


class ReviewRules:
    """Decides for the executions of one step whether hooks, a predicate or a person must be asked about them."""

    def __init__(self, table: ExecutionTable, rules: RunRules) -> None:
        self._table = table
        self._rules = rules

    def needs_approval(self, execution: Execution, policy: ToolPolicy) -> bool | Outcome | None:
        """Whether a person must approve it, or why it cannot run; None if hooks or a predicate must decide first."""
        if execution.needs_approval is not None:
            return execution.needs_approval
        is_asked_for, review = self._is_asked_for(execution, policy), execution.review
        if review is None and self._is_decided_outside(execution, policy, is_asked_for=is_asked_for):
            return None
        if is_asked_for or (review is not None and review.verdict == "ask"):
            checked = policy.check_arguments(execution.arguments)
            execution.needs_approval = None if isinstance(checked, Outcome) else True
            return checked if isinstance(checked, Outcome) else True
        if review is not None:
            execution.needs_approval = False
            return False
        answer = policy.requires_approval(execution.arguments, is_in_text=execution.is_in_text)
        if not isinstance(answer, bool):
            return answer if isinstance(answer, Outcome) else None
        execution.needs_approval = answer
        return answer

    def _is_decided_outside(self, execution: Execution, policy: ToolPolicy, *, is_asked_for: bool) -> bool:
        """Whether hooks or a predicate decide about it, or the sources of its arguments must be found for a person."""
        if self._rules.has_before_call or is_asked_for:
            return self._rules.has_before_call
        asks = bool(policy.needs_approval) or (execution.is_in_text and policy.asks_if_in_text)
        return callable(policy.needs_approval) or (asks and self._rules.finds_sources)

    def _is_asked_for(self, execution: Execution, policy: ToolPolicy) -> bool:
        """Whether the provider itself wants a person to approve the call."""
        return bool(execution.safety_checks) or (execution.kind == "approval" and policy.is_deferred)

    def review(self, execution: Execution) -> list[Output]:
        """Let hooks and predicate decide about a call."""
        self._table.set_state(execution, "checking")
        call = execution.key, execution.call_id, execution.name, execution.arguments
        kinds = execution.is_in_text, execution.origin, execution.is_confirmed, execution.kind
        return [ReviewCall(*call, *kinds)]

    def take(self, execution: Execution, review: CallReview) -> CallReviewed:
        """Hooks and predicate have decided about a call; returns the event for it."""
        call, outcome = (execution.call_id, execution.name), review.outcome
        result = None if outcome is None else ToolResult(*call, outcome.content, outcome.is_error)
        sources = dict(review.sources)
        event = CallReviewed(execution.key, *call, review.verdict, review.arguments, review.why, result, sources)
        execution.take_review(event)
        execution.data = None if outcome is None else outcome.data
        return event

    def end(self, execution: Execution) -> Output:
        """End a call that hooks have refused or answered, or for which they failed."""
        assert execution.review is not None
        result, ending = execution.review.result, _ENDINGS[execution.review.verdict]
        assert result is not None
        return self._table.finish(execution, Outcome(result.content, execution.data, result.is_error), ending)

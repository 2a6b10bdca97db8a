"""When what prepares a call may read its arguments while they are written, and when that is discarded."""

from __future__ import annotations

from penstock.events import ToolCallStart
from penstock.run.calls.execution import Execution
from penstock.run.calls.prepares import Prepares
from penstock.run.calls.step_calls import StepCalls
from penstock.run.commands import CancelTool, GrowTool, Output, PrepareTool
from penstock.run.events import ToolPrepare
from penstock.run.rules import RunRules
from penstock.tools.policy import ToolPolicy


class GrowRules:
    """Decides for the calls of one response whether what prepares them begins before their arguments are complete."""

    def __init__(self, prepares: Prepares, rules: RunRules) -> None:
        self._prepares = prepares
        self._rules = rules

    def began(self, call: ToolCallStart, calls: StepCalls) -> list[Output]:
        """The arguments of a call follow: they may be read, unless hooks see the call first or the order holds it."""
        policy = self._rules.policies.get(call.name)
        if policy is None or not policy.grows or self._rules.has_before_call:
            return []
        key, is_known = calls.next_key(call.block), call.block in calls.table or calls.is_surplus(call.block)
        if is_known or not self._prepares.grow(call.block, key, call.name, self._rules.limits.parallel):
            return []
        return [GrowTool(key, call.id, call.name, call.block)]

    def ended(self, execution: Execution, policy: ToolPolicy) -> list[Output]:
        """The arguments of a call are complete: what has read them belongs to it."""
        return prepare_now(execution, policy) if self._prepares.take_grown(execution) else []

    def stop(self, *, is_over: bool = False) -> list[Output]:
        """Discard what reads arguments that are no longer written, or of calls that are held now."""
        return [CancelTool(key) for key in self._prepares.take_outgrown(is_over=is_over)]


def prepare_now(execution: Execution, policy: ToolPolicy) -> list[Output]:
    """Let a call prepare."""
    call = execution.key, execution.call_id, execution.name
    return [ToolPrepare(*call), PrepareTool(*call, execution.arguments, policy.timeout)]

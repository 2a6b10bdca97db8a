"""The tool calls of one step: what happens to each of them until it has a result."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from penstock.errors import ArgumentsError, UsageError
from penstock.events import ToolCall, ToolCallClosed, ToolCallInvalid
from penstock.jsontext.values import canonical_json
from penstock.messages import ToolResult
from penstock.results import Outcome, error_outcome
from penstock.run.calls.execution import (
    Execution,
    State,
    abandoned_outcome,
    expired_outcome,
    may_have_effect,
    result_so_far,
)
from penstock.run.calls.start_rules import RunRules, StartRules, Starts
from penstock.run.calls.step_calls import StepCalls
from penstock.run.commands import CancelTool, ExpireLater, Output, StartTool
from penstock.run.limits import Tally
from penstock.sentences import STARTED_BEFORE, declined, interrupted, invalid_call, surplus_call, timed_out


class Executions:
    """The calls of one step. Its methods are named for what happened, and return events and commands."""

    def __init__(self, step: int, rules: RunRules, tally: Tally, starts: Starts) -> None:
        self.calls = StepCalls(step, rules)
        self.table = self.calls.table
        self._rules = rules
        self._starts = starts
        self._start = StartRules(self.table, rules, tally, starts)

    # -- what happened ---------------------------------------------------------------------------------------------

    def load(self, executions: list[Execution]) -> None:
        """Continue with what was stored. Calls that were ready have not started."""
        for execution in executions:
            if execution.state in ("checking", "ready", "starting"):
                execution.state = "held"
            elif execution.fingerprint:
                self._starts.began.add(execution.key)
            self.table.add(execution)

    def interrupt(self) -> list[Output]:
        """The process of the tools has ended: repeatable tools start again, the others end here."""
        outputs: list[Output] = []
        for execution in self.table:
            if execution.state != "running" or not execution.is_confirmed:
                continue
            policy = self.calls.policy(execution)
            if policy is not None and policy.may_run_again:
                outputs += self._start.start_again(execution, policy)
            else:
                text = interrupted(may_have_effect=may_have_effect(policy))
                outputs.append(self.table.finish(execution, error_outcome(text), "cancelled"))
        return outputs

    def closed(self, call: ToolCallClosed) -> list[Output]:
        """The arguments of a call have closed; the protocol may still change them."""
        execution, outputs = self.calls.closed(call)
        if execution is None:
            return outputs
        policy = self._rules.policies[execution.name]
        return outputs + self._start.start_closed(execution, policy) + self._start.start_ready()

    def confirmed(self, call: ToolCall) -> list[Output]:
        """A call is whole and will not change any more."""
        is_surplus = self.calls.is_surplus(call.block)
        execution, outputs = self.calls.confirmed(call)
        if execution is None:
            return outputs
        if is_surplus:
            return [*outputs, self._refuse(execution)]
        if execution.state == "finished":
            outputs.append(execution.end)
        else:
            is_early = call.sealed_by not in ("finish", "done")  # else the same frame may end the response badly
            outputs += self._start.start_confirmed(execution, is_early=is_early)
        return outputs + self._start.start_ready()

    def invalid(self, call: ToolCallInvalid) -> list[Output]:
        """A call is cut or malformed: its result says so, unless the caller opted in to repaired arguments."""
        execution, outputs = self.calls.invalid(call)
        if execution is None or execution.fault:
            return outputs + self._start.start_ready()
        text = invalid_call(call)
        if outputs:
            text += f" {STARTED_BEFORE}"
        return [*outputs, self.table.finish(execution, error_outcome(text)), *self._start.start_ready()]

    def release(self) -> list[Output]:
        """The turn ended well: what was held starts, or waits for approval."""
        self._start.is_turn_over = True
        outputs: list[Output] = []
        for execution in self.table:
            if not execution.is_confirmed:
                outputs += self.calls.void(execution.block, "the call was never confirmed")
            elif execution.state == "held":
                outputs += self._start.start_released(execution)
        return outputs + self._start.start_ready()

    def decide(self, call_id: str, approved: bool, arguments: dict[str, Any] | None, reason: str) -> list[Output]:
        """A person decided about a call that waits for approval."""
        execution = self.table.waiting[call_id]
        if not approved:
            return [self.table.finish(execution, error_outcome(declined(reason)), "declined")]
        execution.approve(None if arguments is None else json.loads(_json(arguments)))
        return self._start.queue(execution) + self._start.start_ready()

    def provide(self, call_id: str, outcome: Outcome) -> list[Output]:
        """The result of a deferred call has come."""
        return [self.table.finish(self.table.waiting[call_id], outcome)]

    def expired(self, call_id: str) -> list[Output]:
        """The time for a decision or a result is over; an answered call is ignored."""
        execution = self.table.waiting.get(call_id)
        if execution is None or not execution.can_expire:
            return []
        return [self.table.finish(execution, *expired_outcome(execution))]

    def wait_on(self, left: Mapping[str, float]) -> list[Output]:
        """Calls of a stored run go on waiting: `left` are their remaining seconds, by call id."""
        outputs: list[Output] = []
        for call_id, execution in [*self.table.waiting.items()]:
            if execution.can_expire:
                seconds = left.get(call_id, execution.expires or 0.0)
                outputs += [ExpireLater(call_id, seconds)] if seconds > 0 else self.expired(call_id)
        return outputs

    def checked(self, key: str, answer: bool | Outcome) -> list[Output]:
        """The approval predicate returned, or the arguments failed validation; a voided call is ignored."""
        execution = self.table.find(key)
        if execution is None or execution.state != "checking":
            return []
        return self._start.checked(execution, answer) + self._start.start_ready()

    def reached(self, start: StartTool) -> bool:
        """The reader has come to the start of a tool; returns whether it is still to begin."""
        return self._start.begin(start.key)

    def done(self, key: str, outcome: Outcome) -> list[Output]:
        """An execution ended; a voided call is ignored."""
        self._start.begin(key)  # a driver without a reader never calls `reached`
        execution = self.table.running(key)
        if execution is None:
            return []
        end = self.table.finish(execution, outcome)
        return [*([end] if execution.is_confirmed else []), *self._start.start_ready()]

    def late(self, key: str) -> list[Output]:
        """The timeout of an execution expired."""
        execution = self.table.running(key)
        if execution is None:
            return []
        policy = self._rules.policies[execution.name]
        return self.done(key, error_outcome(timed_out(policy.timeout or 0.0, may_have_effect=policy.may_have_effect)))

    def close_questions(self) -> None:
        """The process of the tools has ended, and their questions with it."""
        for execution in list(self.table.waiting.values()):
            if execution.question is not None:
                self.table.ask(execution, None)

    def void_all(self, why: str) -> list[Output]:
        """The response was withdrawn."""
        return self.calls.withdraw_all(why)

    def abandon(self, why: str, blocks: Collection[int], *, except_started: bool = False) -> list[Output]:
        """The run ends: each open call gets a result with the reason.

        `blocks` are those of the calls in the history. Another call was not read; if it had started, it is discarded.
        With `except_started`, only the response has ended, and confirmed calls that have started continue.
        """
        outputs: list[Output] = []
        for execution in self.table:
            if except_started and execution.block not in blocks:
                outputs += self.calls.void(execution.block, why)
                continue
            if except_started and execution.is_confirmed and execution.state in ("starting", "running", "deferred"):
                continue
            is_open = execution.state != "finished" or not execution.is_confirmed
            if not is_open or (execution.block not in blocks and execution.state not in ("running", "finished")):
                continue
            if execution.state == "running":
                outputs.append(CancelTool(execution.key))
            policy, state = self.calls.policy(execution), self._known_state(execution)
            outcome, ending = abandoned_outcome(execution, state, policy, why)
            end = self.table.finish(execution, outcome, ending if execution.block in blocks else "discarded")
            outputs.append(end)
            execution.is_confirmed = True  # no confirmation will come
        return outputs

    # -- what can be asked -----------------------------------------------------------------------------------------

    def check(self, call_id: str, arguments: Any) -> None:
        """Raise if a waiting call cannot run with these arguments of a person."""
        arguments = json.loads(_json(arguments))
        execution = self.table.waiting.get(call_id)
        if execution is not None and execution.kind == "approval":
            raise UsageError(f"the provider runs the call {call_id!r}: it can be approved or declined, but not changed")
        policy = None if execution is None else self.calls.policy(execution)
        checked = None if policy is None else policy.check_arguments(arguments)
        if isinstance(checked, Outcome):
            raise ArgumentsError(checked.text)

    def had_effect(self, blocks: Collection[int]) -> bool:
        """Whether a tool with side effects ran, or may have run, for a call with one of these blocks."""
        began = [
            execution for execution in self.table if execution.key in self._starts.began and execution.block in blocks
        ]
        policies = [self.calls.policy(execution) for execution in began]
        return any(policy is None or policy.may_have_effect for policy in policies)

    @property
    def results(self) -> dict[int, ToolResult]:
        """The results of all calls by block; an open call has one with the reason."""
        return {
            execution.block: result_so_far(execution, self._known_state(execution), self.calls.policy(execution))
            for execution in [*self.calls.withdrawn.values(), *self.table]
        }

    def _known_state(self, execution: Execution) -> State:
        """The state for the history: a tool that starts again counts as running, since it may have had an effect."""
        is_again = execution.state == "starting" and execution.key in self._starts.began
        return "running" if is_again else execution.state

    def _refuse(self, execution: Execution) -> Output:
        """End a call beyond `Limits.calls_per_answer`."""
        return self.table.finish(execution, error_outcome(surplus_call(self._rules.limits.calls_per_answer or 0)))


def _json(arguments: Any) -> str:
    """Arguments of a person as JSON; a `UsageError` if they have no JSON form."""
    try:
        if isinstance(arguments, dict):
            return canonical_json(arguments)
    except (TypeError, ValueError, RecursionError):
        pass
    raise UsageError(f"the arguments of a call must be a dict that can be written as JSON, not {arguments!r}")

"""The tool calls of one step: what happens to each of them until it has a result."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable
from typing import Any

from penstock.errors import ArgumentsError, UsageError
from penstock.events import ToolCall, ToolCallClosed, ToolCallInvalid
from penstock.jsontext.values import canonical_json, readable_json
from penstock.messages import ToolResult
from penstock.results import Outcome
from penstock.run.commands import CancelTool, Output, StartTool
from penstock.run.execution import Execution, abandoned_outcome, effect_warning, error_outcome, result_so_far
from penstock.run.execution_table import ExecutionTable
from penstock.run.limits import Tally
from penstock.run.start_rules import RunRules, StartRules, Starts
from penstock.tools.policy import ToolPolicy


class Executions:
    """The calls of one step. Its methods are named for what happened, and return events and commands."""

    def __init__(self, step: int, rules: RunRules, tally: Tally, starts: Starts) -> None:
        self.table = ExecutionTable()
        self._step = step
        self._rules = rules
        self._start = StartRules(self.table, rules, tally, starts)
        self._voided = 0
        self._settled: set[int] = set()  # blocks with a confirmed or an invalid call, which nothing changes any more

    # -- what happened ---------------------------------------------------------------------------------------------

    def load(self, executions: list[Execution]) -> None:
        """Continue with what was stored. Calls that were ready have not started."""
        self._start.is_turn_over = True
        for execution in executions:
            if execution.state in ("checking", "ready", "starting"):
                execution.state = "held"
            self.table.add(execution)

    def interrupt(self) -> list[Output]:
        """What was running when the run was stored is not running any more."""
        running = [execution for execution in self.table if execution.state == "running"]
        text = "It was running when the run was interrupted"
        return [
            self.table.finish(
                execution, error_outcome(f"{text}{effect_warning(self._policy(execution))}."), "cancelled"
            )
            for execution in running
        ]

    def closed(self, call: ToolCallClosed) -> list[Output]:
        """The arguments of a call have closed; the protocol may still change them."""
        if call.block in self._settled or self._is_surplus(call.block):
            return []
        policy, early = self._rules.policies.get(call.name), self.table.at(call.block)
        if policy is not None and policy.start != "closed":
            policy = None
        if policy is None and early is None:
            return []
        fingerprint = _fingerprint(call.name, call.arguments)
        if early is not None and early.fingerprint == fingerprint:
            return []
        outputs = self._void(call.block, "the call changed")
        if policy is None:
            return outputs
        execution = self._add(call, call.arguments, fingerprint)
        return outputs + self._start.start_closed(execution, policy) + self._start.start_ready()

    def confirmed(self, call: ToolCall) -> list[Output]:
        """A call is whole and will not change any more."""
        if call.block in self._settled:
            return []
        self._settled.add(call.block)
        if self._is_surplus(call.block):
            return [self._refuse(call)]
        execution, fingerprint = self.table.at(call.block), _fingerprint(call.name, call.arguments)
        outputs: list[Output] = []
        if execution is None or execution.fingerprint != fingerprint:
            outputs += self._void(call.block, "the call changed")
            execution = self._add(call, call.arguments, fingerprint)
        execution.identify(call.id)
        if execution.state == "finished":
            outputs.append(execution.end)
        else:
            is_early = call.sealed_by not in ("finish", "done")  # else the same frame may end the response badly
            outputs += self._start.start_confirmed(execution, is_early=is_early)
        return outputs + self._start.start_ready()

    def invalid(self, call: ToolCallInvalid) -> list[Output]:
        """A call is cut or malformed: its result says so, unless the caller opted in to repaired arguments."""
        if call.block in self._settled:
            return []
        self._settled.add(call.block)
        fault = call.why.replace("_", " ")
        outputs = self._void(call.block, f"the call is {fault}")
        if call.repaired is not None and call.why != "cut" and call.why in self._rules.run_repaired:
            execution = self._add(call, call.repaired, _fingerprint(call.name, call.repaired))
            execution.fault = call.why
            if call.why != "quoted":
                repaired = readable_json(call.repaired)
                execution.note = f"The call is {fault}, and its arguments were repaired to {repaired}."
            execution.identify(call.id)
            return outputs + self._start.start_ready()
        execution = self._add(call, {})
        execution.identify(call.id)
        text = f"Not run: the call is {fault} ({call.message or 'no JSON object'})."
        if outputs:
            text += " What was started before that was known has been discarded."
        return [*outputs, self.table.finish(execution, error_outcome(text)), *self._start.start_ready()]

    def release(self) -> list[Output]:
        """The turn ended well: what was held starts, or waits for approval."""
        self._start.is_turn_over = True
        outputs: list[Output] = []
        for execution in self.table:
            if not execution.is_confirmed:
                outputs += self._void(execution.block, "the call was never confirmed")
            elif execution.state == "held":
                outputs += self._start.start_released(execution)
        return outputs + self._start.start_ready()

    def decide(self, call_id: str, approved: bool, arguments: dict[str, Any] | None, reason: str) -> list[Output]:
        """A person decided about a call that waits for approval."""
        execution = self.table.waiting[call_id]
        if not approved:
            text = f"The user declined this call{f': {reason}' if reason else ''}."
            return [self.table.finish(execution, error_outcome(text), "declined")]
        if arguments is not None and (changed := _json(arguments)) != canonical_json(execution.arguments):
            execution.arguments = json.loads(changed)
            execution.note = f"The user changed the arguments to {readable_json(execution.arguments)}."
        execution.needs_approval = False
        return self._start.queue(execution) + self._start.start_ready()

    def provide(self, call_id: str, outcome: Outcome) -> list[Output]:
        """The result of a deferred call has come."""
        return [self.table.finish(self.table.waiting[call_id], outcome)]

    def checked(self, key: str, answer: bool | Outcome) -> list[Output]:
        """It is known whether a call needs approval; the answer for a call that was voided is ignored."""
        execution = self.table.find(key)
        if execution is None or execution.state != "checking":
            return []
        return self._start.checked(execution, answer) + self._start.start_ready()

    def reached(self, start: StartTool) -> bool:
        """The reader has come to the start of a tool; returns whether it is still to begin."""
        return self._start.begin(start.key)

    def done(self, key: str, outcome: Outcome) -> list[Output]:
        """An execution ended; that of a voided call is ignored."""
        self._start.begin(key)  # for a driver without a reader, which calls `reached` for nothing
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
        text = f"The tool timed out after {policy.timeout:g} seconds{effect_warning(policy)}."
        return self.done(key, error_outcome(text))

    def void_all(self, why: str) -> list[Output]:
        """The response was withdrawn."""
        return [output for execution in self.table for output in self._void(execution.block, why)]

    def complete(self, calls: Iterable[ToolCall | ToolCallInvalid]) -> None:
        """The response has these calls, some of them in part: each gets an execution, and so a result."""
        for call in calls:
            if call.block not in self.table:
                self._add(call, {})

    def abandon(self, why: str, blocks: Collection[int]) -> list[Output]:
        """The run ends: each call without a result gets one that says what happened to it.

        `blocks` are those of the calls in the history. Another call was not read; if it had started, it is discarded.
        """
        outputs: list[Output] = []
        for execution in self.table:
            is_open = execution.state != "finished" or not execution.is_confirmed
            if not is_open or (execution.block not in blocks and execution.state not in ("running", "finished")):
                continue
            if execution.state == "running":
                outputs.append(CancelTool(execution.key))
            outcome, ending = abandoned_outcome(execution, self._policy(execution), why)
            end = self.table.finish(execution, outcome, ending if execution.block in blocks else "discarded")
            outputs.append(end)
            execution.is_confirmed = True  # no confirmation will come
        return outputs

    # -- what can be asked -----------------------------------------------------------------------------------------

    def check(self, call_id: str, arguments: Any) -> None:
        """Raise if a call that waits cannot run with these arguments, which a person gave."""
        arguments = json.loads(_json(arguments))
        execution = self.table.waiting.get(call_id)
        policy = None if execution is None else self._policy(execution)
        checked = None if policy is None else policy.check_arguments(arguments)
        if isinstance(checked, Outcome):
            raise ArgumentsError(checked.text)

    @property
    def had_effect(self) -> bool:
        """Whether a tool with side effects ran, or may have run."""
        started = [execution for execution in self.table if execution.state in ("deferred", "running", "finished")]
        policies = [self._policy(execution) for execution in started]
        return any(policy is not None and policy.may_have_effect for policy in policies)

    @property
    def results(self) -> dict[int, ToolResult]:
        """The result of each call by block, also of those that have not ended."""
        return {execution.block: result_so_far(execution, self._policy(execution)) for execution in self.table}

    def _is_surplus(self, block: int) -> bool:
        """Whether the response has as many calls already as it may have."""
        limit = self._rules.limits.calls_per_answer
        return limit is not None and len(self.table) >= limit and block not in self.table

    def _policy(self, execution: Execution) -> ToolPolicy | None:
        return self._rules.policies.get(execution.name)

    def _refuse(self, call: ToolCall) -> Output:
        """End a call that is one too many."""
        execution = self._add(call, call.arguments)
        execution.identify(call.id)
        limit = self._rules.limits.calls_per_answer
        text = f"Not run: a response may have {limit} calls, and this one has more. Make the others in the next one."
        return self.table.finish(execution, error_outcome(text))

    def _add(
        self, call: ToolCallClosed | ToolCall | ToolCallInvalid, arguments: dict[str, Any], fingerprint: str = ""
    ) -> Execution:
        suffix = f".{self._voided}" if self._voided else ""
        key = f"{self._step}.{call.block}{suffix}"
        execution = Execution(key, call.block, call.id, call.name, arguments, fingerprint)
        execution.is_in_text = not isinstance(call, ToolCallClosed) and call.origin.startswith("text:")
        self.table.add(execution)
        return execution

    def _void(self, block: int, why: str) -> list[Output]:
        """Discard what was started too early for a block; a start that was emitted gets its end."""
        early = self.table.at(block)
        if early is None:
            return []
        self._voided += 1
        self.table.remove(early)
        was_running = early.state == "running"
        is_open = early.state in ("starting", "running", "deferred") or (
            early.state == "finished" and not early.is_confirmed
        )
        early.state = "finished"  # so that it leaves the queue of those that may start
        early.finish(error_outcome(f"Discarded: {why}."), "discarded")
        return [*([CancelTool(early.key)] if was_running else []), *([early.end] if is_open else [])]


def _fingerprint(name: str, arguments: dict[str, Any]) -> str:
    return f"{name} {canonical_json(arguments)}"


def _json(arguments: Any) -> str:
    """The arguments that a person gave as JSON; a `UsageError` if JSON cannot hold them."""
    try:
        if isinstance(arguments, dict):
            return canonical_json(arguments)
    except (TypeError, ValueError, RecursionError):
        pass
    raise UsageError(f"the arguments of a call are a dict that JSON can hold, and not {arguments!r}")

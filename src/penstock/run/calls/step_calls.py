"""The calls of one step as the response brings them: added, confirmed, changed, discarded. Nothing starts here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from penstock.events import ToolCall, ToolCallClosed, ToolCallInvalid
from penstock.jsontext.values import readable_json
from penstock.results import error_outcome
from penstock.run.calls.execution import Execution, ExecutionTable, fingerprint_of
from penstock.run.commands import CancelTool, Output
from penstock.run.rules import RunRules
from penstock.sentences import discarded
from penstock.tools.policy import ToolPolicy


class StepCalls:
    """The calls of one step, in a table with an execution for each.

    `closed`, `confirmed` and `invalid` take what a response says of a call. They return its execution, or None if there
    is nothing to do for it, and the ends of executions that were discarded because the call has changed.
    """

    def __init__(self, step: int, rules: RunRules) -> None:
        self.table = ExecutionTable()
        self.step = step
        self._rules = rules
        self.withdrawn: dict[int, Execution] = {}  # withdrawn executions that had started, by block
        self._voided = 0
        self._settled: set[int] = set()  # blocks whose call is confirmed or invalid, and final

    def policy(self, execution: Execution) -> ToolPolicy | None:
        """The policy of the tool that an execution runs; None if there is no such tool."""
        return self._rules.policy(execution)

    def closed(self, call: ToolCallClosed) -> tuple[Execution | None, list[Output]]:
        """The arguments of a call have closed; the protocol may still change them."""
        if call.block in self._settled or self.is_surplus(call.block):
            return None, []
        policy, early = self._rules.policies.get(call.name), self.table.at(call.block)
        if policy is not None and not policy.has_early_calls:
            policy = None
        if policy is None and early is None:
            return None, []
        fingerprint = fingerprint_of(call.name, call.arguments)
        if early is not None and early.fingerprint == fingerprint:
            return None, []
        outputs = self.void(call.block, "the call changed")
        return (None if policy is None else self.add(call, call.arguments, fingerprint)), outputs

    def confirmed(self, call: ToolCall) -> tuple[Execution | None, list[Output]]:
        """A call is whole, and final."""
        if call.block in self._settled:
            return None, []
        self._settled.add(call.block)
        outputs: list[Output] = []
        if self.is_surplus(call.block):
            execution = self.add(call, call.arguments)
        else:
            early, fingerprint = self.table.at(call.block), fingerprint_of(call.name, call.arguments)
            if early is None or early.fingerprint != fingerprint:
                outputs = self.void(call.block, "the call changed")
                early = self.add(call, call.arguments, fingerprint)
            else:
                _describe(early, call)
            execution = early
        execution.identify(call.id)
        return execution, outputs

    def invalid(self, call: ToolCallInvalid) -> tuple[Execution | None, list[Output]]:
        """A call is cut or malformed; its execution has a `fault` if it may run with repaired arguments."""
        if call.block in self._settled:
            return None, []
        self._settled.add(call.block)
        fault = call.why.replace("_", " ")
        outputs = self.void(call.block, f"the call is {fault}")
        if call.repaired is not None and call.why != "cut" and call.why in self._rules.run_repaired:
            execution = self.add(call, call.repaired, fingerprint_of(call.name, call.repaired))
            execution.fault = call.why
            if call.why != "quoted":
                repaired = readable_json(call.repaired)
                execution.note = f"The call is {fault}, and its arguments were repaired to {repaired}."
        else:
            execution = self.add(call, {})
        execution.identify(call.id)
        return execution, outputs

    def complete(self, calls: Iterable[ToolCall | ToolCallInvalid]) -> None:
        """The response has these calls, some of them in part: each gets an execution, and so a result."""
        for call in calls:
            if call.block in self.withdrawn:
                self.table.add(self.withdrawn.pop(call.block))
            elif call.block not in self.table:
                self.add(call, {})

    def is_surplus(self, block: int) -> bool:
        """Whether the response has as many calls already as it may have."""
        limit = self._rules.limits.calls_per_answer
        return limit is not None and len(self.table) >= limit and block not in self.table

    def add(
        self, call: ToolCallClosed | ToolCall | ToolCallInvalid, arguments: dict[str, Any], fingerprint: str = ""
    ) -> Execution:
        """Add a call that has not started."""
        execution = Execution(self.next_key(call.block), call.block, call.id, call.name, arguments, fingerprint)
        _describe(execution, call)
        self.table.add(execution)
        return execution

    def void(self, block: int, why: str) -> list[Output]:
        """Discard the early execution of a block; an emitted start gets its end."""
        early = self.table.at(block)
        if early is None:
            return []
        self._voided += 1
        self.table.remove(early)
        if early.state == "finished":
            return []
        was_running = early.state in ("running", "revising") or early.has_prepared
        is_open = early.state in ("starting", "running", "deferred", "returned", "revising")
        early.state = "finished"  # removes it from the queue of ready calls
        early.finish(error_outcome(discarded(why)), "discarded")
        self._rules.stop_clock(early)
        return [*([CancelTool(early.key)] if was_running else []), *([early.end] if is_open else [])]

    def run_again(self, execution: Execution, why: str) -> tuple[Execution, list[Output]]:
        """Discard an execution, and add its call again, with another key and as it was before it started."""
        outputs = self.void(execution.block, why)
        again = replace(
            execution,
            key=self.next_key(execution.block),
            state="held",
            result=None,
            ending="done",
            data=None,
            prepare="none",
            preview="",
            problem=None,
            time=None,
        )
        self.table.add(again)
        return again, outputs

    def next_key(self, block: int) -> str:
        """The key that the next execution of a block gets, unless another one is discarded before."""
        suffix = f".{self._voided}" if self._voided else ""
        return f"{self.step}.{block}{suffix}"

    def withdraw_all(self, why: str) -> list[Output]:
        """Discard all calls: their response was withdrawn. Until the reader has read that, they are in the history."""
        outputs: list[Output] = []
        for execution in self.table:
            is_started = execution.state in ("starting", "running", "deferred", "returned", "revising", "finished")
            outputs += self.void(execution.block, why)
            if is_started:
                execution.is_confirmed = True  # no confirmation will come
                self.withdrawn[execution.block] = execution
        return outputs


def _describe(execution: Execution, call: ToolCallClosed | ToolCall | ToolCallInvalid) -> None:
    """Note where the call came from, and what kind of call it is."""
    execution.origin, execution.is_in_text = call.origin, call.origin.startswith("text:")
    if not isinstance(call, ToolCallClosed):
        execution.kind = call.kind
    if isinstance(call, ToolCall):
        execution.safety_checks = call.safety_checks

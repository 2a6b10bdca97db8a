"""When a call may start: its tool's policy, approvals, the limits of the run, and what runs already."""

from __future__ import annotations

from collections import deque
from typing import Any

from msgspec import Struct

from penstock.events import Fault
from penstock.jsontext.values import deep_copy
from penstock.output.output_type import OutputType
from penstock.results import Outcome, error_outcome
from penstock.run.calls.execution import APPROVED, Execution, ExecutionTable, State
from penstock.run.commands import CheckApproval, ExpireLater, Output, StartTool
from penstock.run.events import ToolStart
from penstock.run.limits import Limits, Tally
from penstock.sentences import no_such_tool
from penstock.tools.policy import ToolPolicy

_ELSEWHERE = ToolPolicy(is_deferred=True)


class RunRules(Struct, frozen=True):
    """The rules of a run: the policies of its tools, its limits, and the faults with which a call still runs.

    The policies may change between steps, with the tools. `output` is the type that the final answer must have; None
    for text.
    """

    policies: dict[str, ToolPolicy]
    limits: Limits = Limits()
    run_repaired: frozenset[Fault] = frozenset()
    output: OutputType[Any] | None = None

    def policy(self, execution: Execution) -> ToolPolicy | None:
        """The policy of the tool that an execution runs; None if there is no such tool.

        What a provider asks of the client waits for it, also if no tool was declared for it.
        """
        usual = _ELSEWHERE if execution.kind in ("vendor", "approval") else None
        return self.policies.get(execution.name, usual)


class Starts:
    """The keys of the executions of a run whose start was emitted (`announced`), and of those that `began`."""

    def __init__(self) -> None:
        self.announced: set[str] = set()
        self.began: set[str] = set()


class ReadyQueue:
    """The calls that may start, in order; a tool that is not parallel runs alone."""

    def __init__(self) -> None:
        self._parallel: deque[Execution] = deque()
        self._alone: deque[Execution] = deque()
        self.runs_alone = False  # whether the execution taken last runs alone

    def add(self, execution: Execution, is_parallel: bool) -> None:
        (self._parallel if is_parallel else self._alone).append(execution)

    def take(self, running: int) -> Execution | None:
        """The next execution that may start while this many are running."""
        if running and self.runs_alone:
            return None
        parallel, alone = _head(self._parallel), _head(self._alone)
        if parallel is not None and (alone is None or parallel.block < alone.block):
            self.runs_alone = False
            return self._parallel.popleft()
        if alone is not None and not running:
            self.runs_alone = True
            return self._alone.popleft()
        return None


def _start_command(execution: Execution, timeout: float | None, awaits_reader: bool) -> StartTool:
    return StartTool(execution.key, execution.call_id, execution.name, execution.arguments, timeout, awaits_reader)


def _head(queue: deque[Execution]) -> Execution | None:
    """The first ready execution of a queue."""
    while queue and queue[0].state != "ready":
        queue.popleft()
    return queue[0] if queue else None


class StartRules:
    """Decides for the executions of one step when they start, and starts them."""

    def __init__(self, table: ExecutionTable, rules: RunRules, tally: Tally, starts: Starts) -> None:
        self._table = table
        self._rules = rules
        self._tally = tally
        self._starts = starts
        self._ready = ReadyQueue()
        self._last: set[str] = set()  # keys of calls confirmed by the end of the response, which may end badly
        self.is_turn_over = False

    def start_closed(self, execution: Execution, policy: ToolPolicy) -> list[Output]:
        """Its arguments have closed: it starts speculatively, unless a person must approve it."""
        approval = self._needs_approval(execution, policy)
        if approval is None:
            return self._check(execution)
        return self.queue(execution) if approval is False and self._is_within_limits(execution) else []

    def start_confirmed(self, execution: Execution, *, is_early: bool) -> list[Output]:
        """Its call is confirmed: it starts if its policy says so; one that cannot run at all ends now."""
        if not is_early:
            self._last.add(execution.key)
        if execution.state != "held":
            return []
        policy = self._rules.policy(execution)
        if policy is None:
            return [self._end_unknown(execution)]
        approval = self._needs_approval(execution, policy)
        if approval is None:
            return self._check(execution)
        if isinstance(approval, Outcome):
            return [self._table.finish(execution, approval)]
        may_start = not approval and policy.start != "turn" and is_early and self._is_within_limits(execution)
        return self.queue(execution) if may_start else []

    def start_released(self, execution: Execution) -> list[Output]:
        """The turn ended well: it starts, or waits for approval."""
        policy = self._rules.policy(execution)
        approval = False if policy is None else self._needs_approval(execution, policy)
        if approval is None:
            return self._check(execution)
        if isinstance(approval, Outcome):
            return [self._table.finish(execution, approval)]
        return self._wait(execution, policy, "approval") if policy and approval else self.queue(execution)

    def checked(self, execution: Execution, answer: bool | Outcome) -> list[Output]:
        """Its approval predicate returned, or its arguments failed validation: continue from there."""
        self._table.set_state(execution, "held")
        if isinstance(answer, Outcome):
            return [self._table.finish(execution, answer)] if execution.is_confirmed else []
        execution.needs_approval = answer
        if self.is_turn_over:
            return self.start_released(execution)
        if execution.is_confirmed:
            return self.start_confirmed(execution, is_early=execution.key not in self._last)
        return self.start_closed(execution, self._rules.policies[execution.name])

    def queue(self, execution: Execution) -> list[Output]:
        """It starts when the tools that run allow it; a deferred one is announced, to run elsewhere."""
        policy = self._rules.policy(execution)
        if policy is None:
            return [self._end_unknown(execution)]
        if policy.is_deferred and execution.kind == "approval":
            return [self._table.finish(execution, APPROVED)]  # the provider runs it
        if policy.is_deferred:
            return self._defer(execution, policy)
        self._table.set_state(execution, "ready")
        self._ready.add(execution, policy.is_parallel)
        return []

    def start_ready(self) -> list[Output]:
        """Start the ready executions, within the limit of parallel tools."""
        outputs: list[Output] = []
        limit = self._rules.limits.parallel
        while limit is None or self._table.count("starting", "running") < limit:
            if (execution := self._ready.take(self._table.count("starting", "running"))) is None:
                break
            policy = self._rules.policies[execution.name]
            self._table.set_state(execution, "starting")
            self._starts.announced.add(execution.key)
            self._tally.calls += 1
            call = execution.key, execution.call_id, execution.name
            arguments = deep_copy(execution.arguments)
            outputs.append(ToolStart(*call, arguments, not self.is_turn_over, execution.fault))
            outputs.append(_start_command(execution, policy.timeout, policy.may_have_effect))
            if not policy.may_have_effect:
                self.begin(execution.key)
        return outputs

    def start_again(self, execution: Execution, policy: ToolPolicy) -> list[Output]:
        """Start an interrupted tool again; its start was emitted before.

        An agent continues at once: its own tools and requests wait for the reader.
        """
        self._table.set_state(execution, "starting")
        self._starts.announced.add(execution.key)
        self._ready.runs_alone = not policy.is_parallel
        awaits_reader = policy.may_have_effect and policy.new_run is None
        if not awaits_reader:
            self.begin(execution.key)
        return [_start_command(execution, policy.timeout, awaits_reader)]

    def begin(self, key: str) -> bool:
        """Mark an execution as running; False unless it is starting."""
        execution = self._table.find(key)
        if execution is None or execution.state != "starting":
            return False
        self._table.set_state(execution, "running")
        self._starts.began.add(key)
        return True

    def _defer(self, execution: Execution, policy: ToolPolicy) -> list[Output]:
        arguments = policy.check_arguments(execution.arguments)
        if isinstance(arguments, Outcome):
            return [self._table.finish(execution, arguments)]
        self._starts.began.add(execution.key)  # it runs elsewhere
        self._tally.calls += 1
        return self._wait(execution, policy, "deferred")

    def _wait(self, execution: Execution, policy: ToolPolicy, state: State) -> list[Output]:
        """Let a call wait for a decision, or for its result from elsewhere, as long as its tool allows."""
        self._table.set_state(execution, state)
        execution.expires = policy.expires
        expiry = [] if policy.expires is None else [ExpireLater(execution.call_id, policy.expires)]
        return [execution.request, *expiry]

    def _end_unknown(self, execution: Execution) -> Output:
        policies = self._rules.policies.items()
        known = [name for name, policy in policies if not (policy.is_hosted and policy.is_deferred)]
        return self._table.finish(execution, error_outcome(no_such_tool(execution.name, known)))

    def _needs_approval(self, execution: Execution, policy: ToolPolicy) -> bool | Outcome | None:
        """Whether a person must approve it, or why it cannot run; None if a predicate must be asked."""
        if execution.needs_approval is None:
            if self._is_asked_for(execution, policy):
                checked = policy.check_arguments(execution.arguments)
                execution.needs_approval = None if isinstance(checked, Outcome) else True
                return checked if isinstance(checked, Outcome) else True
            if callable(policy.needs_approval):
                return None
            answer = policy.requires_approval(execution.arguments, is_in_text=execution.is_in_text)
            if not isinstance(answer, bool):
                return answer if isinstance(answer, Outcome) else None
            execution.needs_approval = answer
        return execution.needs_approval

    def _is_asked_for(self, execution: Execution, policy: ToolPolicy) -> bool:
        """Whether the provider itself wants a person to approve the call."""
        return bool(execution.safety_checks) or (execution.kind == "approval" and policy.is_deferred)

    def _check(self, execution: Execution) -> list[Output]:
        self._table.set_state(execution, "checking")
        return [CheckApproval(execution.key, execution.name, execution.arguments, execution.is_in_text)]

    def _is_within_limits(self, execution: Execution) -> bool:
        """Whether it may start before the turn has ended: not if a limit will end the run with this turn."""
        repeats = self._tally.seen.get(execution.fingerprint, 0) + self._table.repeats[execution.fingerprint]
        return not self._tally.over(self._rules.limits, self._table.count("ready") + 1, repeats)

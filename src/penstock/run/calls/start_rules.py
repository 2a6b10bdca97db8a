"""When a call may start: its tool's policy, approvals, the limits of the run, and the order of the calls."""

from __future__ import annotations

from penstock.jsontext.values import deep_copy
from penstock.results import Outcome, error_outcome
from penstock.run.calls.call_order import CallOrder
from penstock.run.calls.execution import APPROVED, Execution, ExecutionTable, State
from penstock.run.calls.grow_rules import GrowRules, prepare_now
from penstock.run.calls.review_rules import ReviewRules, is_refused
from penstock.run.commands import CallReview, ExpireLater, Output, StartTool
from penstock.run.events import ToolStart
from penstock.run.limits import Tally
from penstock.run.rules import RunRules, Starts
from penstock.sentences import no_such_tool
from penstock.tools.policy import ToolPolicy


class StartRules:
    """Decides for the executions of one step when they start, and starts them."""

    def __init__(self, table: ExecutionTable, order: CallOrder, rules: RunRules, tally: Tally, starts: Starts) -> None:
        self._table = table
        self._order = order
        self._rules = rules
        self._tally = tally
        self._starts = starts
        self._reviews = ReviewRules(table, rules)
        self.growing = GrowRules(order.prepares, rules)
        self._last: set[str] = set()  # keys of calls confirmed by the end of the response, which may end badly
        self.is_turn_over = False
        self.is_resumed = False  # calls prepare when they start

    def start_closed(self, execution: Execution, policy: ToolPolicy) -> list[Output]:
        """Its arguments have closed: it starts speculatively, unless a person must approve it."""
        if is_refused(execution.review):
            return []  # its result is not needed before it is confirmed
        grown = self.growing.ended(execution, policy)
        approval = self._reviews.needs_approval(execution, policy)
        if approval is None:
            return [*grown, *self._reviews.review(execution)]
        if policy.prepares and not isinstance(approval, Outcome):
            self._order.prepares.add(execution)
        may_start = policy.start == "closed" and approval is False and self._is_within_limits(execution)
        return [*grown, *(self.queue(execution) if may_start else [])]

    def start_confirmed(self, execution: Execution, *, is_early: bool) -> list[Output]:
        """Its call is confirmed: it starts if its policy says so; one that cannot run at all ends now."""
        if not is_early:
            self._last.add(execution.key)
        if execution.state != "held":
            return []
        policy = self._rules.policy(execution)
        if policy is None:
            return [self._end_unknown(execution)]
        if is_refused(execution.review):
            return [self._reviews.end(execution)]
        grown = self.growing.ended(execution, policy)
        approval = self._reviews.needs_approval(execution, policy)
        if approval is None:
            return [*grown, *self._reviews.review(execution)]
        if isinstance(approval, Outcome):
            return [*grown, self._table.finish(execution, approval)]
        if policy.prepares:
            self._order.prepares.add(execution)
        may_start = not approval and policy.start != "turn" and is_early and self._is_within_limits(execution)
        return [*grown, *(self.queue(execution) if may_start else [])]

    def start_released(self, execution: Execution) -> list[Output]:
        """The turn ended well: it starts, or waits for approval."""
        policy = self._rules.policy(execution)
        if is_refused(execution.review):
            return [self._reviews.end(execution)]
        approval = False if policy is None else self._reviews.needs_approval(execution, policy)
        if approval is None:
            return self._reviews.review(execution)
        if isinstance(approval, Outcome):
            return [self._table.finish(execution, approval)]
        if policy is None or not approval:
            return self.queue(execution)
        if not policy.prepares or self.is_resumed:
            return self._wait(execution, policy, "approval")
        self._order.prepares.add(execution)
        self._table.set_state(execution, "preparing")
        return []

    def prepare_next(self) -> list[Output]:
        """Let the first call prepare that may now, if there is one."""
        execution = self._order.prepares.take(self._rules.limits.parallel)
        policy = None if execution is None else self._rules.policy(execution)
        if execution is None or policy is None:
            return []
        return prepare_now(execution, policy)

    def ask_prepared(self) -> list[Output]:
        """Ask about the calls that have prepared, and about those that cannot before the calls before them end."""
        if not self._table.count("preparing"):
            return []
        asking = [each for each in self._table if each.state == "preparing" and each.prepare != "running"]
        waits = [self._wait(each, policy, "approval") for each in asking if (policy := self._rules.policy(each))]
        return [output for outputs in waits for output in outputs]

    def reviewed(self, execution: Execution, review: CallReview | Outcome) -> list[Output]:
        """Hooks and predicate have decided about it, or its arguments failed validation: continue from there."""
        self._table.set_state(execution, "held")
        if isinstance(review, Outcome):
            return [self._table.finish(execution, review)] if execution.is_confirmed else []
        event = self._reviews.take(execution, review)
        if self.is_turn_over:
            return [event, *self.start_released(execution)]
        if execution.is_confirmed:
            return [event, *self.start_confirmed(execution, is_early=execution.key not in self._last)]
        return [event, *self.start_closed(execution, self._rules.policies[execution.name])]

    def queue(self, execution: Execution) -> list[Output]:
        """It starts when the calls before it and the limits allow it."""
        policy = self._rules.policy(execution)
        if policy is None:
            return [self._end_unknown(execution)]
        if policy.is_deferred and execution.kind == "approval":
            return [self._table.finish(execution, APPROVED)]  # the provider runs it
        self._table.set_state(execution, "ready")
        self._order.ready(execution)
        return []

    def start_next(self) -> list[Output]:
        """Start the first call that may start now, if there is one."""
        execution = self._order.take(has_slot=self._has_slot)
        if execution is None:
            return []
        policy = self._rules.policy(execution)
        assert policy is not None
        return self._defer(execution, policy) if policy.is_deferred else self._start(execution, policy)

    @property
    def _has_slot(self) -> bool:
        limit = self._rules.limits.parallel
        return limit is None or self._table.count("starting", "running") < limit

    def _start(self, execution: Execution, policy: ToolPolicy) -> list[Output]:
        """Start a tool. The start of one that was running when its process ended was emitted then.

        Such an agent continues at once: its own tools and requests wait for the reader.
        """
        is_again = execution.key in self._starts.began
        self._table.set_state(execution, "starting")
        self._order.prepares.ended(execution)
        execution.prepare = "used"
        self._starts.announced.add(execution.key)
        awaits_reader = policy.may_have_effect and not (is_again and policy.new_run is not None)
        if not awaits_reader:
            self.begin(execution.key)
        call = execution.key, execution.call_id, execution.name
        command = StartTool(*call, execution.arguments, policy.timeout, awaits_reader)
        if is_again:
            return [command]
        self._tally.calls += 1
        order = self._order.ordering(execution)
        arguments = deep_copy(execution.arguments)
        return [ToolStart(*call, arguments, not self.is_turn_over, execution.fault, order), command]

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
        execution.expires, execution.has_waited = policy.expires, True
        if state == "approval":
            execution.shown = policy.shown_arguments(execution.arguments)
        expiry = [] if policy.expires is None else [ExpireLater(execution.call_id, policy.expires)]
        return [execution.request, *expiry]

    def _end_unknown(self, execution: Execution) -> Output:
        policies = self._rules.policies.items()
        known = [name for name, policy in policies if not (policy.is_hosted and policy.is_deferred)]
        return self._table.finish(execution, error_outcome(no_such_tool(execution.name, known)))

    def _is_within_limits(self, execution: Execution) -> bool:
        """Whether it may start before the turn has ended: not if a limit will end the run with this turn."""
        repeats = self._tally.seen.get(execution.fingerprint, 0) + self._table.repeats[execution.fingerprint]
        return not self._tally.over(self._rules.limits, self._table.count("ready") + 1, repeats)

"""The tool calls of one step: what happens to each of them until it has a result."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from penstock.errors import ArgumentsError, UsageError
from penstock.events import Error, StreamChunk, ToolCall, ToolCallClosed, ToolCallInvalid, ToolCallStart
from penstock.messages import ToolResult
from penstock.results import Outcome, error_outcome
from penstock.run.calls.call_order import CallOrder
from penstock.run.calls.execution import (
    Execution,
    State,
    ToolTime,
    abandoned_outcome,
    expired_outcome,
    may_have_effect,
    result_so_far,
)
from penstock.run.calls.start_rules import StartRules
from penstock.run.calls.step_calls import StepCalls
from penstock.run.commands import CallReview, CancelTool, ExpireLater, Output, ReviseResult, StartTool
from penstock.run.input_checks import own_arguments
from penstock.run.limits import Tally
from penstock.run.rules import RunRules, Starts
from penstock.sentences import (
    HELD_BY_EARLIER,
    STARTED_BEFORE,
    declined,
    interrupted,
    invalid_call,
    skipped,
    surplus_call,
    timed_out,
)


class Executions:
    """The calls of one step. Its methods are named for what happened, and return events and commands.

    Anything that happens to one call may let others start, so every input ends with `proceed`.
    """

    def __init__(self, step: int, rules: RunRules, tally: Tally, starts: Starts) -> None:
        self.calls = StepCalls(step, rules)
        self.table = self.calls.table
        self._rules = rules
        self._starts = starts
        self.order = CallOrder(self.table, rules)
        self._start = StartRules(self.table, self.order, rules, tally, starts)
        self._errors: dict[str, Error] = {}  # exceptions that end the run when their calls are settled, by key
        self.failure: Error | None = None  # the one that ends it now: nothing starts any more

    # -- what happened ---------------------------------------------------------------------------------------------

    def load(self, executions: list[Execution]) -> None:
        """Continue with what was stored. Calls that were ready have not started."""
        for execution in executions:
            execution.has_waited = execution.state in ("approval", "deferred")
            if execution.state in ("checking", "preparing", "ready", "starting"):
                execution.state = "held"
            elif execution.state == "finished" and not execution.is_confirmed:
                execution.state = "returned"
            elif execution.fingerprint and execution.state != "approval":
                self._starts.began.add(execution.key)
            self.table.add(execution)

    def interrupt(self) -> list[Output]:
        """The process of the tools has ended: repeatable tools start again, the others end here."""
        self._start.is_resumed = True
        outputs: list[Output] = []
        for execution in self.table:
            self.order.place(execution.block, execution.name)
            if execution.state == "finished":
                self.table.ended.append(execution)
            if execution.state == "revising":
                outputs.append(self._revise(execution))
            if execution.state != "running" or not execution.is_confirmed:
                continue
            policy = self.calls.policy(execution)
            if policy is not None and policy.may_run_again:
                outputs += self._start.queue(execution)
            else:
                text = interrupted(may_have_effect=may_have_effect(policy))
                outputs.append(self.table.finish(execution, error_outcome(text), "cancelled"))
        return outputs

    def feed(self, chunk: StreamChunk) -> list[Output]:
        """The response brought this; of several answers, the calls of the first one run."""
        match chunk:
            case ToolCallStart(choice=0):
                return self.began(chunk)
            case ToolCallClosed(choice=0):
                return self.closed(chunk)
            case ToolCall(choice=0):
                return self.confirmed(chunk)
            case ToolCallInvalid(choice=0):
                return self.invalid(chunk)
            case _:
                return []

    def began(self, call: ToolCallStart) -> list[Output]:
        """The name of a call is known; its arguments follow."""
        placed = self._place(call.block, call.name)
        return [*placed, *self._start.growing.began(call, self.calls), *self.proceed()]

    def closed(self, call: ToolCallClosed) -> list[Output]:
        """The arguments of a call have closed; the protocol may still change them."""
        execution, outputs = self.calls.closed(call)
        outputs += self._place(call.block, call.name)
        if execution is not None:
            outputs += self._start.start_closed(execution, self._rules.policies[execution.name])
        return [*outputs, *self.proceed()]

    def confirmed(self, call: ToolCall) -> list[Output]:
        """A call is whole and will not change any more."""
        is_surplus = self.calls.is_surplus(call.block)
        execution, outputs = self.calls.confirmed(call)
        if execution is None:
            return outputs
        if is_surplus:
            outputs.append(self._refuse(execution))
        outputs += self._place(call.block, call.name)
        if not is_surplus:
            is_early = call.sealed_by not in ("finish", "done")  # else the same frame may end the response badly
            outputs += self._start.start_confirmed(execution, is_early=is_early)
        return [*outputs, *self.proceed()]

    def invalid(self, call: ToolCallInvalid) -> list[Output]:
        """A call is cut or malformed: its result says so, unless the caller opted in to repaired arguments."""
        execution, outputs = self.calls.invalid(call)
        if execution is not None and not execution.fault:
            text = f"{invalid_call(call)} {STARTED_BEFORE}" if outputs else invalid_call(call)
            outputs.append(self.table.finish(execution, error_outcome(text)))
        return [*outputs, *self._place(call.block, call.name), *self.proceed()]

    def release(self) -> list[Output]:
        """The turn ended well: what was held starts, or waits for approval."""
        self._start.is_turn_over = True
        outputs: list[Output] = []
        for execution in self.table:
            if not execution.is_confirmed:
                outputs += self.calls.void(execution.block, "the call was never confirmed")
            elif execution.state == "held":
                outputs += self._start.start_released(execution)
        self.order.close()
        return [*outputs, *self.proceed()]

    def decide(self, call_id: str, approved: bool, arguments: dict[str, Any] | None, reason: str) -> list[Output]:
        """A person decided about a call that waits for approval."""
        execution = self.table.waiting[call_id]
        if not approved:
            return [self.table.finish(execution, error_outcome(declined(reason)), "declined"), *self.proceed()]
        before = execution.arguments
        execution.approve(None if arguments is None else own_arguments(arguments))
        discarded = [] if execution.arguments is before else self._discard_prepared(execution)
        return [*discarded, *self._start.queue(execution), *self.proceed()]

    def provide(self, call_id: str, outcome: Outcome) -> list[Output]:
        """The result of a deferred call has come."""
        execution = self.table.waiting[call_id]
        if not self._rules.has_after_call:
            return [self.table.finish(execution, outcome), *self.proceed()]
        self._keep(execution, outcome)
        return self.proceed()

    def expired(self, call_id: str) -> list[Output]:
        """The time for a decision or a result is over; an answered call is ignored."""
        execution = self.table.waiting.get(call_id)
        if execution is None or not execution.can_expire:
            return []
        execution.has_expired = True
        return [self.table.finish(execution, *expired_outcome(execution)), *self.proceed()]

    def wait_on(self, left: Mapping[str, float]) -> list[Output]:
        """Calls of a stored run go on waiting: `left` are their remaining seconds, by call id."""
        outputs: list[Output] = []
        for call_id, execution in [*self.table.waiting.items()]:
            if execution.can_expire:
                seconds = left.get(call_id, execution.expires or 0.0)
                outputs += [ExpireLater(call_id, seconds)] if seconds > 0 else self.expired(call_id)
        return outputs

    def reviewed(self, key: str, review: CallReview | Outcome) -> list[Output]:
        """Hooks and predicate have decided, or the arguments failed validation; a voided call is ignored."""
        execution = self.table.find(key)
        if execution is None or execution.state != "checking":
            return []
        return [*self._start.reviewed(execution, review), *self.proceed()]

    def prepared(self, key: str, preview: str, problem: Outcome | None) -> list[Output]:
        """The `prepare` function of a call has ended, perhaps with a problem; a discarded one is ignored."""
        execution = self.table.find(key)
        if execution is None or execution.prepare != "running":
            return []
        self.order.prepares.ended(execution)
        execution.prepare, execution.preview, execution.problem = "failed" if problem else "done", preview, problem
        if problem is not None:
            self.order.prepares.failed(execution)
        return self.proceed()

    def reached(self, start: StartTool) -> bool:
        """The reader has come to the start of a tool; returns whether it is still to begin."""
        return self._start.begin(start.key)

    def done(
        self, key: str, outcome: Outcome, time: ToolTime | None = None, error: Error | None = None
    ) -> list[Output]:
        """An execution ended, perhaps with an error that its tool raised; a voided call is ignored."""
        if error is not None and error.origin == "tool" and self._rules.raises:
            self._errors[key] = error
        return self.proceed() if self.returned(key, outcome, time) else []

    def returned(self, key: str, outcome: Outcome, time: ToolTime | None) -> bool:
        """Keep the outcome of an execution that ended; nothing follows from it yet. False for a voided call."""
        self._start.begin(key)  # a driver without a reader never calls `reached`
        if (execution := self.table.running(key)) is not None:
            self._keep(execution, outcome, time)
        return execution is not None

    def _keep(self, execution: Execution, outcome: Outcome, time: ToolTime | None = None) -> None:
        execution.keep(outcome, time, is_final=not self._rules.has_after_call)
        self.table.set_state(execution, "returned")
        self.order.returned(execution)

    def revised(self, key: str, outcome: Outcome | None, *, is_withheld: bool = False) -> list[Output]:
        """Hooks have seen the result of a call, and may have another one; a voided call is ignored."""
        execution = self.table.find(key)
        if execution is None or execution.state != "revising" or (known := execution.result) is None:
            return []
        final = Outcome(known.content, execution.data, known.is_error, known.state) if outcome is None else outcome
        execution.is_withheld = is_withheld
        return [self.table.finish(execution, final), *self.proceed()]

    def is_revising(self, key: str) -> bool:
        """Whether hooks are to see the result of this call."""
        execution = self.table.find(key)
        return execution is not None and execution.state == "revising"

    def late(self, key: str, time: ToolTime | None = None) -> list[Output]:
        """The timeout of an execution expired."""
        execution = self.table.running(key)
        if execution is None:
            return []
        execution.has_expired = True
        policy = self._rules.policies[execution.name]
        outcome = error_outcome(timed_out(policy.timeout or 0.0, may_have_effect=policy.may_have_effect))
        return self.done(key, outcome, time)

    def close_questions(self) -> None:
        """The process of the tools has ended, and their questions with it."""
        for execution in list(self.table.waiting.values()):
            if execution.question is not None:
                self.table.ask(execution, None)

    def void_all(self, why: str) -> list[Output]:
        """The response was withdrawn."""
        outputs = [*self._start.growing.stop(is_over=True), *self.calls.withdraw_all(why)]
        self.order.close()
        return outputs

    def abandon(self, why: str, blocks: Collection[int], *, except_started: bool = False) -> list[Output]:
        """The run ends: each open call gets a result with the reason.

        `blocks` are those of the calls in the history. Another call was not read; if it had started, it is discarded.
        With `except_started`, only the response has ended, and confirmed calls that have started continue.
        """
        outputs = self._start.growing.stop(is_over=True)
        for execution in self.table:
            if except_started and execution.block not in blocks:
                outputs += self.calls.void(execution.block, why)
                continue
            policy, state = self.calls.policy(execution), self._known_state(execution)
            if except_started and execution.is_confirmed and state in ("starting", "running", "deferred", "revising"):
                continue
            has_run = state in ("running", "returned", "revising")
            if state == "finished" or (execution.block not in blocks and not has_run):
                continue
            if state == "returned" and execution.is_confirmed and execution.block in blocks:
                if not self._rules.has_after_call:
                    outputs.append(self.table.end(execution))
                    continue
                state = "revising"
            if execution.state in ("running", "revising") or execution.has_prepared:
                outputs.append(CancelTool(execution.key))
            self._rules.stop_clock(execution)
            outcome, ending = abandoned_outcome(execution, state, policy, why)
            end = self.table.finish(execution, outcome, ending if execution.block in blocks else "discarded")
            outputs.append(end)
            execution.is_confirmed = True  # no confirmation will come
        return outputs

    # -- what can be asked -----------------------------------------------------------------------------------------

    def check(self, call_id: str, arguments: Any) -> None:
        """Raise if a waiting call cannot run with these arguments of a person."""
        arguments = own_arguments(arguments)
        execution = self.table.waiting.get(call_id)
        if execution is not None and execution.kind == "approval":
            raise UsageError(f"the provider runs the call {call_id!r}: it can be approved or declined, but not changed")
        policy = None if execution is None else self.calls.policy(execution)
        if policy is not None and isinstance(checked := policy.check_arguments(arguments), Outcome):
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
        executions = [*self.calls.withdrawn.values(), *self.table]
        return {execution.block: self._result_so_far(execution) for execution in executions}

    def _result_so_far(self, execution: Execution) -> ToolResult:
        state = self._known_state(execution)
        holder = self.order.holder(execution.block) if state == "ready" else None
        before = None if holder is None else self.table.at(holder)
        return result_so_far(execution, state, self.calls.policy(execution), before)

    # -- what follows ----------------------------------------------------------------------------------------------

    def proceed(self) -> list[Output]:
        """What follows for the other calls: some are skipped, some ends are emitted, and some calls start."""
        order, ended = self.order, self.table.ended
        outputs = self._start.growing.stop() if order.prepares.is_used else []
        while ended or not order.is_idle:
            for execution in ended:
                order.ended(execution)
                outputs += self._discard_prepared(execution)
            ended.clear()
            following: list[Output] = [self._skip(*pair) for pair in order.take_stopped()]
            for execution in order.prepares.take_failed(order.is_settled):
                following += [self.table.finish(execution, execution.problem)] if execution.problem else []
            settled = order.take_settled()
            if failed := [self._errors[each.key] for each in settled if each.key in self._errors]:
                self.failure = failed[0]
                return outputs + following
            following += [output for execution in settled for output in self._settle(execution)]
            following = following or self._start.start_next()  # an end may stop what would start
            following = following or self._start.prepare_next() or self._start.ask_prepared()
            if not following:
                break
            outputs += following
        return outputs

    def _settle(self, execution: Execution) -> list[Output]:
        """A tool has returned, and nothing can discard its call any more: it ends, or hooks see its result first."""
        if not self._rules.has_after_call or execution.result is None:
            return [self.table.end(execution)]
        self.table.set_state(execution, "revising")
        return [execution.returned_event, self._revise(execution)]

    def _revise(self, execution: Execution) -> Output:
        assert execution.result is not None
        call = execution.key, execution.name, execution.arguments, execution.result, execution.data, execution.origin
        return ReviseResult(*call, awaits_reader=may_have_effect(self.calls.policy(execution)))

    def _place(self, block: int, name: str) -> list[Output]:
        """A call appeared, or its name changed: started reads that it holds are discarded, and run again after it.

        So is what prepares the calls that it holds.
        """
        outputs: list[Output] = []
        for early in self.order.place(block, name):
            if early.has_prepared:
                outputs += self._discard_prepared(early)
                self.order.prepares.add(early)
                continue
            again, discarded = self.calls.run_again(early, HELD_BY_EARLIER)
            outputs += [*discarded, *self._start.queue(again)]
        return outputs

    def _discard_prepared(self, execution: Execution) -> list[Output]:
        """Discard what prepares a call, or has, if its tool has not used it."""
        if not execution.has_prepared:
            return []
        self.order.prepares.discard(execution)
        return [CancelTool(execution.key)]

    def _skip(self, execution: Execution, stop: Execution) -> Output:
        """End a call that does not run because a call before it was not successful."""
        return self.table.finish(execution, error_outcome(skipped(stop.name, stop.call_id, stop.failure)), "skipped")

    def _known_state(self, execution: Execution) -> State:
        """The state for the history: a tool that starts again counts as running, since it may have had an effect."""
        is_again = execution.state in ("ready", "starting") and execution.key in self._starts.began
        return "running" if is_again else execution.state

    def _refuse(self, execution: Execution) -> Output:
        """End a call beyond `Limits.calls_per_answer`."""
        return self.table.finish(execution, error_outcome(surplus_call(self._rules.limits.calls_per_answer or 0)))

"""The steps of a run: how requests to the model begin, how steps end, and how the run ends.

Everything here returns the events and commands that follow, in their order.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.errors import OutputError
from penstock.events import FinishReason, Retry
from penstock.messages import user
from penstock.run.commands import Output, PrepareStep, StopAsking
from penstock.run.events import (
    ApprovalRequest,
    Done,
    EndReason,
    HistoryReplaced,
    OutputInvalid,
    StepEnd,
    StepStart,
    ToolResults,
)
from penstock.run.inner_runs import InnerRuns
from penstock.run.state import RunState, calls_of
from penstock.run.step_changes import StepChanges, StepDecision
from penstock.turn import Turn

ENDS: dict[str, tuple[EndReason, str]] = {
    "content_filter": ("refused", "the model refused, or a filter ended its response"),
    "cut": ("cut", "the response was cut off before its end"),
    "error": ("error", "the provider reported an error"),
}
"""Finish reasons of a response after which no tool may start, and why."""

_INVALID = "The output is not valid. Give the whole output again, corrected. What is wrong:"


class Steps:
    """The steps of one run: changes its state, and stops the inner runs of cancelled calls."""

    def __init__(self, state: RunState, inner: InnerRuns) -> None:
        self.state = state
        self._inner = inner

    # -- requests --------------------------------------------------------------------------------------------------

    def ask(self) -> list[Output]:
        """Begin the next step, or have the hooks decide on it first."""
        state = self.state
        if state.has_hooks:
            return [PrepareStep(state.step + 1, tuple(state.messages), state.changes.tools or ())]
        return self.start(StepDecision())

    def start(self, decision: StepDecision) -> list[Output]:
        """Begin the next step as the hooks decided, or end the run before it."""
        state = self.state
        events: list[Output] = []
        if decision.history:
            state.replace_history(decision.history)
            events.append(HistoryReplaced(decision.history))
        if decision.stop is not None:
            state.tally.spent(decision.changes.usage)
            return [*events, *self.end("stopped", decision.stop)]
        request = state.request_with(decision.changes, 0)
        if over := self._inner.over_before(request, decision.changes.usage):
            state.tally.spent(decision.changes.usage)
            return [*events, *self.end("limit", over)]
        self.begin(decision.changes)
        return [*events, StepStart(state.step, decision.changes), request]

    def begin(self, changes: StepChanges) -> None:
        """The next step begins."""
        self._inner.forget(self.state.step)
        self.state.begin_step(changes)

    def fall_back(self, why: str) -> list[Output]:
        """Ask the next of the step's models; nothing if there is none, or a call had side effects."""
        state = self.state
        left = (state.changes.fallbacks or ())[state.tally.attempt :]
        if state.phase != "answer" or not left:
            return []
        state.response.fold(0)
        return self._ask_once_more(why, left[0]) or []

    def ask_again(self) -> list[Output]:
        """A response was interrupted with its process: ask for it again, or keep it if calls in it had side effects."""
        state = self.state
        if (again := self._ask_once_more("the run was interrupted")) is not None:
            return again
        turn = state.take_turn(state.response.build())
        state.phase = "tools"
        restarted = [*state.executions.interrupt(), *state.executions.wait_on(state.seconds_left)]
        ends = self._inner.end_stopped(state.abandon_calls("the run was interrupted", except_started=True))
        return self.after([StepEnd(state.step, "cut", turn.usage), *restarted, *ends, *state.executions.proceed()])

    def _ask_once_more(self, why: str, model: str = "") -> list[Output] | None:
        """Withdraw the response so far and ask again, unless that costs too much; None if a call had side effects."""
        state = self.state
        if state.executions.had_effect({call.block for call in calls_of(state.response.build().parts)}):
            return None
        outputs: list[Output] = []
        if not state.response.is_empty or state.executions.table or model:
            retry = Retry(why, model)
            state.numbering.next_response()
            state.response.unfolded.append(retry)
            outputs = [retry, *self._inner.end_stopped(state.withdraw(retry))]
        if not (over := self._inner.over_before(state.request)):
            return [*outputs, state.request]
        state.response.fold(0)  # what was withdrawn is not in the history
        return [*outputs, *self.stop("limit", over)]

    # -- the end of a step -----------------------------------------------------------------------------------------

    def end_response(self, turn: Turn) -> list[Output]:
        """The response of the step is over: its tools start, the run ends, or another model is asked."""
        state, executions = self.state, self.state.executions
        end = "content_filter" if turn.refusal else turn.finish_reason
        if end in ("error", "cut") and (again := self.fall_back(turn.error.message if turn.error else ENDS[end][1])):
            return again
        is_last = end not in ENDS and not calls_of(turn.parts) and not state.new_messages
        problem = state.output_problem(turn) if is_last else None  # first: if it raises, the response is not over
        outputs: list[Output] = []
        for call in turn.invalid_calls:
            if (execution := executions.table.at(call.block)) is None or not execution.is_confirmed:
                outputs += executions.invalid(call)
        state.take_turn(turn)
        outputs.append(StepEnd(state.step, turn.finish_reason or "cut", turn.usage))
        if end in ENDS:
            message = turn.error.message if turn.error else turn.finish_message
            return outputs + self.end(ENDS[end][0], message or ENDS[end][1])
        if is_last:
            return outputs + self._end_without_calls(turn, problem)
        repeats = max((state.tally.seen.get(fingerprint, 0) for fingerprint in executions.table.repeats), default=0)
        waiting = executions.table.count("held", "checking", "ready")
        if over := state.tally.over(state.rules.limits, waiting, repeats):
            return outputs + self.end("limit", over)
        state.phase = "tools"
        return outputs + self.after(executions.release())

    def after(self, outputs: list[Output]) -> list[Output]:
        """Continue after something happened to a tool: with the next step, if all tools of this one have ended."""
        state = self.state
        outputs = self._inner.end_stopped(outputs)
        if state.executions.failure is not None:
            error = state.fail(state.executions.failure)
            return [*outputs, error, *self.stop("error", error.message, "error")]
        if state.phase != "tools" or not state.executions.table.is_finished:
            return outputs
        work = "" if state.new_messages else state.response.build().other_work
        outputs += self.close()
        over = state.tally.failing(state.rules.policies) or state.tally.over(state.rules.limits, 0, 0)
        if over:
            return outputs + self.end("limit", over)
        return outputs + (self.end("paused", _waits_for_client(work)) if work else self.ask())

    def close(self) -> list[Output]:
        """All calls of the step have ended: add their results to the history, and what was said meanwhile."""
        state = self.state
        state.tally.tried(state.executions.table, state.rules.policies)
        outputs = self.settle("")
        state.close_step()
        return outputs

    def settle(self, why: str) -> list[Output]:
        """Give every call of the last response a result, and add them to the history, all in one message."""
        outputs = self._inner.end_stopped(self.state.abandon_calls(why))
        return [*outputs, *map(ToolResults, self.state.add_results())]

    # -- the end of the run ----------------------------------------------------------------------------------------

    def end(self, reason: EndReason, why: str) -> list[Output]:
        """End the run between two steps."""
        outputs = self.settle(why)
        self.state.finish(reason, why)
        return [*outputs, self.done(reason, why)]

    def stop(self, reason: EndReason, why: str, finish: FinishReason = "cut") -> list[Output]:
        """End the run at once, in any phase."""
        state = self.state
        if state.phase == "over":
            return []
        outputs: list[Output] = [StopAsking()] if state.is_preparing else []
        if state.phase == "answer":
            turn = state.take_turn(state.response.build())
            outputs = [StopAsking(), StepEnd(state.step, finish, turn.usage)]
        return outputs + self.end(reason, why)

    def _end_without_calls(self, turn: Turn, problem: OutputError | None) -> list[Output]:
        """End the run after a response without calls; the model is asked again if the output is not valid."""
        if turn.client_work:
            return self.end("paused", _waits_for_client(turn.client_work))
        if turn.finish_reason == "length":
            return self.end("length", "the response reached its limit of tokens")
        return self.end("answered", "") if problem is None else self._reject(problem)

    def _reject(self, error: OutputError) -> list[Output]:
        """The output is not valid: the model is asked again, with what is wrong with it, a limited number of times."""
        state = self.state
        state.tally.invalid_outputs += 1
        if over := state.tally.rejected(state.rules.limits):
            return self.end("limit", f"{over}: {error.problem}")
        if over := state.tally.over(state.rules.limits, 0, 0):
            return self.end("limit", over)
        rejection = OutputInvalid(error.problem, user(f"{_INVALID}\n{error.problem}"))
        state.new_messages.append(rejection.message)
        return [rejection, *self.close(), *self.ask()]

    def done(self, reason: EndReason, why: str) -> Done:
        """The event for the end of the run, or for a pause."""
        return Done(reason, self.state.output, tuple(self.state.history), self._inner.total_usage, why)


def pause_reason(waiting: Iterable[ApprovalRequest]) -> str:
    """The reason of a pause in which these calls wait."""
    kinds = {request.kind for request in waiting}
    return "a call waits for approval" if "approval" in kinds else "a call waits for its result from elsewhere"


def _waits_for_client(work: str) -> str:
    """The reason of a pause in which the provider waits for the client."""
    return f"the provider waits for the client ({work}); act on it, and continue from the messages"

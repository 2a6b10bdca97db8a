"""How the requests of a run begin and how the run ends: the events and commands of each, in their order."""

from __future__ import annotations

from penstock.errors import OutputError
from penstock.events import FinishReason, Usage
from penstock.messages import user
from penstock.run.commands import AskModel, Output, PrepareStep, StopAsking
from penstock.run.events import EndReason, HistoryReplaced, OutputInvalid, StepEnd, StepStart
from penstock.run.state import RunState
from penstock.run.step_changes import StepDecision, spliced
from penstock.turn import Turn

_INVALID = "The output is not valid. Give the whole output again, corrected. What is wrong:"


class RunRequests(RunState):
    """The state of a run, and its requests to the model."""

    def ask(self) -> list[Output]:
        """Begin the next step, or have the hooks decide on it first."""
        if self.has_hooks:
            return [PrepareStep(self.step + 1, tuple(self.messages), self.changes.tools or ())]
        return self.start_step(StepDecision())

    def start_step(self, decision: StepDecision) -> list[Output]:
        """Begin the next step as the hooks decided, or end the run before it."""
        events: list[Output] = []
        if decision.history:
            self.replace_history(decision.history)
            events.append(HistoryReplaced(decision.history))
        if decision.stop is not None:
            self.tally.spent(decision.changes.usage)
            return [*events, *self.end("stopped", decision.stop)]
        self.begin_step(decision.changes)
        return [*events, StepStart(self.step, decision.changes), self.request()]

    def request(self) -> AskModel:
        """The request of the step under way."""
        changes = self.changes
        messages = self.messages if changes.messages is None else spliced(self.messages, changes.messages)
        return AskModel(tuple(messages), changes, changes.model_for(self.tally.attempt))

    def spent(self, usage: Usage | None) -> None:
        """Hooks have used these tokens, and failed before the step began."""
        self.tally.spent(usage)

    @property
    def is_preparing(self) -> bool:
        """Whether hooks decide on the next step."""
        return self.phase == "hook" or (self.phase == "new" and self.has_hooks)

    def end(self, reason: EndReason, why: str) -> list[Output]:
        """End the run between two steps."""
        outputs = self.settle(why)
        self.finish(reason, why)
        return [*outputs, self.done(reason, why)]

    def stop(self, reason: EndReason, why: str, finish: FinishReason = "cut") -> list[Output]:
        """End the run at once, in any phase."""
        if self.phase == "over":
            return []
        outputs: list[Output] = [StopAsking()] if self.is_preparing else []
        if self.phase == "answer":
            outputs = [StopAsking(), StepEnd(self.step, finish, self.take_turn(self.builder.build()).usage)]
        return outputs + self.end(reason, why)

    def end_without_calls(self, turn: Turn) -> list[Output]:
        """End the run after a response without calls; the model is asked again if the output is not valid."""
        if turn.client_work:
            return self.end("paused", waits_for_client(turn.client_work))
        if turn.finish_reason == "length":
            return self.end("length", "")
        if self.rules.output is not None:
            try:
                self.read_output()
            except OutputError as error:
                return self._reject(error)
        return self.end("answered", "")

    def _reject(self, error: OutputError) -> list[Output]:
        """The output is not valid: the model is asked again, with what is wrong with it, a limited number of times."""
        self.tally.invalid_outputs += 1
        if over := self.tally.rejected(self.rules.limits):
            return self.end("limit", f"{over}: {error.problem}")
        if over := self.tally.over(self.rules.limits, 0, 0):
            return self.end("limit", over)
        rejection = OutputInvalid(error.problem, user(f"{_INVALID}\n{error.problem}"))
        self.new_messages.append(rejection.message)
        return [rejection, *self.close_step(), *self.ask()]


def waits_for_client(work: str) -> str:
    """Why a run is paused whose provider waits for the client."""
    return f"the provider waits for the client ({work}); act on it, and continue from the messages"

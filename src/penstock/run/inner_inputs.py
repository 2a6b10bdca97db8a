"""Inputs from inner runs: that one begins, what it emits, and that this one must end as an inner run."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.messages import Message
from penstock.run.commands import Command, Emit, Output
from penstock.run.events import RunStart
from penstock.run.execution import error_outcome
from penstock.run.inner_runs import MAX_LEVELS, has_step_end, outcome_of
from penstock.run.limits import over_budget
from penstock.run.requests import RunRequests


class InnerInputs(RunRequests):
    """The inputs of a run that come from its inner runs; `Run` has all others, and how a run continues."""

    def inner_begins(self, key: str, messages: Sequence[Message], agent: str = "") -> list[Command]:
        """A tool is an agent, which begins to run with these messages: its run is `inner.find(key)` from here on."""
        execution = self.executions.table.running(key)
        if execution is None:
            return []
        if self.level >= MAX_LEVELS:
            refusal = error_outcome(f"Not run: agents may be nested {MAX_LEVELS} levels deep.")
            return self._commands(self._after(self.executions.done(key, refusal)))
        start = RunStart(tuple(messages), agent)
        return self._commands([*self.inner.begin(execution, start).wrap([start])])

    def inner_emitted(self, key: str, emit: Emit) -> list[Command]:
        """An inner run emitted events: they are those of this run, too. Its end is that of its call."""
        inner = self.inner.find(key)
        if inner is None or self.phase == "over":
            return []
        outputs: list[Output] = [*self.inner.take(inner, emit.logged)]
        if inner.has_ended:
            outcome = outcome_of(inner.run)
            if not outcome.is_error:
                outcome = replace(outcome, data=inner.run.result)
            outputs = self._after([*outputs, *self.executions.done(key, outcome)])
        elif has_step_end(emit.events) and (spent := over_budget(self.rules.limits, self.usage)):
            self.fold_all()
            outputs += self.stop("limit", spent)
        return self._commands(outputs)

    def outer_stopped(self, why: str) -> list[Command]:
        """The run around this inner run ends it. What was emitted before stays."""
        self.fold(0)
        return self._commands(self.stop("cancelled", why))

    def _commands(self, outputs: list[Output]) -> list[Command]:
        raise NotImplementedError

    def _after(self, outputs: list[Output]) -> list[Output]:
        raise NotImplementedError

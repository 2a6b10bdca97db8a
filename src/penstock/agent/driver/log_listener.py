"""What the log of a run reports to it: commits, inputs from other processes, and the loss of its lease."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.agent.driver.dispatcher import Dispatcher
from penstock.agent.driver.driven_run import DrivenRun
from penstock.errors import ArgumentsError, UsageError
from penstock.log.inputs import ProvidedResult
from penstock.log.run_writer import RunCallbacks
from penstock.log.store import Input
from penstock.results import Outcome, as_outcome
from penstock.run.commands import Command
from penstock.run.events import Decision, Said
from penstock.run.machine import Run


class LogListener:
    """Connects a run to its log. The flusher calls from its thread; the run is notified in its own thread or loop."""

    def __init__(self, driven: DrivenRun, dispatcher: Dispatcher) -> None:
        self._driven = driven
        self._dispatcher = dispatcher

    def open(self) -> None:
        """Begin to write the log, if the run has one."""
        if self._driven.ownership.has_log:
            dispatcher = self._dispatcher
            callbacks = RunCallbacks(dispatcher.on_committed(), self._on_input, self._on_lost, dispatcher.can_go_on)
            self._driven.logged_outbox.writer = self._driven.ownership.open(callbacks)

    def take_inputs(self) -> None:
        """Take the inputs from other processes that came before this one owned the run."""
        owned = self._driven.ownership.owned
        for input in owned.inputs if owned else ():
            self.take_input(input)

    def take_input(self, input: Input) -> None:
        """Take an input from another process, in the thread or on the loop of the run."""
        driven, outbox = self._driven, self._driven.logged_outbox
        if driven.done is not None:
            return  # it stays in the store, for the next owner of the run
        outbox.inputs = (input.number,)
        driven.is_cancelled |= input.kind == "cancel"
        is_answer = input.kind in ("decide", "provide")
        dispatcher = self._dispatcher.tools.holder(input.key) if is_answer else self._dispatcher
        dispatcher.report(partial(self._commands, input, dispatcher.run))
        outbox.acknowledge()
        dispatcher.expiries.settle()

    def _on_input(self, input: Input) -> None:
        self._dispatcher.loop.call(partial(self.take_input, input))

    def _on_lost(self, error: Exception) -> None:
        self._dispatcher.loop.call(partial(self._dispatcher.lose, error))

    def _commands(self, input: Input, run: Run) -> list[Command]:
        """The commands for an input to this run; none if it came too late, or is not valid."""
        try:
            match input.kind:
                case "decide":
                    decision = msgspec.json.decode(input.body, type=Decision)
                    return run.decide(decision.call_id, decision.approved, decision.arguments, decision.reason)
                case "provide":
                    result = msgspec.json.decode(input.body, type=ProvidedResult)
                    outcome = provided(result.value, result.is_error)
                    return run.provide(result.call_id, replace(outcome, content=result.parts or outcome.content))
                case "say":
                    return run.say(msgspec.json.decode(input.body, type=Said).message)
                case "cancel":
                    return run.cancel(input.body.decode("utf-8", "replace"), self._driven.outbox.drop())
        except (UsageError, ArgumentsError, msgspec.MsgspecError):
            self._driven.records.refuse(input.kind, input.key)
            return []


def provided(value: Any, is_error: bool) -> Outcome:
    """The outcome of a deferred call: its result from elsewhere, as if a tool had returned it."""
    result = as_outcome(value)
    return replace(result, is_error=True) if is_error else result

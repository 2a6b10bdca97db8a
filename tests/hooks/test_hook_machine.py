"""Hooks in the machine of a run: what they decide is in its events, and a run that is rebuilt uses it."""

from __future__ import annotations

from random import Random

import pytest

from penstock import Done, Error, Finish, HistoryReplaced, Message, Retry, StepStart, Text, ToolCall, Usage, UsageError
from penstock.messages import user
from penstock.results import Outcome
from penstock.run.commands import AskModel, Command, Emit, PrepareStep, StartTool, StopAsking
from penstock.run.events import LogEvent, RunStart, Taken, decode_logged, encode
from penstock.run.load import load
from penstock.run.machine import Run
from penstock.run.rebuild import rebuild
from penstock.run.step_changes import Splice, StepChanges, StepDecision, spliced, splices_between
from penstock.tools.policy import ToolPolicy
from tests.scripted_runs import LOOK

POLICIES = {"look": LOOK, "pay": ToolPolicy(start="call")}


class Hooked:
    """A run with hooks and a log, whose commands are carried out by hand."""

    def __init__(self) -> None:
        self.log: list[LogEvent] = [RunStart((user("Go."),), "agent"), Taken(1)]
        self.commands: list[Command] = []
        self.run = self.rebuilt()
        self.take(self.run.begin())

    def rebuilt(self) -> Run:
        run = rebuild([decode_logged(encode(event)) for event in self.log], POLICIES)
        run.state.has_hooks = True
        return run

    def take(self, commands: list[Command]) -> list[Command]:
        self.commands = commands
        for command in commands:
            if isinstance(command, Emit):
                self.log += command.logged
            elif isinstance(command, AskModel | StartTool | PrepareStep):
                self.run.reached(command)
        return commands

    def decide(self, decision: StepDecision | None = None) -> AskModel:
        assert isinstance(self.commands[-1], PrepareStep)
        self.take(self.run.step_prepared(decision or StepDecision()))
        return self.request

    @property
    def request(self) -> AskModel:
        command = self.commands[-1]
        assert isinstance(command, AskModel)
        return command

    def call(self, name: str = "look") -> None:
        """The model calls a tool, which returns."""
        self.take(self.run.chunks([ToolCall("c", name, {}, sealed_by="call_end"), Finish("tool_calls")]))
        starts = [command for command in self.commands if isinstance(command, StartTool)]
        starts += [command for command in self.take(self.run.ended()) if isinstance(command, StartTool)]
        self.take(self.run.tool_done(starts[0].key, Outcome((Text(0, "sunny"),))))

    def crash(self) -> list[Command]:
        self.log.append(Taken(2))
        self.run = self.rebuilt()
        return self.take(self.run.begin())

    def types(self) -> list[str]:
        return [event.type for event in self.log]


def fallbacks(*models: str) -> StepDecision:
    return StepDecision(StepChanges(fallbacks=models))


def test_no_request_is_sent_before_the_hooks_have_decided() -> None:
    run = Hooked()
    assert run.commands == [PrepareStep(1, (user("Go."),))]
    assert run.types() == ["run_start", "taken"]
    assert run.decide().messages == (user("Go."),)
    run.call()
    assert [type(command) for command in run.commands] == [Emit, PrepareStep]
    assert run.types()[-2:] == ["tool_end", "tool_results"]


def test_what_the_hooks_decided_is_in_the_start_of_the_step_and_a_new_owner_uses_it() -> None:
    run = Hooked()
    changes = StepChanges(
        messages=(Splice(0, 1, (user("Go fast."),)),), tools=("look",), instructions="Hm.", model="small",
        options={"temperature": 0.5},
    )  # fmt: skip
    request = run.decide(StepDecision(changes))
    assert request.messages == (user("Go fast."),)
    assert (request.model, request.changes) == ("small", changes)
    assert run.run.state.messages == [user("Go.")]
    [again] = run.crash()
    assert again == request


def test_only_what_was_changed_is_logged() -> None:
    run = Hooked()
    run.decide()
    assert encode(run.log[-1]) == b'{"type":"step_start","step":1}'


def test_the_hooks_of_a_step_that_was_not_decided_are_asked_again() -> None:
    run = Hooked()
    run.decide()
    run.call()
    prepare = run.commands[-1]
    count = len(run.log)
    assert run.crash() == [prepare]
    assert run.types()[count:] == ["taken"]


def test_a_new_history_is_an_event_and_stays() -> None:
    run = Hooked()
    run.decide()
    run.call()
    short = [user("Go. So far: sunny.")]
    request = run.decide(StepDecision(history=splices_between(run.run.state.messages, short)))
    assert request.messages == tuple(short)
    assert run.types()[-2:] == ["history_replaced", "step_start"]
    assert isinstance(run.log[-2], HistoryReplaced)
    assert run.rebuilt().state.messages == short


def test_a_message_that_is_said_while_hooks_decide_is_for_the_step_after() -> None:
    run = Hooked()
    run.take(run.run.begin())
    run.take([*run.run.say(user("Hurry.")), run.commands[-1]])
    assert run.decide().messages == (user("Go."),)
    run.take(run.run.chunks([Text(0, "Rome."), Finish("stop")]))
    run.take(run.run.ended())
    prepare = run.commands[-1]
    assert isinstance(prepare, PrepareStep)
    assert prepare.messages[-1] == user("Hurry.")
    assert run.crash() == [prepare]


def test_hooks_can_stop_the_run() -> None:
    run = Hooked()
    run.decide()
    run.call()
    run.take(run.run.step_prepared(StepDecision(stop="that is enough")))
    done = run.log[-1]
    assert isinstance(done, Done)
    assert (done.reason, done.why) == ("stopped", "that is enough")
    assert run.rebuilt().state.is_over


def test_a_run_that_is_cancelled_while_hooks_decide_stops_them() -> None:
    run = Hooked()
    run.take(run.run.cancel("enough"))
    assert StopAsking() in run.commands
    assert run.run.step_prepared(StepDecision()) == []
    done = run.log[-1]
    assert isinstance(done, Done)
    assert done.reason == "cancelled"


def test_a_request_that_fails_goes_to_the_next_model() -> None:
    run = Hooked()
    run.decide(fallbacks("b", "c"))
    run.take(run.run.request_failed(Error("busy")))
    assert run.log[-1] == Retry("busy", "b")
    assert run.request.model == "b"
    run.take(run.run.chunks([Text(0, "Let me"), Usage(10, 2)]))
    run.take(run.run.request_failed(Error("gone")))
    assert run.log[-1] == Retry("gone", "c")
    assert run.request.model == "c"
    assert run.crash()[-1] == AskModel((user("Go."),), StepChanges(fallbacks=("b", "c")), "c")
    run.take(run.run.request_failed(Error("no more")))
    assert isinstance(run.log[-1], Done)
    assert (run.log[-1].reason, run.log[-1].why) == ("error", "no more")
    assert run.run.usage.input_tokens == 10


@pytest.mark.parametrize("chunks", [[Text(0, "Let"), Error("boom"), Finish("error")], [Text(0, "Let"), Finish("cut")]])
def test_a_response_that_breaks_off_goes_to_the_next_model(chunks: list[Text | Error | Finish]) -> None:
    run = Hooked()
    run.decide(fallbacks("b"))
    run.take(run.run.chunks([*chunks]))
    run.take(run.run.ended())
    assert isinstance(run.log[-1], Retry)
    assert run.request.model == "b"
    run.take(run.run.chunks([Text(0, "Rome."), Finish("stop")]))
    run.take(run.run.ended())
    assert run.run.state.messages[-1].text == "Rome."


def test_a_response_with_a_side_effect_is_not_withdrawn() -> None:
    run = Hooked()
    run.decide(fallbacks("b"))
    run.take(run.run.chunks([ToolCall("c", "pay", {}, sealed_by="call_end")]))
    run.take(run.run.request_failed(Error("gone")))
    done = run.log[-1]
    assert isinstance(done, Done)
    assert done.reason == "error"
    assert "may have had an effect" in done.messages[-1].results[0].text


def test_the_fallbacks_of_a_step_count_from_the_first_again() -> None:
    run = Hooked()
    run.decide(fallbacks("b"))
    run.take(run.run.request_failed(Error("busy")))
    run.call()
    assert run.decide(fallbacks("b")).model == ""


def test_a_stored_run_keeps_what_hooks_decided() -> None:
    run = Run([user("Go.")], POLICIES)
    run.state.has_hooks = True
    run.begin()
    run.step_prepared(StepDecision(StepChanges(instructions="Hm."), (Splice(0, 1, (user("Go on."),)),)))
    loaded, _ = load(run.dump(), POLICIES)
    assert loaded.state.messages == [user("Go on.")]
    [request] = loaded.begin()
    assert isinstance(request, AskModel)
    assert request.changes.instructions == "Hm."


def test_a_log_with_impossible_splices_is_refused() -> None:
    log: list[LogEvent] = [RunStart((user("Go."),)), HistoryReplaced((Splice(0, 5),)), StepStart(1)]
    with pytest.raises(UsageError, match="replaces messages 0 to 5 of 1"):
        rebuild(log, POLICIES)


def test_splices_turn_one_history_into_another() -> None:
    for seed in range(500):
        chance = Random(seed)
        before = [user(f"{number}") for number in range(chance.randrange(8))]
        new = [user("new") for _ in range(3)]
        after: list[Message] = chance.choices([*before, *new], k=chance.randrange(8))
        if chance.random() < 0.5:
            after = [message for message in [*before, *new] if chance.random() < 0.7]
        splices = splices_between(before, after)
        assert spliced(before, splices) == after
        kept = sum(len(splice.messages) for splice in splices)
        if after == [message for message in before if message in after]:
            assert kept == 0  # what only lost messages has none of them in its log

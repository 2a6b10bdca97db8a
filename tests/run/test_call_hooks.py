"""Hooks around a call in the machine: what they decided is in the log, and is used again after a crash."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.events import Finish, Text, ToolCall, ToolCallClosed, ToolCallStart
from penstock.messages import user
from penstock.results import Outcome, error_outcome
from penstock.run.commands import (
    AskModel,
    CallReview,
    Command,
    Emit,
    ReviewCall,
    ReviseResult,
    StartTool,
)
from penstock.run.events import ApprovalRequest, LogEvent, RunStart, Taken, ToolEnd, ToolStart, decode_logged, encode
from penstock.run.load import load
from penstock.run.machine import Run
from penstock.run.rebuild import rebuild
from penstock.tools.policy import ToolPolicy

READ, EFFECT = ToolPolicy(start="closed", is_read_only=True), ToolPolicy()
POLICIES = {"look": READ, "write": EFFECT, "paint": ToolPolicy(is_deferred=True), "put": ToolPolicy(is_idempotent=True)}
NO = CallReview("refuse", outcome=error_outcome("Not run: no."))
YES = CallReview("answer", outcome=Outcome((Text(0, "known"),), data={"private": 1}))


class Hooked:
    """A run with hooks around its calls, and a log."""

    def __init__(self) -> None:
        self.log: list[LogEvent] = [RunStart((user("Go."),), "agent"), Taken(1)]
        self.commands: list[Command] = []
        self.run = self._rebuilt()
        self.take(self.run.begin())

    def _rebuilt(self) -> Run:
        run = rebuild([decode_logged(encode(event)) for event in self.log], POLICIES)
        run.state.rules.has_before_call = run.state.rules.has_after_call = True
        return run

    def take(self, commands: list[Command]) -> list[Command]:
        self.commands += commands
        for command in commands:
            if isinstance(command, Emit):
                self.log += command.logged
            elif isinstance(command, AskModel | StartTool):
                self.run.reached(command)
        return commands

    def respond(self, *names: str, **arguments: Any) -> None:
        """The model responds with calls of these tools."""
        for block, name in enumerate(names):
            self.take(self.run.chunks([ToolCall(f"c{block}", name, arguments, block=block, sealed_by="call_end")]))
        self.take(self.run.chunks([Finish("tool_calls")]))
        self.run.state.response.fold(0)
        self.take(self.run.ended())

    def review(self, review: CallReview | Outcome, key: str = "1.0") -> list[Command]:
        return self.take(self.run.call_reviewed(key, review))

    def crash(self) -> list[Command]:
        """Another process takes the run over; returns what it does first."""
        self.log.append(Taken(1 + sum(isinstance(event, Taken) for event in self.log)))
        self.run = self._rebuilt()
        return self.take(self.run.begin())

    def store(self) -> list[Command]:
        """The run is stored as JSON, and loaded; returns what it does first."""
        self.run, _ = load(self.run.dump(), POLICIES)
        self.run.state.rules.has_before_call = self.run.state.rules.has_after_call = True
        return self.take(self.run.begin())

    @property
    def types(self) -> list[str]:
        kept = ("call_reviewed", "approval_request", "decision", "tool_start", "tool_returned", "tool_end")
        return [event.type for event in self.log if event.type in kept]


def kinds(commands: list[Command]) -> list[str]:
    return [type(command).__name__ for command in commands if not isinstance(command, Emit)]


def test_the_log_has_each_step_in_its_order() -> None:
    hooked = Hooked()
    hooked.respond("write")
    hooked.review(CallReview("ask", {"text": "b"}, "why"))
    hooked.take(hooked.run.decide("c0", True))
    hooked.take(hooked.run.tool_done("1.0", Outcome((Text(0, "done"),))))
    hooked.take(hooked.run.result_revised("1.0", None))
    assert hooked.types == [
        "call_reviewed", "approval_request", "decision", "tool_start", "tool_returned", "tool_end",
    ]  # fmt: skip


def test_readers_do_not_get_what_only_the_log_has() -> None:
    hooked = Hooked()
    hooked.respond("write")
    hooked.review(CallReview())
    hooked.take(hooked.run.tool_done("1.0", Outcome((Text(0, "a secret"),))))
    hooked.take(hooked.run.result_revised("1.0", Outcome((Text(0, "shown"),))))
    shown = [event for command in hooked.commands if isinstance(command, Emit) for event in command.events]
    assert not {"call_reviewed", "tool_returned"} & {event.type for event in shown}
    assert "a secret" not in str(shown)
    assert "a secret" in str(hooked.log)


@pytest.mark.parametrize("again", ["crash", "store"])
@pytest.mark.parametrize("verdict", ["go", "ask"])
def test_what_hooks_decided_is_used_again(verdict: Any, again: str) -> None:
    hooked = Hooked()
    hooked.respond("paint", "write")
    hooked.review(CallReview(verdict, {"text": "b"}, "why" if verdict == "ask" else ""), "1.1")
    hooked.review(CallReview(), "1.0")
    commands = getattr(hooked, again)()
    assert "ReviewCall" not in kinds(commands)
    assert [request.arguments for request in hooked.run.waiting if request.kind == "deferred"] == [{}]
    commands = hooked.take(hooked.run.provide("c0", Outcome((Text(0, "painted"),))))
    commands += hooked.take(hooked.run.result_revised("1.0", None))
    if verdict == "ask":
        [request] = hooked.run.waiting
        assert request.note == 'why This program changed the arguments to {"text": "b"}.'
        commands = hooked.take(hooked.run.decide("c1", True))
    [start] = [command for command in commands if isinstance(command, StartTool)]
    assert start.arguments == {"text": "b"}


def test_a_call_without_a_verdict_is_reviewed_again() -> None:
    hooked = Hooked()
    hooked.respond("write")
    assert kinds(hooked.crash()) == ["ReviewCall"]


@pytest.mark.parametrize("review", [NO, YES, CallReview("failed", outcome=error_outcome("Not run: failed."))])
def test_a_verdict_on_an_early_call_counts_when_it_is_confirmed(review: CallReview) -> None:
    hooked = Hooked()
    closed = ToolCallClosed(0, "c0", "look", {})
    [_, command] = hooked.take(hooked.run.chunks([ToolCallStart(0, "c0", "look"), closed]))
    assert isinstance(command, ReviewCall)
    assert not command.is_confirmed
    hooked.review(review)
    assert "tool_end" not in hooked.types
    hooked.respond("look")
    assert hooked.types == ["call_reviewed", "tool_end"]
    assert sum(isinstance(command, ReviewCall) for command in hooked.commands) == 1
    assert not any(isinstance(command, StartTool) for command in hooked.commands)


def test_a_call_that_changes_is_reviewed_again() -> None:
    hooked = Hooked()
    hooked.take(hooked.run.chunks([ToolCallStart(0, "c0", "look"), ToolCallClosed(0, "c0", "look", {"city": "Rome"})]))
    hooked.review(NO)
    hooked.respond("look", city="Oslo")
    reviews = [command for command in hooked.commands if isinstance(command, ReviewCall)]
    assert [(command.key, command.arguments) for command in reviews] == [
        ("1.0", {"city": "Rome"}), ("1.0.1", {"city": "Oslo"}),
    ]  # fmt: skip
    hooked.review(CallReview(), "1.0.1")
    assert [event.key for event in hooked.log if isinstance(event, ToolStart)] == ["1.0.1"]


@pytest.mark.parametrize("again", ["crash", "store"])
@pytest.mark.parametrize("name", ["write", "put", "look"])
def test_a_tool_that_returned_does_not_run_again_and_its_result_is_seen_again(name: str, again: str) -> None:
    hooked = Hooked()
    hooked.respond(name)
    hooked.review(CallReview("go", {"text": "b"}))
    commands = hooked.take(hooked.run.tool_done("1.0", Outcome((Text(0, "done"),), data={"private": 1})))
    assert kinds(commands) == ["ReviseResult"]
    commands = getattr(hooked, again)()
    [revise] = [command for command in commands if not isinstance(command, Emit)]
    assert isinstance(revise, ReviseResult)
    assert (revise.arguments, revise.result.text) == ({"text": "b"}, "done")
    assert revise.awaits_reader == (name != "look")
    assert not hooked.run.is_waiting
    hooked.take(hooked.run.result_revised("1.0", Outcome((Text(0, "short"),))))
    [end] = [event for event in hooked.log if isinstance(event, ToolEnd)]
    assert end.result.text == 'This program changed the arguments to {"text": "b"}.\nshort'
    assert isinstance(hooked.commands[-1], AskModel)


def test_an_interrupted_tool_has_no_result_to_see() -> None:
    hooked = Hooked()
    hooked.respond("write")
    hooked.review(CallReview())
    commands = hooked.crash()
    assert kinds(commands) == ["AskModel"]
    assert hooked.types[-1] == "tool_end"


def test_a_late_verdict_about_a_withdrawn_call_is_ignored() -> None:
    hooked = Hooked()
    hooked.take(hooked.run.chunks([ToolCallStart(0, "c0", "look"), ToolCallClosed(0, "c0", "look", {})]))
    hooked.take(hooked.run.cancel())
    assert hooked.review(CallReview()) == []
    assert hooked.run.result_revised("1.0", None) == []


def test_a_waiting_call_of_a_changed_agent_asks_with_its_note() -> None:
    hooked = Hooked()
    hooked.respond("write")
    hooked.review(CallReview("ask", None, "It writes."))
    requests = [event for event in hooked.log if isinstance(event, ApprovalRequest)]
    hooked.crash()
    assert hooked.run.waiting == requests
    assert requests[0].note == "It writes."

"""A run that is rebuilt from the events of its log."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import (
    ApprovalRequest,
    Decision,
    Done,
    Finish,
    Limits,
    Retry,
    Said,
    StepEnd,
    StepStart,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallStart,
    ToolEnd,
    Usage,
    UsageError,
)
from penstock.messages import user
from penstock.results import Outcome
from penstock.run.commands import AskModel, Command, Emit, StartTool
from penstock.run.events import LogEvent, RunStart, Taken, Waiting, decode_logged, encode
from penstock.run.load import load
from penstock.run.machine import Run
from penstock.run.rebuild import rebuild
from penstock.tools.policy import ToolPolicy
from tests.scripted_runs import LOOK, check_history

PAY = ToolPolicy(start="call")
POLICIES = {"look": LOOK, "pay": PAY, "ask": ToolPolicy(needs_approval=True), "put": ToolPolicy(is_idempotent=True)}


class Logged:
    """A run with a log, which is taken over by another process with `crash`."""

    def __init__(self, limits: Limits | None = None) -> None:
        self.limits = limits
        self.log: list[LogEvent] = [RunStart((user("Go."),), "agent"), Taken(1)]
        self.commands: list[Command] = []
        self.run = rebuild(self.log, POLICIES, limits)
        self.take(self.run.begin())

    def take(self, commands: list[Command]) -> list[Command]:
        self.commands += commands
        for command in commands:
            if isinstance(command, Emit):
                self.log += command.logged
            elif isinstance(command, AskModel | StartTool):
                self.run.reached(command)
        return commands

    def feed(self, *chunks: StreamChunk) -> None:
        self.take(self.run.chunks(list(chunks)))

    def crash(self) -> list[Command]:
        """Another process takes the run over; returns what it does first."""
        self.log.append(Taken(1 + sum(isinstance(event, Taken) for event in self.log), is_lost=True))
        events = [decode_logged(encode(event)) for event in self.log]
        self.run = rebuild(events, POLICIES, self.limits)
        return self.take(self.run.begin())

    def events_since(self, count: int) -> list[str]:
        return [event.type for event in self.log[count:]]


def call(name: str, id: str = "c", block: int = 0, **arguments: Any) -> ToolCall:
    return ToolCall(id, name, arguments, block=block, sealed_by="call_end")


def starts(commands: list[Command]) -> list[StartTool]:
    return [command for command in commands if isinstance(command, StartTool)]


def test_an_interrupted_response_is_asked_for_again_in_the_same_step_and_its_cost_counts() -> None:
    run = Logged()
    run.feed(Usage(100, 7), Text(0, "Let me"))
    commands = run.crash()
    assert [type(command) for command in commands] == [Emit, AskModel]
    assert run.log[-1] == Retry("the run was interrupted")
    assert run.run.state.step == 1
    run.feed(Text(0, "Hello."), Usage(50, 3), Finish("stop"))
    run.take(run.run.ended())
    assert (run.run.usage.input_tokens, run.run.usage.output_tokens) == (150, 10)
    assert sum(isinstance(event, StepStart) for event in run.log) == 1


def test_nothing_is_withdrawn_if_nothing_had_come() -> None:
    run = Logged()
    assert [type(command) for command in run.crash()] == [AskModel]


@pytest.mark.parametrize("name", ["look", "put"])
def test_a_tool_that_may_run_again_does_under_the_same_key(name: str) -> None:
    run = Logged()
    run.feed(call(name), Finish("tool_calls"))
    run.take(run.run.ended())
    [first] = starts(run.commands)
    count = len(run.log)
    [again] = starts(run.crash())
    assert again.key == first.key
    assert run.events_since(count) == ["taken"]
    run.take(run.run.tool_done(again.key, Outcome((Text(0, "done"),))))
    assert run.run.state.step == 2
    check_history(run.run.state.messages)


def test_a_tool_that_is_to_start_again_has_run_before() -> None:
    run = Logged()
    run.feed(call("put"), Finish("tool_calls"))
    run.take(run.run.ended())
    run.run = rebuild(run.log, POLICIES)
    run.run.begin()  # and the reader does not come to the start of the tool
    [so_far] = run.run.state.history[-1].results
    assert so_far.text == "It was still running when this was written, so it may have had an effect."
    run.run.cancel("enough")
    [result] = run.run.state.messages[-1].results
    assert result.text == "Cancelled after it had been started, so it may have had an effect: enough."


def test_a_tool_with_side_effects_that_was_interrupted_does_not_run_again() -> None:
    run = Logged()
    run.feed(call("pay"), Finish("tool_calls"))
    run.take(run.run.ended())
    assert starts(run.crash()) == []
    [result] = run.run.state.messages[-1].results
    assert result.text == "It was running when the run was interrupted, so it may have had an effect."


def test_a_response_whose_tool_had_an_effect_is_kept() -> None:
    run = Logged()
    run.feed(Text(0, "I pay."), call("pay", "p", 1), ToolCallStart(2, "q", "look"))
    [start] = starts(run.commands)
    run.take(run.run.tool_done(start.key, Outcome((Text(0, "paid"),))))
    count = len(run.log)
    run.crash()
    assert run.events_since(count) == ["taken", "step_end", "tool_end", "tool_results", "step_start"]
    end = next(event for event in run.log[count:] if isinstance(event, StepEnd))
    assert end.finish_reason == "cut"
    results = run.run.state.messages[-1].results
    assert [result.text for result in results] == ["paid", "Not run: the run was interrupted."]
    check_history(run.run.state.messages)


def test_a_log_never_ends_between_the_end_of_a_response_and_what_follows_from_it() -> None:
    run = Logged()
    run.feed(call("ask"), Finish("content_filter"))
    commands = run.run.ended()
    assert sum(isinstance(command, Emit) for command in commands) == 1
    [unit] = [command.logged for command in commands if isinstance(command, Emit)]
    assert [event.type for event in unit] == ["step_end", "tool_end", "tool_results", "done"]


def test_a_decision_is_in_the_log_with_what_it_changed() -> None:
    run = Logged()
    run.feed(call("ask", city="Rome"), Finish("tool_calls"))
    run.take(run.run.ended())
    assert isinstance(run.log[-1], ApprovalRequest)
    run.take(run.run.decide("c", True, {"city": "Oslo"}))
    assert next(event for event in run.log if isinstance(event, Decision)).arguments == {"city": "Oslo"}
    rebuilt = rebuild(run.log[: run.log.index(next(e for e in run.log if isinstance(e, Decision))) + 1], POLICIES)
    [start] = starts(rebuilt.begin())
    assert start.arguments == {"city": "Oslo"}


def test_a_call_that_waits_for_approval_still_waits_and_is_not_announced_again() -> None:
    run = Logged()
    run.feed(call("ask"), Finish("tool_calls"))
    run.take(run.run.ended())
    run.take(run.run.pause())
    assert isinstance(run.log[-1], Waiting)
    assert run.crash() == []
    assert [request.call_id for request in run.run.waiting] == ["c"]


def test_a_message_that_was_said_reaches_the_next_request() -> None:
    run = Logged()
    run.feed(Text(0, "Rome."))
    run.take(run.run.say(user("And Oslo?")))
    run.crash()
    run.feed(Text(0, "Rome."), Finish("stop"))
    run.take(run.run.ended())
    assert isinstance(run.log[-1], StepStart)
    assert [message.role for message in run.run.state.messages] == ["user", "assistant", "user"]
    assert sum(isinstance(event, Said) for event in run.log) == 1
    run.feed(Text(0, "Oslo."), Finish("stop"))
    run.take(run.run.ended())
    assert isinstance(run.log[-1], Done)
    with pytest.raises(UsageError, match="the run is over"):
        run.run.say(user("Thanks."))


def test_workers_that_die_do_not_end_a_run() -> None:
    run = Logged(Limits(takeovers=0))
    run.feed(call("look"), Finish("tool_calls"))
    run.take(run.run.ended())
    for _ in range(5):
        assert len(starts(run.crash())) == 1
    [start] = starts(run.crash())
    run.take(run.run.tool_done(start.key, Outcome((Text(0, "done"),))))
    assert run.run.state.step == 2


def test_a_tool_that_no_longer_exists_is_not_run_again() -> None:
    run = Logged()
    run.feed(call("look"), Finish("tool_calls"))
    run.take(run.run.ended())
    other = rebuild(run.log, {}, None)
    assert starts(other.begin()) == []
    assert "interrupted" in other.state.messages[-1].results[0].text


@pytest.mark.parametrize("has_ended", [False, True])
def test_an_early_start_of_a_tool_that_no_longer_exists_is_a_fact(has_ended: bool) -> None:
    """The tools of an MCP server may be other ones when the run is rebuilt."""
    run = Logged()
    run.feed(ToolCallStart(0, "c", "look"), ToolCallClosed(0, "c", "look", {}))
    [start] = starts(run.commands)
    run.feed(call("look"))
    if has_ended:
        run.take(run.run.tool_done(start.key, Outcome((Text(0, "sunny"),))))
    rebuilt = rebuild([decode_logged(encode(event)) for event in run.log], {})
    [execution] = rebuilt.state.executions.table
    assert (execution.key, execution.is_confirmed) == (start.key, True)
    assert execution.state == ("finished" if has_ended else "running")


def test_a_question_of_a_tool_is_open_for_whoever_reads_the_log_until_its_process_ends() -> None:
    run = Logged()
    run.feed(call("put"), Finish("tool_calls"))
    run.take(run.run.ended())
    [start] = starts(run.commands)
    run.take(run.run.tool_asks(start.key, {"message": "Which seat?"}))
    [request] = rebuild([decode_logged(encode(event)) for event in run.log], POLICIES).waiting
    assert (request.call_id, request.kind, request.arguments) == ("c", "input", {"message": "Which seat?"})
    assert request == run.run.waiting[0]
    stored = run.run.dump()
    [again] = starts(run.crash())
    assert again.key == start.key
    assert run.run.waiting == []
    run.take(run.run.tool_asks(start.key, {"message": "Which seat?"}))
    run.take(run.run.tool_done(start.key, Outcome((Text(0, "done"),))))
    assert rebuild(run.log, POLICIES).waiting == []
    loaded, _ = load(stored, POLICIES, None, ())
    assert loaded.waiting == []


def test_the_facts_in_the_log_count_and_not_the_policies_of_today() -> None:
    run = Logged()
    run.feed(ToolCallStart(0, "c", "look"), call("look"), Finish("tool_calls"))
    run.take(run.run.ended())
    [start] = starts(run.commands)
    run.take(run.run.tool_done(start.key, Outcome((Text(0, "sunny"),))))
    other = rebuild(run.log, {"look": ToolPolicy(needs_approval=True)})
    assert other.state.messages == run.run.state.messages
    assert (other.state.phase, other.state.step) == ("answer", 2)


@pytest.mark.parametrize(
    ("events", "message"),
    [([], "begins with run_start"), ([StepStart(1)], "begins with run_start"),
     ([RunStart(()), RunStart(())], "run_start among its events")],
)  # fmt: skip
def test_a_log_that_is_none_is_refused(events: list[LogEvent], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        rebuild(events, {})


def test_cancelling_keeps_what_the_log_has_and_tells_the_reader_only_the_ends() -> None:
    run = Logged()
    unread = [event for command in run.run.chunks([Text(0, "Rome is")]) if isinstance(command, Emit)
              for event in command.events]  # fmt: skip
    [emit] = [command for command in run.run.cancel("enough", unread) if isinstance(command, Emit)]
    assert [event.type for event in emit.events] == ["step_end", "done"]
    assert run.run.state.messages[-1].text == "Rome is"


def test_the_end_of_a_run_is_written_once() -> None:
    run = Logged()
    run.feed(Text(0, "Hi."), Finish("stop"))
    run.take(run.run.ended())
    count = len(run.log)
    [emit] = run.crash()
    assert isinstance(emit, Emit)
    assert isinstance(emit.events[0], Done)
    assert run.events_since(count) == ["taken"]


def test_every_input_of_the_machine_leaves_an_event() -> None:
    """A new method of `Run` must be listed here with the event by which a log knows of it."""
    inputs = {
        "begin": "step_start", "step_prepared": "step_start", "request_failed": "retry", "chunks": "the chunks",
        "ended": "step_end", "failed": "error",
        "tool_progress": "itself",
        "tool_done": "tool_end", "tool_late": "tool_end", "decide": "decision", "provide": "tool_end", "say": "said",
            "call_expired": "tool_end",
        "cancel": "done", "expire": "done", "pause": "waiting",
        "tool_asks": "approval_request", "question_closed": "",  # a question ends with the process of its tool
        "inner_begins": "nested", "inner_emitted": "nested", "outer_stopped": "done",
        "call_reviewed": "itself", "tool_prepared": "",  # what was prepared is made again
        "result_revised": "tool_end", "call_forbidden": "done",
        "reached": "", "tools_listed": "",  # which a new owner finds out again
        "fold_unread": "", "spent": "",  # ends with the process, as the reader and the hooks do
    }  # fmt: skip
    methods = {name for name, value in vars(Run).items() if callable(value) and not name.startswith("_")}
    assert methods - {"tree", "dump"} == set(inputs)


def test_ends_and_results_agree() -> None:
    run = Logged()
    run.feed(call("look"), Finish("tool_calls"))
    run.take(run.run.ended())
    [start] = starts(run.commands)
    run.take(run.run.tool_done(start.key, Outcome((Text(0, "sunny"),))))
    ends = [event.result for event in run.log if isinstance(event, ToolEnd)]
    assert [list(message.results) for message in run.run.state.messages if message.results] == [ends]

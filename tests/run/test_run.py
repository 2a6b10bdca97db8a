"""The state machine of a run, without I/O."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from penstock import (
    Done,
    Finish,
    Limits,
    Reasoning,
    Retry,
    StepEnd,
    StreamChunk,
    StreamEvent,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    ToolEnd,
    Usage,
    tool,
)
from penstock.messages import user
from penstock.results import Outcome
from penstock.run.commands import AskModel, Command, StartTool
from penstock.run.load import load
from penstock.run.machine import Run
from penstock.tools.policy import ToolPolicy
from tests.growth import assert_linear
from tests.leaks import nothing_is_left  # noqa: F401
from tests.scripted_runs import LOOK, Machine, check_ends, check_history, emitted, made, texts_of

# -- calls that change -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_done_early", [False, True])
def test_a_call_that_changes_after_it_closed_has_one_execution_with_the_final_arguments(is_done_early: bool) -> None:
    machine = Machine(look=LOOK)
    machine.feed(ToolCallStart(0, "c", "look"), ToolCallDelta(0, "{}"), ToolCallClosed(0, "c", "look", {}))
    early = machine.starts[0].key
    if is_done_early:
        machine.done(early, "early")
    machine.feed(ToolCall("c", "look", {"city": "Rome"}, sealed_by="call_end"), Finish("tool_calls"))
    machine.done(early, "too late")
    assert [start.arguments for start in machine.starts] == [{}, {"city": "Rome"}]
    assert machine.cancelled == ([] if is_done_early else [early])
    machine.ended()
    machine.done(machine.starts[1].key, "final")
    assert [result.text for result in machine.requests[1][-1].results] == ["final"]
    assert [event.ending for event in machine.events if isinstance(event, ToolEnd)] == ["discarded", "done"]
    check_ends(machine.events)


def test_a_call_that_closes_twice_with_the_same_arguments_runs_once() -> None:
    machine = Machine(look=LOOK)
    closed = ToolCallClosed(0, "c", "look", {"city": "Rome"})
    machine.feed(ToolCallStart(0, "c", "look"), closed, closed)
    machine.feed(ToolCall("c", "look", {"city": "Rome"}), Finish("tool_calls"))
    assert len(machine.starts) == 1
    assert not machine.cancelled


def test_a_call_whose_arguments_change_their_kind_has_changed() -> None:
    machine = Machine(look=LOOK)
    machine.feed(ToolCallStart(0, "c", "look"), ToolCallClosed(0, "c", "look", {"number": 1}))
    machine.feed(ToolCall("c", "look", {"number": True}), Finish("tool_calls"))
    assert [start.arguments["number"] is True for start in machine.starts] == [False, True]
    assert machine.cancelled == ["1.0"]


def test_a_withdrawn_response_discards_its_executions() -> None:
    machine = Machine(look=LOOK)
    machine.feed(ToolCallStart(0, "c", "look"), ToolCallClosed(0, "c", "look", {"city": "Rome"}), Retry("broken"))
    assert machine.cancelled == [machine.starts[0].key]
    machine.feed(Text(0, "Never mind."), Finish("stop"))
    machine.ended()
    assert [message.role for message in machine.run.state.messages] == ["user", "assistant"]
    check_ends(machine.events)


def test_a_call_without_an_end_is_reported_as_cut() -> None:
    machine = Machine(look=LOOK)
    machine.feed(ToolCallStart(0, "c", "look"), ToolCallDelta(0, "{}"), ToolCallClosed(0, "c", "look", {}))
    machine.feed(ToolCallStart(1, "d", "look"), Finish("tool_calls"))
    machine.ended()
    assert [event.ending for event in machine.events if isinstance(event, ToolEnd)] == ["discarded", "failed", "failed"]
    assert all("the call is cut" in result.text for result in machine.requests[1][-1].results)


def test_a_cut_call_does_not_run_even_if_run_repaired_names_it() -> None:
    run = Run([user("Go.")], {"look": ToolPolicy()}, run_repaired=["cut"])
    run.begin()
    commands = run.chunks([ToolCallInvalid(0, "c", "look", "{", "cut", repaired={}), Finish("tool_calls")])
    assert not any(isinstance(command, StartTool) for command in [*commands, *run.ended()])


def test_no_call_starts_early_when_the_token_limit_is_reached() -> None:
    machine = Machine(look=LOOK)
    machine.run = Run([user("Go.")], {"look": LOOK}, Limits(tokens=100))
    machine.run.begin()
    machine.feed(ToolCallClosed(0, "a", "look", {}), Usage(90, 20), ToolCallClosed(1, "b", "look", {"city": "Rome"}))
    assert [start.call_id for start in machine.starts] == ["a"]


# -- words that are true -----------------------------------------------------------------------------------------------


CLOSED = (ToolCallStart(0, "c", "look"), ToolCallDelta(0, "{}"), ToolCallClosed(0, "c", "look", {}))


WHOLE = (*CLOSED, ToolCall("c", "look", {}, "{}", sealed_by="call_end"))


def cancelled(policy: ToolPolicy, *chunks: StreamChunk) -> list[str]:
    machine = Machine(look=policy)
    machine.feed(*chunks)
    machine.commands += machine.run.cancel()
    check_ends(machine.events)
    return [result.text for result in machine.run.state.messages[-1].results]


def test_the_result_of_a_cancelled_call_says_whether_it_ran() -> None:
    started = "Cancelled after it had been started"
    assert cancelled(LOOK, *CLOSED) == [f"{started}: the run was cancelled."]
    assert cancelled(LOOK, *WHOLE) == [f"{started}: the run was cancelled."]
    effect = f"{started}, so it may have had an effect: the run was cancelled."
    assert cancelled(ToolPolicy(start="call"), *WHOLE) == [effect]
    assert cancelled(ToolPolicy(start="call", is_read_only=True), *WHOLE) == [f"{started}: the run was cancelled."]
    assert cancelled(ToolPolicy(), *WHOLE) == ["Not run: the run was cancelled."]
    assert cancelled(ToolPolicy(), *CLOSED[:1]) == ["Not run: the run was cancelled."]


@pytest.mark.parametrize("is_done_early", [False, True])
def test_cancelling_discards_the_execution_of_an_unconfirmed_call(is_done_early: bool) -> None:
    machine = Machine(look=LOOK)
    machine.feed(ToolCallStart(0, "c", "look"), ToolCallDelta(0, "{}"), ToolCallClosed(0, "c", "look", {}))
    if is_done_early:
        machine.done(machine.starts[0].key, "early")
    machine.commands += machine.run.cancel()
    text = (
        "It ran, but the call was never confirmed" if is_done_early else "Cancelled after it had been started: the run"
    )
    [result] = machine.run.state.messages[-1].results
    assert result.text.startswith(text)
    check_ends(machine.events)
    check_history(machine.run.state.messages)


def test_a_tool_whose_call_was_not_read_to_its_end_is_discarded_in_event_and_history() -> None:
    machine = Machine(look=LOOK)
    machine.feed(*CLOSED)
    [start] = machine.starts
    unread = emitted(machine.run.tool_done(start.key, Outcome((Text(0, "sunny"),))))
    unread += emitted(machine.run.chunks([ToolCall("c", "look", {}, "{}", sealed_by="call_end")]))
    assert [event.result.text for event in unread if isinstance(event, ToolEnd)] == ["sunny"]
    [end] = [event for event in emitted(machine.run.cancel(unread=unread)) if isinstance(event, ToolEnd)]
    [result] = machine.run.state.messages[-1].results
    assert (end.ending, end.result) == ("discarded", result)
    assert result.text.startswith("Discarded: the tool ran")
    check_history(machine.run.state.messages)


def test_what_was_not_read_before_the_time_was_over_is_not_in_the_history_after_a_cancel() -> None:
    run = Run([user("Go.")], {"look": LOOK})
    run.begin()
    chunks: list[StreamChunk] = [Text(0, "Rome"), Text(0, " is sunny."), ToolCallStart(1, "c", "look")]
    unread = emitted(run.chunks(chunks))[1:]  # the reader has read "Rome"
    run.state.response.fold(len(unread))
    run.say(user("And Oslo?"))
    expired = emitted(run.expire("the time is over"))
    assert [message.role for message in run.state.messages] == ["user", "assistant", "tool", "user"]
    [step_end, done] = emitted(run.cancel("enough", unread + expired))[-2:]
    assert isinstance(step_end, StepEnd)
    assert isinstance(done, Done)
    assert [message.text for message in done.messages] == ["Go.", "Rome", "And Oslo?"]
    assert done.output == "Rome"


@pytest.mark.parametrize(("is_done", "text"), [(True, "sunny"), (False, "Discarded: the answer was withdrawn.")])
def test_a_call_that_was_read_keeps_its_result_until_the_reader_reads_that_it_was_withdrawn(
    is_done: bool, text: str
) -> None:
    machine = Machine(look=LOOK)
    machine.feed(*CLOSED, ToolCall("c", "look", {}, "{}", sealed_by="call_end"))
    if is_done:
        machine.done(machine.starts[0].key, "sunny")
    machine.run.state.response.fold(0)
    unread = emitted(machine.run.chunks([Retry("again")]))
    assert texts_of(machine.run.state.history) == [text]
    machine.run.cancel("enough", unread)
    assert texts_of(machine.run.state.messages) == [text]
    check_history(machine.run.state.messages)


def test_the_history_shows_the_state_of_an_unconfirmed_call() -> None:
    machine = Machine(look=LOOK)
    machine.feed(*CLOSED)
    assert texts_of(machine.run.state.history) == ["It was still running when this was written."]
    machine.done(machine.starts[0].key, "early")
    assert texts_of(machine.run.state.history) == ["It ran, but its call was not confirmed yet when this was written."]


# -- decisions ---------------------------------------------------------------------------------------------------------


def test_a_decision_is_checked_once() -> None:
    checked: list[int] = []

    @tool(approval=True)
    def risky(number: int) -> str:
        """Do it."""
        return f"did {number}"

    policy = made([], risky).config.policies["risky"]

    def check(arguments: dict[str, Any]) -> dict[str, Any]:
        checked.append(arguments["number"])
        return arguments

    run = Run([user("Go.")], {"risky": type(policy)(needs_approval=True, check=check)})
    run.begin()
    run.chunks([ToolCall("c", "risky", {"number": 1}, sealed_by="call_end")])
    run.chunks([Finish("tool_calls")])
    run.ended()
    run.decide("c", True, {"number": 2})
    assert checked.count(2) == 1


# -- stored anywhere ---------------------------------------------------------------------------------------------------


def answer(step: int) -> list[StreamChunk]:
    """The chunks of the model at each of three steps."""

    def one(block: int, name: str, arguments: dict[str, Any]) -> list[StreamChunk]:
        id, raw = f"c{step}{block}", json.dumps(arguments)
        return [
            ToolCallStart(block, id, name), ToolCallDelta(block, raw), ToolCallClosed(block, id, name, arguments),
            ToolCall(id, name, arguments, raw, sealed_by="call_end", block=block),
        ]  # fmt: skip

    if step == 3:
        return [Text(0, "All "), Text(0, "done."), Usage(5, 3), Finish("stop")]
    calls = [*one(1, "look", {"city": "Rome"}), *one(2, "write", {"text": f"{step}"}), *one(3, "shell", {"step": step})]
    return [Text(0, "Hm."), *calls, Usage(10, 7), Finish("tool_calls")]


POLICIES = {
    "look": LOOK, "write": ToolPolicy(start="turn"), "shell": ToolPolicy(start="turn", parallel=False),
}  # fmt: skip


@dataclass(frozen=True)
class Said:
    chunk: StreamChunk


@dataclass(frozen=True)
class Ended:
    pass


@dataclass(frozen=True)
class Worked:
    key: str


def play(store_at: int, policies: dict[str, ToolPolicy] = POLICIES) -> tuple[Run, Counter[str], int]:
    """Three steps; before the input of that number the run is stored, and another one continues it."""
    machine = Run([user("Go.")], policies)
    ran: Counter[str] = Counter()
    inputs: list[Said | Ended | Worked] = []
    fed = 0

    def carry_out(commands: list[Command]) -> None:
        for command in commands:
            if isinstance(command, AskModel):
                # As a model does: it continues from the history.
                step = 1 + sum(message.role == "tool" for message in command.messages)
                inputs.extend(Said(chunk) for chunk in answer(min(step, 3)))
                inputs.append(Ended())
            elif isinstance(command, StartTool):
                machine.reached(command)
                ran[f"{command.name} {json.dumps(command.arguments)}"] += 1
                inputs.insert(len(inputs) // 2, Worked(command.key))

    carry_out(machine.begin())
    while inputs:
        if fed == store_at:
            machine = load(machine.dump(), policies)[0]
            inputs.clear()
            carry_out(machine.begin())
            if machine.state.is_over:
                break
        fed += 1
        match inputs.pop(0):
            case Said(chunk):
                carry_out(machine.chunks([chunk]))
                machine.state.response.fold(0)
            case Ended():
                carry_out(machine.ended())
            case Worked(key):
                carry_out(machine.tool_done(key, Outcome((Text(0, "ok"),))))
    return machine, ran, fed


def test_a_run_stored_between_any_two_inputs_ends_the_same() -> None:
    whole, ran, count = play(-1)
    assert whole.state.output == "All done."
    assert all(times == 1 for key, times in ran.items() if not key.startswith("look"))
    for at in range(count + 1):
        stored, again, _ = play(at)
        assert stored.state.is_over, at
        assert stored.state.output == "All done.", at
        check_history(stored.state.messages)
        assert all(times == 1 for key, times in again.items() if not key.startswith("look")), (at, again)
        roles = [message.role for message in whole.state.messages]
        assert [message.role for message in stored.state.messages] == roles, at
        assert stored.state.step == whole.state.step, at


def test_a_loaded_run_does_not_start_a_tool_again_that_had_started_early() -> None:
    policies = {name: ToolPolicy(start="call") for name in POLICIES}
    _, _, count = play(-1, policies)
    for at in range(count + 1):
        stored, again, _ = play(at, policies)
        assert stored.state.is_over
        check_history(stored.state.messages)
        assert all(times <= 1 for key, times in again.items() if not key.startswith("look")), (at, again)


def test_executions_of_a_response_that_is_requested_again_are_discarded() -> None:
    policies = {"look": ToolPolicy(start="closed")}
    machine = Run([user("Go.")], policies)
    machine.begin()
    for chunk in (ToolCallStart(0, "c", "look"), ToolCallClosed(0, "c", "look", {})):
        machine.chunks([chunk])
    machine.state.response.fold(0)
    begun = load(machine.dump(), policies)[0].begin()
    ends = [event for event in emitted(begun) if isinstance(event, ToolEnd)]
    assert [(end.key, end.ending) for end in ends] == [("1.0", "discarded")]


def test_a_stored_run_knows_the_ids_that_were_used() -> None:
    machine = Machine(write=ToolPolicy())
    written = ToolCall("c", "write", {}, "{}", sealed_by="call_end")
    machine.feed(written, Finish("tool_calls"))
    machine.ended()
    machine.run = load(machine.run.dump(), {"write": ToolPolicy()})[0]
    machine.commands += machine.run.begin()
    machine.feed(written, Finish("tool_calls"))
    machine.ended()
    assert [start.call_id for start in machine.starts] == ["c", "c_2"]


# -- many calls --------------------------------------------------------------------------------------------------------


def many_calls(count: int, policy: ToolPolicy) -> None:
    """The machine's work for an answer of so many calls."""
    run = Run([user("Go.")], {"look": policy}, Limits(repeats=None, calls_per_answer=None))
    due = run.begin()
    for at in range(count):
        arguments = {"at": at}
        due += run.chunks([ToolCallClosed(at, f"c{at}", "look", arguments)])
        due += run.chunks([ToolCall(f"c{at}", "look", arguments, sealed_by="call_end", block=at)])
    run.chunks([Finish("tool_calls")])
    due += run.ended()
    ended = 0
    while starts := [command for command in due if isinstance(command, StartTool)]:
        due = []
        for start in starts:
            assert not run.is_waiting
            ended += 1
            due += run.tool_done(start.key, Outcome((Text(0, "ok"),)))
    assert ended == count
    assert run.state.step == 2


@pytest.mark.parametrize("policy", [LOOK, ToolPolicy(), ToolPolicy(parallel=False)], ids=["early", "turn", "alone"])
def test_many_calls_in_one_response_take_linear_time(policy: ToolPolicy) -> None:
    assert_linear(lambda count: lambda: many_calls(count, policy), 500, 8)


def test_many_approvals_take_linear_time() -> None:
    def work(count: int) -> Callable[[], object]:
        run = Run([user("Go.")], {"pay": ToolPolicy(needs_approval=True)}, Limits(repeats=None, calls_per_answer=None))
        run.begin()
        for at in range(count):
            run.chunks([ToolCall(f"c{at}", "pay", {"at": at}, sealed_by="call_end", block=at)])
        run.chunks([Finish("tool_calls")])
        run.ended()

        def decide() -> None:
            for at in range(count):
                run.decide(f"c{at}", False)
            assert run.state.step == 2

        return decide

    assert_linear(work, 500, 8)


# -- numbers -----------------------------------------------------------------------------------------------------------


def blocks_of(events: list[StreamEvent]) -> list[int]:
    return list(dict.fromkeys(event.block for event in events if hasattr(event, "block")))


def call_look(machine: Machine, city: str) -> None:
    arguments = {"city": city}
    machine.feed(Text(0, "Hm."), ToolCallStart(1, "c", "look"), ToolCallClosed(1, "c", "look", arguments))
    machine.feed(ToolCall("c", "look", arguments, sealed_by="call_end", block=1), Finish("tool_calls"))
    machine.ended()


def test_blocks_and_ids_are_unique_within_a_run_and_the_same_in_events_and_history() -> None:
    machine = Machine(look=LOOK)
    call_look(machine, "Rome")
    machine.done(machine.starts[0].key, "sunny")
    call_look(machine, "Oslo")
    machine.done(machine.starts[1].key, "rainy")
    machine.feed(Reasoning(0, "Well."), Text(1, "Done."), Finish("stop"))
    machine.ended()
    assert blocks_of(machine.events) == [0, 1, 2, 3, 4, 5]
    parts = [part for message in machine.run.state.messages if message.role == "assistant" for part in message.parts]
    assert blocks_of(parts) == [0, 1, 2, 3, 4, 5]  # type: ignore[arg-type]
    assert [start.call_id for start in machine.starts] == ["c", "c_2"]
    assert texts_of(machine.run.state.messages) == ["sunny", "rainy"]


def test_the_blocks_of_a_withdrawn_response_are_not_used_again() -> None:
    machine = Machine(look=LOOK)
    machine.feed(Text(0, "Let"), Text(1, "me"), Retry("broken"), Text(0, "Done."), Finish("stop"))
    assert blocks_of(machine.events) == [0, 1, 2]


def test_a_run_that_continues_elsewhere_continues_its_block_numbers() -> None:
    machine = Machine(look=LOOK)
    call_look(machine, "Rome")
    machine.run = load(machine.run.dump(), {"look": LOOK})[0]
    machine.take(machine.run.begin())
    machine.done(machine.starts[-1].key, "sunny")
    machine.feed(Text(0, "Done."), Finish("stop"))
    assert blocks_of(machine.events) == [0, 1, 2]

"""What a response asks of the client: calls to run or to refuse, vendor items to act on, errors to handle."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

import penstock
from penstock import Done, Error, Finish, Message, Model, Opaque, StreamChunk, Text, ToolCall, ToolCallInvalid, check
from penstock.messages import answer_invalid, result, user
from penstock.run.load import load
from penstock.run.machine import Run
from penstock.testing import Raw, Reply, Scripted, call, say
from penstock.tools.policy import ToolPolicy
from penstock.wires import WIRES
from tests.scripted_runs import NAMES, check_history, drive, emitted, model_on, on, run_of, streaming
from tests.support import vectors

CALL = ToolCall("c1", "look", {"city": "Rome"}, block=1)
BROKEN = ToolCallInvalid(2, "c2", "look", '{"city":"Os', "cut", "the call was cut")
both_modes = pytest.mark.parametrize("mode", ["sync", "async"])
WORK = {vector.name: vector for vector in vectors() if vector.expected.get("client_work")}
every_work = pytest.mark.parametrize("name", WORK)


@pytest.mark.parametrize(
    ("events", "type"),
    [
        ([Text(0, "4"), Finish("stop")], "final_answer"),
        ([Text(0, "4"), Finish("length")], "final_answer"),
        ([CALL, Finish("tool_calls")], "tool_calls"),
        ([Text(0, "I look."), BROKEN, Finish("tool_calls")], "invalid_calls"),
        ([Text(0, "I look."), BROKEN, Finish("stop")], "invalid_calls"),
        ([CALL, BROKEN, Finish("tool_calls")], "tool_calls"),
        ([Text(0, "4"), Error("overloaded"), Finish("error")], "error"),
        ([CALL, Error("overloaded"), Finish("error")], "error"),
        ([BROKEN, Error("overloaded"), Finish("error")], "error"),
        ([Text(0, "4"), Finish("error")], "error"),
        ([Opaque(0, "w", "k", {}), Finish("stop", client_work="k")], "paused"),
        ([CALL, Finish("tool_calls", client_work="k")], "tool_calls"),
    ],
)
def test_the_type_of_a_turn_says_what_to_do_next(events: list[StreamChunk], type: str) -> None:
    assert penstock.collect(events).type == type


@both_modes
@pytest.mark.parametrize("wire", [wire for wire in WIRES if wire not in ("gemini", "ollama")])  # which send objects
def test_a_broken_call_is_not_a_final_answer(wire: str, mode: str) -> None:
    script = Scripted([Reply(say("Let me look."), call("look", '{"city":"Os'), finish="tool_calls")])
    model = model_on(wire, via=script)
    if mode == "sync":
        turn = model.complete("Go.", tools=["look"])
    else:
        turn = asyncio.run(model.acomplete("Go.", tools=["look"]))
    assert turn.type in ("invalid_calls", "error")
    assert turn.invalid_calls


def test_one_call_tells_the_model_that_its_calls_are_invalid() -> None:
    turn = penstock.collect([Text(0, "I look."), CALL, BROKEN, Finish("tool_calls")])
    [answer] = answer_invalid(turn).results
    assert (answer.call_id, answer.name, answer.is_error) == ("c2", "look", True)
    assert answer.text == "Not run: the call is cut (the call was cut)."
    assert answer_invalid(Message("assistant", turn.parts)).results == [answer]
    assert answer_invalid(penstock.collect([Text(0, "4")])).results == []
    looked, own = result(CALL, {"sky": "blue"}), result(BROKEN, "Write shorter.", is_error=True)
    assert answer_invalid(turn, own).results == [own]
    assert answer_invalid(turn, looked).results == [looked, answer], "in the order of the calls"
    late = penstock.collect([msgspec.structs.replace(BROKEN, block=0), CALL])
    assert answer_invalid(late, looked).results == [answer, looked]
    history = [user("Go."), Message("assistant", turn.parts), answer_invalid(turn, looked)]
    assert check(history) == []
    wire: Any
    for wire in WIRES:
        assert "call is cut" in str(penstock.export_messages(history, wire))


def test_a_loop_of_your_own_continues_after_a_broken_call() -> None:
    broken = Reply(say("Wait."), call("look", '{"city":"Os'), finish="tool_calls")
    script = Scripted([broken, Reply(call("look", {"city": "Oslo"})), "Snow."])
    model = Model(NAMES["openai-chat"], via=script)
    history: list[Any] = [user("Go.")]
    turn = model.complete(history, tools=["look"])
    types = [turn.type]
    while turn.type in ("tool_calls", "invalid_calls"):
        results = [result(one, {"sky": "grey"}) for one in turn.tool_calls]
        history += [turn, answer_invalid(turn, *results)]
        turn = model.complete(history, tools=["look"])
        types.append(turn.type)
    assert (types, turn.text) == (["invalid_calls", "tool_calls", "final_answer"], "Snow.")


# -- work other than calls ---------------------------------------------------------------------------------------------


@both_modes
@every_work
def test_a_run_that_leaves_work_to_the_client_is_paused(name: str, mode: str) -> None:
    vector = WORK[name]
    model = Model(NAMES[vector.wire], via=Scripted([Raw(vector.body()), "Never."]))
    ended = run_of(penstock.Agent(model, tools=[tide]), mode, "Go.")
    calls = [call["id"] for call in vector.expected.get("vendor_calls", ())]
    assert (ended.reason, [request.call_id for request in ended.waiting]) == ("paused", calls)
    assert calls or f"({vector.expected['client_work']})" in ended.why
    check_history(list(ended.messages))


@penstock.tool(parallel=True)
def tide() -> str:
    """The tide."""
    return "high"


@both_modes
def test_calls_beside_the_work_run_before_the_pause(mode: str) -> None:
    vector = WORK["a-call-and-an-approval-request-both-wait"]
    model = Model(NAMES[vector.wire], via=Scripted([Raw(vector.body()), "Never."]))
    events, running = drive(streaming(penstock.Agent(model, tools=[tide])), mode)
    assert [event.result.text for event in events if isinstance(event, penstock.ToolEnd)] == ["high"]
    assert running.finish_reason == "paused"
    assert [part.text for part in running.messages[-1].results] == ["Not run yet: it waits for approval.", "high"]


def test_a_stored_run_keeps_the_work_of_the_client() -> None:
    policies = {"look": ToolPolicy(needs_approval=True)}
    run = Run([user("Go.")], policies)
    run.begin()
    run.chunks([CALL, Opaque(2, "w", "k", {}), Finish("tool_calls", client_work="k")])
    run.ended()
    for _ in range(2):
        run = load(run.dump(), policies)[0]
        run.begin()
    run.decide("c1", approved=False)
    assert run.state.is_over
    [done] = [event for event in emitted(run.begin()) if isinstance(event, Done)]
    assert done.reason == "paused"


@both_modes
def test_a_paused_response_is_continued_from_its_messages(mode: str) -> None:
    agent = on("anthropic", [Reply("It is", finish="pause_turn"), " noon."])
    paused = run_of(agent, mode, "Go.")
    assert (paused.reason, paused.text) == ("paused", "It is")
    again = run_of(agent, mode, None, paused.messages)
    assert (again.reason, again.output) == ("answered", " noon.")

"""Stored runs that were changed: they are refused when they are loaded, and a signature shows any change."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import penstock
from penstock import (
    Agent,
    Finish,
    Limits,
    Message,
    Opaque,
    Text,
    ToolCall,
    ToolCallStart,
    UsageError,
    as_messages,
    export_messages,
    tool,
)
from penstock.messages import assistant, result, tool_results, user
from penstock.run.load import load
from penstock.run.machine import Run
from penstock.run.stored import snapshot
from penstock.testing import Reply, Scripted, call
from penstock.tools.policy import ToolPolicy
from tests.scripted_runs import drive, end_of, made, resuming, sync_and_async

State = dict[str, Any]
KEY = b"a secret of the server"


def shop(paid: list[int]) -> Agent:
    @tool(approval=True)
    def pay(amount: int) -> str:
        """Pay somebody."""
        paid.append(amount)
        return f"paid {amount}"

    calls = [call("pay", {"amount": amount}, id=f"call_{amount}") for amount in (1, 2)]
    return made([Reply("I pay.", *calls), Reply("Paid.")], pay, limits=Limits(seconds=30))


def stored_state() -> State:
    """A run that waits for two approvals, as version 1 stored it."""
    agent = shop([])
    run, _ = load(agent.run("Pay.").state, agent.config.policies)
    state: State = json.loads(msgspec.json.encode(snapshot(run.state)))
    return state


def resume(agent: Agent, state: Any, mode: str, **options: Any) -> Any:
    stored = state if isinstance(state, bytes | str) else json.dumps(state)
    return agent.resume(stored, **options) if mode == "sync" else agent.aresume(stored, **options)


# -- what no run has stored --------------------------------------------------------------------------------------------


def equal_ids(state: State) -> None:
    for number in (0, 1):
        state["executions"][number]["call_id"] = "same"
        state["messages"][-1]["parts"][1 + number]["id"] = "same"


def other_arguments(state: State) -> None:
    state["executions"][0]["arguments"] = {"amount": 1_000_000}


def arguments_with_a_false_note(state: State) -> None:
    other_arguments(state)
    state["executions"][0]["note"] = "The user changed the arguments."


def another_tool(state: State) -> None:
    state["executions"][0]["name"] = "look"


def another_id(state: State) -> None:
    state["executions"][0]["call_id"] = "other"


def equal_keys(state: State) -> None:
    state["executions"][0]["key"] = state["executions"][1]["key"]


def equal_blocks(state: State) -> None:
    state["executions"][0]["block"] = state["executions"][1]["block"]


def equal_blocks_of_calls(state: State) -> None:
    parts = state["messages"][-1]["parts"]
    parts[1]["block"] = parts[2]["block"]


def an_execution_twice(state: State) -> None:
    state["executions"].append(state["executions"][0])


def an_execution_missing(state: State) -> None:
    state["executions"].pop()


def a_call_missing(state: State) -> None:
    state["messages"][-1]["parts"].pop()


def no_calls(state: State) -> None:
    state["messages"].append({"role": "user", "parts": [{"type": "text", "block": 0, "text": "Well?"}]})


def no_messages(state: State) -> None:
    state["messages"] = state["messages"][-1:]


def finished_without_a_result(state: State) -> None:
    state["executions"][0]["state"] = "finished"


def a_result_before_the_end(state: State) -> None:
    state["executions"][0]["result"] = {"type": "tool_result", "call_id": "call_1", "name": "pay"}


def a_result_of_another_call(state: State) -> None:
    a_result_before_the_end(state)
    state["executions"][0]["state"] = "finished"
    state["executions"][0]["result"]["call_id"] = "call_2"


def a_question_of_a_tool(state: State) -> None:
    state["executions"][0]["question"] = {"message": "Which account?"}


def executions_after_the_end(state: State) -> None:
    state["phase"] = "over"


def a_negative_count(state: State) -> None:
    state["tally"]["calls"] = -100


def a_block_out_of_range(state: State) -> None:
    state["next_block"] = 2**60


def a_call_in_a_user_message(state: State) -> None:
    state["messages"][0]["role"] = "assistant"


CHANGES: list[Callable[[State], None]] = [
    equal_ids, other_arguments, arguments_with_a_false_note, another_tool, another_id, equal_keys, equal_blocks,
    equal_blocks_of_calls, an_execution_twice, an_execution_missing, a_call_missing, no_calls, no_messages,
    finished_without_a_result, a_result_before_the_end, a_result_of_another_call, a_question_of_a_tool,
    executions_after_the_end, a_negative_count, a_block_out_of_range, a_call_in_a_user_message,
]  # fmt: skip


@sync_and_async
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_state_that_no_run_has_stored_is_refused(change: Callable[[State], None], mode: str) -> None:
    state, paid = stored_state(), list[int]()
    change(state)
    with pytest.raises(UsageError, match="the stored run is not valid"):
        resume(shop(paid), state, mode)
    assert paid == []


def test_a_state_that_is_nested_too_deeply_is_refused() -> None:
    stored = json.dumps(stored_state()).replace('{"amount": 1}', '{"amount": ' + "[" * 100_000 + "]" * 100_000 + "}", 1)
    with pytest.raises(UsageError, match="not a stored run"):
        shop([]).resume(stored)


@sync_and_async
def test_a_run_that_began_with_a_bad_history_can_be_resumed(mode: str) -> None:
    @tool(approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        return f"paid {amount}"

    orphan = tool_results(result(ToolCall("gone", "look", {}), "seen"))
    agent = made([Reply(call("pay", {"amount": 1})), Reply("Paid.")], pay)
    stored = agent.run("Pay.", messages=[user("Hi."), orphan]).state

    def approve(running: Any, event: Any) -> None:
        if event.type == "approval_request":
            running.decide(event.call_id, approved=True)

    events, running = drive(resuming(agent, stored), mode, approve)
    assert end_of(events).reason == "answered"
    assert penstock.check(running.messages) == []


# -- signatures --------------------------------------------------------------------------------------------------------


@sync_and_async
@pytest.mark.parametrize("key", [KEY, "text, also ünicode"])
def test_a_signed_run_continues_with_its_key(key: bytes | str, mode: str) -> None:
    paid: list[int] = []
    agent = shop(paid)
    signed = agent.run("Pay.").dump(key=key)
    again = json.dumps(json.loads(signed), indent=2, sort_keys=True)  # as a database may write it
    running = resume(agent, signed, mode, key=key)
    assert [request.call_id for request in running.waiting] == ["call_1", "call_2"]
    for stored in (again, running.dump(key=key)):
        assert resume(agent, stored, mode, key=key).waiting == running.waiting


@pytest.mark.parametrize("key", [12345, True, 1.5, [1, 2], [b"new", b"old"], object()])
def test_a_key_is_text_or_bytes(key: Any) -> None:
    """`bytes(12345)` is zeros, so a number would be a key that anyone can guess."""
    ended = shop([]).run("Pay.")
    with pytest.raises(UsageError, match="must be bytes or text"):
        ended.dump(key=key)
    with pytest.raises(UsageError, match="must be bytes or text"):
        shop([]).resume(ended.dump(key=KEY), key=key)


@pytest.mark.parametrize("key", [bytearray(b"key"), memoryview(b"key"), "\ud800"])
def test_every_kind_of_bytes_and_text_is_a_key(key: Any) -> None:
    assert shop([]).resume(shop([]).run("Pay.").dump(key=key), key=key).waiting


def test_dump_of_a_run_signs_it() -> None:
    agent = shop([])
    with agent.stream("Pay.") as run:
        for _ in run:
            pass
    assert json.loads(run.dump(key=KEY))["penstock_signed"] == 1
    assert agent.resume(run.dump(key=KEY), key=KEY).waiting
    assert agent.resume(run.dump()).waiting


@sync_and_async
def test_a_run_with_a_wrong_signature_is_refused(mode: str) -> None:
    agent = shop([])
    signed = json.loads(agent.run("Pay.").dump(key=KEY))
    changed = {**signed, "content": signed["content"].replace('"amount":1', '"amount":9')}
    assert changed != signed
    for wrong in (changed, {**signed, "signature": ""}, {**signed, "signature": "é"}):
        with pytest.raises(UsageError, match="was changed, or signed with another key"):
            resume(agent, wrong, mode, key=KEY)
    with pytest.raises(UsageError, match="was changed, or signed with another key"):
        resume(agent, signed, mode, key=b"another key")


@sync_and_async
def test_the_errors_say_whether_the_key_or_the_signature_is_missing(mode: str) -> None:
    agent = shop([])
    paused = agent.run("Pay.")
    with pytest.raises(UsageError, match="is signed; pass the key"):
        resume(agent, paused.dump(key=KEY), mode)
    with pytest.raises(UsageError, match="has no signature"):
        resume(agent, paused.state, mode, key=KEY)
    for missing in ({"penstock_signed": 1}, {"penstock_signed": 1, "signature": 5, "content": "x"}):
        with pytest.raises(UsageError, match="not a signed run"):
            resume(agent, missing, mode, key=KEY)
    with pytest.raises(UsageError, match="later version"):
        resume(agent, {"penstock_signed": 2}, mode, key=KEY)
    with pytest.raises(UsageError, match="is empty"):
        paused.dump(key=b"")
    with pytest.raises(UsageError, match="has no signature"):
        resume(agent, base64.b64encode(paused.state), mode, key=KEY)


# -- vendor state ------------------------------------------------------------------------------------------------------

MALFORMED: list[Opaque] = [
    Opaque(0, "anthropic", "caller", 0), Opaque(0, "anthropic", "caller", "direct"),
    Opaque(0, "anthropic", "toolset_name", {"a": 1}), Opaque(0, "gemini", "thought_signature", 5),
    Opaque(0, "gemini", "id", []), Opaque(0, "openai-chat", "extra_content", "x"),
    Opaque(0, "openai-responses", "function_call", None), Opaque(0, "bedrock", "fields", [1]),
]  # fmt: skip


@pytest.mark.parametrize("state", MALFORMED, ids=lambda state: f"{state.wire} {state.kind} {state.data}")
def test_malformed_vendor_state_is_left_out(state: Opaque) -> None:
    called = ToolCall("call_1", "look", {"a": 1})
    history = [
        user("Go."),
        Message("assistant", (called, state)),
        tool_results(result(called, "seen")),
        assistant("So."),
    ]
    assert penstock.check(history) == []
    assert as_messages([*history, "And?"])[1].parts == (called,)
    without = [history[0], assistant(called), *history[2:]]
    wire: Any = state.wire
    assert export_messages(history, wire) == export_messages(without, wire)


def test_malformed_state_that_a_provider_sends_does_not_go_back() -> None:
    block = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}, "caller": 0, "toolset_name": 7}
    body = {"type": "message", "role": "assistant", "content": [block], "stop_reason": "tool_use"}
    turn = penstock.collect(penstock.decode(json.dumps(body).encode(), wire="anthropic"))
    [seen] = turn.tool_calls
    history = [user("Go."), Message("assistant", turn.parts), tool_results(result(seen, "seen"))]
    assert penstock.check(history) == []
    script = Scripted(["Done."])
    penstock.Agent(penstock.Model("anthropic:m", via=script)).run(messages=history)
    [sent] = [part for part in script.requests[0].body["messages"][1]["content"] if part["type"] == "tool_use"]
    assert sent.keys() == {"type", "id", "name", "input"}


def test_an_interrupted_answer_is_asked_for_again_if_no_call_of_it_was_read() -> None:
    """A deferred call was handed over, but the response was not read so far: there is no call to keep."""
    policies = {"deliver": ToolPolicy(start="call", is_deferred=True)}
    run = Run([user("Go.")], policies)
    run.begin()
    run.chunks([Text(0, "I send it."), ToolCallStart(1, "c1", "deliver"), ToolCall("c1", "deliver", {}, "{}", block=1)])
    run.state.response.fold(2)
    again = load(run.dump(), policies)[0]
    again.begin()
    again.chunks([Text(0, "Done."), Finish("stop")])
    again.state.response.fold(0)
    again.ended()
    assert [message.role for message in again.state.history] == ["user", "assistant"]

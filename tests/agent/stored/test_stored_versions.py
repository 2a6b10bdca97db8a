"""Stored runs of both versions: the state of a run (1), which users may have stored, and its events (2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock import (
    Agent,
    ApprovalRequest,
    Limits,
    Model,
    Retry,
    StreamEvent,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallStart,
    ToolEnd,
    ToolOutput,
    ToolStart,
    UsageError,
    check,
    tool,
)
from penstock.messages import user
from penstock.results import Outcome
from penstock.run.commands import Emit
from penstock.run.load import load
from penstock.run.machine import Run
from penstock.testing import Reply, Scripted, call
from penstock.tools.policy import ToolPolicy

STORED = Path(__file__).parents[2] / "stored_runs"


class Shop:
    """An agent that pays if a person approves, and what it paid."""

    def __init__(self, *answers: Reply | str, expires: float | None = None, **options: Any) -> None:
        self.paid: list[int] = []

        @tool(approval=True, expires=expires)
        def pay(amount: int) -> ToolOutput:
            """Pay somebody."""
            self.paid.append(amount)
            return ToolOutput(f"paid {amount}", data={"private": "data"})

        @tool(read_only=True)
        def look(city: str) -> str:
            """Look."""
            return f"{city} is sunny"

        model = Model("anthropic:claude", via=Scripted([*answers, "Paid."]))
        self.agent = Agent(model, tools=[pay, look], **options)

    def decide(self, stored: bytes | str, *call_ids: str) -> tuple[list[StreamEvent], bytes, str]:
        """Approve calls of a stored run, and store it again; returns its events, and how it ended."""
        with self.agent.resume(stored) as run:
            for call_id in call_ids:
                run.decide(call_id, approved=True)
            events = list(run)
        assert check(run.messages) == []
        return events, run.dump(), run.finish_reason or ""


TWO_CALLS = Reply("I pay.", call("pay", {"amount": 1}, id="call_1"), call("pay", {"amount": 2}, id="call_2"))


def test_a_run_of_version_1_continues_and_is_stored_as_version_2() -> None:
    old = (STORED / "version-1-waiting.json").read_text(encoding="utf-8")
    shop = Shop()
    _, stored, reason = shop.decide(old, "call_1")
    assert (reason, shop.paid, json.loads(stored)["penstock_run"]) == ("paused", [1], 2)
    shop = Shop()
    events, stored, reason = shop.decide(stored, "call_2")
    assert (reason, shop.paid) == ("answered", [2])
    assert [event.result.text for event in events if isinstance(event, ToolEnd)] == ["paid 2"]
    assert json.loads(stored)["base"] is None


def test_what_a_run_of_version_1_has_used_counts() -> None:
    old = (STORED / "version-1-waiting.json").read_text(encoding="utf-8")
    _, stored, _ = Shop().decide(old, "call_1")
    limited = Shop(limits=Limits(steps=2))
    _, _, reason = limited.decide(stored, "call_2")
    assert (reason, limited.paid) == ("limit", [2])
    run, _ = load(stored, {})
    assert (run.state.step, run.state.tally.calls, run.usage.output_tokens > 0) == (2, 2, True)


def test_an_answer_that_version_1_stored_is_asked_for_again() -> None:
    old = (STORED / "version-1-streaming.json").read_text(encoding="utf-8")
    first, _ = load(old, {})
    again, _ = load(first.dump(), {})
    assert [message.text for message in again.state.history] == [message.text for message in first.state.history]
    events, _, reason = Shop().decide(again.dump())
    assert reason == "answered"
    assert sum(isinstance(event, Retry) for event in events) == 1


def test_a_stored_run_has_the_events_of_the_run_and_no_private_data() -> None:
    shop = Shop(Reply("Let me look.", call("look", {"city": "Rome"}, id="call_0")), TWO_CALLS)
    state = shop.agent.run("Pay.").state
    _, stored, _ = shop.decide(state, "call_1")
    events = json.loads(stored)["events"]
    types = [event["type"] for event in events]
    assert types[0] == "run_start"
    assert (types.count("step_start"), types.count("tool_end"), types.count("decision")) == (2, 2, 1)
    assert [event["text"] for event in events if event["type"] == "text"] == ["Let me look.", "I pay."]  # joined
    assert b"private" not in stored


def test_a_tool_whose_start_was_not_read_is_stored_as_not_started() -> None:
    ran: list[str] = []

    @tool
    def write(text: str) -> str:
        """Write."""
        ran.append(text)
        return "written"

    agent = Agent(
        Model("anthropic:claude", via=Scripted([Reply(call("write", {"text": "a"})), "Done."])), tools=[write]
    )
    stored = b""
    with agent.stream("Go.") as run:
        for event in run:
            if isinstance(event, ToolStart):
                stored = run.dump()
                break
    assert ran == []
    with agent.with_model(Model("anthropic:claude", via=Scripted(["Done."]))).resume(stored) as run:
        events = list(run)
    assert ran == ["a"]
    assert [event.ending for event in events if isinstance(event, ToolEnd)] == ["done"]


LOOK = ToolCall("c1", "look", {"city": "Rome"}, '{"city": "Rome"}', sealed_by="call_end", block=0)
READ_ONLY = {"look": ToolPolicy(start="closed", is_read_only=True)}


def test_a_tool_that_ran_before_its_call_was_read_counts_as_a_call_of_the_stored_run() -> None:
    run = Run([user("Go.")], READ_ONLY, Limits(calls=1))
    run.begin()
    run.chunks([ToolCallStart(0, "c1", "look"), LOOK])
    run.tool_done("1.0", Outcome((Text(0, "sunny"),)))
    loaded, _ = load(run.dump(), READ_ONLY, Limits(calls=1))  # nothing of it was read
    assert loaded.state.tally.calls == 1
    assert loaded.state.response.is_empty
    loaded.begin()
    assert [type(command) for command in loaded.chunks([ToolCallStart(0, "c1", "look"), LOOK])] == [Emit]


def test_a_call_whose_name_was_read_in_part_can_be_stored() -> None:
    run = Run([user("Go.")], READ_ONLY)
    run.begin()
    closed = ToolCallClosed(0, "c1", "look", {"city": "Rome"})
    run.chunks([ToolCallStart(0, "c1", "lo"), closed, LOOK])  # a name that came in pieces
    run.state.response.fold(1)
    loaded, _ = load(run.dump(), READ_ONLY)
    assert loaded.state.history[-1].results[0].is_error


def test_blocks_of_another_choice_are_not_used_again_after_a_run_was_stored() -> None:
    run = Run([user("Go.")], READ_ONLY)
    run.begin()
    run.chunks([Text(0, "A"), Text(1, "B", choice=1)])
    run.state.response.fold(0)
    loaded, _ = load(run.dump(), READ_ONLY)
    assert loaded.state.numbering.next_block == run.state.numbering.next_block == 2
    assert [part.block for part in loaded.state.response.builder.build().parts] == [0]


def test_the_time_to_wait_counts_while_a_run_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    shop = Shop(TWO_CALLS, expires=3600)
    state = shop.agent.run("Pay.").state
    deadline = json.loads(state)["deadlines"]["call_1"]
    monkeypatch.setattr("penstock.agent.stored_run.time.time", lambda: deadline - 1)
    with shop.agent.resume(state) as run:
        assert [request.call_id for request in run.waiting] == ["call_1", "call_2"]
        assert sum(isinstance(event, ApprovalRequest) for event in run) == 2
    monkeypatch.setattr("penstock.agent.stored_run.time.time", lambda: deadline + 1)
    events, _, reason = shop.decide(state)
    assert [event.ending for event in events if isinstance(event, ToolEnd)] == ["declined", "declined"]
    assert (reason, shop.paid) == ("answered", [])


def second_start(events: list[Any]) -> None:
    events.append(events[0])


def no_start(events: list[Any]) -> None:
    del events[0]


def another_step(events: list[Any]) -> None:
    events[1]["step"] = 7


def an_event_after_the_end(events: list[Any]) -> None:
    events[-1:-1] = [{"type": "done", "reason": "answered", "output": "", "messages": [], "usage": {"type": "usage"}}]


def a_tool_that_started_without_a_call(events: list[Any]) -> None:
    events.append({"type": "tool_start", "key": "1.9", "call_id": "x", "name": "pay", "arguments": {"amount": 9}})


def a_key_of_another_step(events: list[Any]) -> None:
    events.append({"type": "tool_start", "key": "5.1", "call_id": "call_1", "name": "pay", "arguments": {"amount": 9}})


def a_key_that_is_none(events: list[Any]) -> None:
    events.append({"type": "tool_start", "key": "one", "call_id": "call_1", "name": "pay", "arguments": {"amount": 9}})


@pytest.mark.parametrize(
    "change",
    [
        second_start, no_start, another_step, an_event_after_the_end, a_tool_that_started_without_a_call,
        a_key_of_another_step, a_key_that_is_none,
    ],
    ids=lambda change: change.__name__,
)  # fmt: skip
def test_events_that_no_run_has_stored_are_refused(change: Any) -> None:
    shop = Shop(TWO_CALLS)
    state = json.loads(shop.agent.run("Pay.").state)
    change(state["events"])
    with pytest.raises(UsageError, match=r"not valid|log of a run"):
        shop.agent.resume(json.dumps(state))
    assert shop.paid == []


@pytest.mark.parametrize("role", ["assistant", "user"])
def test_a_message_that_was_changed_in_a_stored_run_breaks_no_history(role: str) -> None:
    shop = Shop(TWO_CALLS)
    state = json.loads(shop.agent.run("Pay.").state)
    state["events"].append({"type": "said", "message": {"role": role, "parts": []}})
    if role == "assistant":
        with pytest.raises(UsageError, match="not one of the user"):
            shop.agent.resume(json.dumps(state))
    else:  # an empty one is left out
        assert shop.decide(json.dumps(state), "call_1", "call_2")[2] == "answered"

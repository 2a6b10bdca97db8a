"""A run that nobody owns is cancelled without its agent."""

from __future__ import annotations

from typing import Any

import pytest

from penstock import Agent, Done, Model, Runs, ToolEnd, ToolStart, check, tool
from penstock.log import Store
from penstock.log.ending import cancel_claimed, release_claimed
from penstock.log.inputs import cancel_input
from penstock.log.take_up import read_log
from penstock.run.rebuild import rebuild
from penstock.testing import Crashed, Reply, Scripted, call, crash_at
from tests.log_stores import Clock


@tool
def pay() -> str:
    """Pay."""
    return "paid"


@tool(approval=True)
def ask() -> str:
    """Ask."""
    return "asked"


def runs_of(store: Store, *calls: str) -> Runs:
    reply = Reply("Let me see.", *(call(name) for name in calls))
    agent: Agent[Any] = Agent(Model("openai:gpt-5", via=Scripted([reply])), tools=[pay, ask])
    return Runs(store, {"desk": agent})


@pytest.mark.parametrize("situation", ["new", "waiting", "before_request", "after_tool_start", "after_append:text"])
def test_a_run_is_cancelled_whatever_its_last_owner_left(store: Store, clock: Clock, situation: str) -> None:
    runs = runs_of(store, "ask") if situation == "waiting" else runs_of(store, "pay")
    run_id = runs.start("desk", "Pay.")
    if situation == "waiting":
        assert runs.drive(run_id).state == "waiting"
        runs.say(run_id, "Hurry.")
    elif situation != "new":
        point, _, detail = situation.partition(":")
        with crash_at(point, detail), pytest.raises(Crashed):  # type: ignore[arg-type]
            runs.drive(run_id)
        clock.now += 60
    store.put(cancel_input(run_id, "enough"))
    claim = store.claim("me", run_id=run_id)
    assert claim is not None
    assert cancel_claimed(store, claim, "enough")
    events = [event for _, _, event in read_log(store, run_id)]
    last = events[-1]
    assert isinstance(last, Done)
    assert (last.reason, last.why) == ("cancelled", "enough")
    starts = {event.key for event in events if isinstance(event, ToolStart)}
    assert starts <= {event.key for event in events if isinstance(event, ToolEnd)}
    assert check(rebuild(events, {}).state.messages) == []
    assert runs.find(run_id).state == "over"
    assert store.inputs([run_id]) == []


def test_a_run_that_another_worker_has_taken_is_not_cancelled(store: Store, clock: Clock) -> None:
    runs = runs_of(store, "pay")
    run_id = runs.start("desk", "Pay.")
    claim = store.claim("me", run_id=run_id)
    assert claim is not None
    clock.now += 60
    assert store.claim("other", run_id=run_id) is not None
    assert not cancel_claimed(store, claim, "enough")
    assert runs.find(run_id).state == "running"


def test_a_run_that_was_released_can_be_claimed_at_once(store: Store) -> None:
    run_id = runs_of(store, "pay").start("desk", "Pay.")
    claim = store.claim("me", run_id=run_id)
    assert claim is not None
    release_claimed(store, claim)
    assert store.claim("other", run_id=run_id) is not None

"""Calls that wait for a decision or a result only for some time (`@tool(expires=…)`), in one process and over many."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Agent, ApprovalRequest, Done, Model, Runs, ToolEnd, UsageError, tool
from penstock.log import Store
from penstock.log.take_up import read_log
from penstock.run.events import LogEvent, Waiting
from penstock.testing import FakeClock, Reply, Scripted, call
from tests.leaks import nothing_is_left  # noqa: F401
from tests.log_stores import open_store
from tests.scripted_runs import events_of, made, sync_and_async

HOUR = 3600.0


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock(1000.0)


@pytest.fixture(params=["sqlite", "postgres", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
    with open_store(request.param, tmp_path, url, lease=1e6, clock=clock) as store:
        yield store


class Desk:
    """An agent that pays after an approval, which must come within an hour."""

    def __init__(self, store: Store, **options: Any) -> None:
        self.paid: list[int] = []
        self.store = store
        self.waits: list[str] = []

        @tool(approval=True, expires=HOUR)
        def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return "paid"

        @tool(deferred=True, expires=HOUR)
        def ask_a_person(question: str) -> str:
            """Ask."""
            raise NotImplementedError

        answers = options.get("answers") or [Reply(call("pay", {"amount": 5})), "Well."]
        agent = Agent(Model("openai:gpt-5", via=Scripted(answers)), tools=[pay, ask_a_person])
        self.runs = Runs(store, {"desk": agent}, on_waiting=self.waits.append)

    def log(self, run_id: str) -> list[LogEvent]:
        return [event for _, _, event in read_log(self.store, run_id)]

    def wait(self) -> tuple[str, str]:
        """A run that waits, and the id of its call."""
        run_id = self.runs.start("desk", "Pay.")
        row = self.runs.drive(run_id)
        assert (row.state, self.waits) == ("waiting", [run_id])
        [request] = [event for event in self.log(run_id) if isinstance(event, ApprovalRequest)]
        assert request.expires == HOUR
        return run_id, request.call_id

    def ending(self, run_id: str) -> tuple[str, str]:
        """How the call ended, and what the model read."""
        [end] = [event for event in self.log(run_id) if isinstance(event, ToolEnd)]
        assert isinstance(self.log(run_id)[-1], Done)
        return end.ending, end.result.text


def test_a_stored_run_is_woken_when_its_approval_expires(store: Store, clock: FakeClock) -> None:
    desk = Desk(store)
    run_id, _ = desk.wait()
    assert store.claim("early") is None
    assert [*store.claimable()] == []
    assert desk.runs.drive(run_id).state == "waiting"
    clock.advance(HOUR - 1)
    assert desk.runs.drive(run_id).state == "waiting"
    clock.advance(2)
    assert [row.id for row in store.claimable(agents=["desk"])] == [run_id]
    assert [*store.claimable(agents=["another"])] == []
    assert desk.runs.drive(run_id).state == "over"
    assert desk.ending(run_id) == ("declined", "Not run: nobody approved this call within 3600 seconds.")
    assert desk.paid == []


def test_a_worker_wakes_a_run_whose_approval_has_expired(store: Store, clock: FakeClock) -> None:
    desk = Desk(store)
    run_id, _ = desk.wait()

    async def work() -> None:
        worker = asyncio.create_task(desk.runs.awork(poll=0.01))
        clock.advance(HOUR + 1)
        async for _ in desk.runs.afollow(run_id):
            pass
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)

    asyncio.run(work())
    assert desk.ending(run_id)[0] == "declined"


def test_a_decision_that_came_in_time_counts_also_if_nobody_took_it_before(store: Store, clock: FakeClock) -> None:
    desk = Desk(store)
    run_id, call_id = desk.wait()
    desk.runs.decide(run_id, call_id, approved=True)
    clock.advance(HOUR + 1)
    assert desk.runs.drive(run_id).state == "over"
    assert (desk.ending(run_id), desk.paid) == (("done", "paid"), [5])


def test_a_decision_that_came_too_late_does_not_count(store: Store, clock: FakeClock) -> None:
    desk = Desk(store)
    run_id, call_id = desk.wait()
    clock.advance(HOUR + 1)
    desk.runs.decide(run_id, call_id, approved=True)
    assert desk.runs.drive(run_id).state == "over"
    assert (desk.ending(run_id)[0], desk.paid) == ("declined", [])


def test_a_call_expires_also_if_its_decision_in_time_was_not_valid(store: Store, clock: FakeClock) -> None:
    desk = Desk(store)
    run_id, call_id = desk.wait()
    desk.runs.decide(run_id, call_id, approved=True, arguments={"amount": "a lot"})
    clock.advance(HOUR + 1)
    desk.runs.drive(run_id)
    clock.advance(1)
    assert desk.runs.drive(run_id).state == "over"
    assert (desk.ending(run_id)[0], desk.paid) == ("declined", [])


def test_the_time_to_wait_counts_over_all_owners(store: Store, clock: FakeClock) -> None:
    desk = Desk(store)
    run_id, _ = desk.wait()
    clock.advance(HOUR / 2)
    desk.runs.say(run_id, "Hurry.")
    assert desk.runs.drive(run_id).state == "waiting"
    first, second = [event.seconds for event in desk.log(run_id) if isinstance(event, Waiting)]
    assert first == pytest.approx(HOUR, abs=100)
    assert second == pytest.approx(HOUR / 2, abs=100)
    clock.advance(HOUR / 2 + 1)
    assert desk.runs.drive(run_id).state == "over"
    assert desk.ending(run_id)[0] == "declined"


def test_a_deferred_call_whose_result_does_not_come_fails(store: Store, clock: FakeClock) -> None:
    desk = Desk(store, answers=[Reply(call("ask_a_person", {"question": "Why?"})), "Well."])
    run_id, _ = desk.wait()
    clock.advance(HOUR + 1)
    assert desk.runs.drive(run_id).state == "over"
    ending, text = desk.ending(run_id)
    assert (ending, "no result came within 3600 seconds" in text) == ("failed", True)


@sync_and_async
def test_a_run_in_one_process_goes_on_when_an_approval_expires(mode: str) -> None:
    @tool(approval=True, expires=0.05)
    def pay(amount: int) -> str:
        """Pay."""
        raise AssertionError

    agent = made([Reply(call("pay", {"amount": 5})), "Well."], pay, approvals="wait")
    events = events_of(agent, mode)
    [end] = [event for event in events if isinstance(event, ToolEnd)]
    assert (end.ending, end.result.text) == ("declined", "Not run: nobody approved this call within 0.05 seconds.")
    assert isinstance(done := events[-1], Done)
    assert (done.reason, done.output) == ("answered", "Well.")


def test_expires_is_for_tools_that_wait() -> None:
    with pytest.raises(UsageError, match="expires is for calls that wait: add approval"):
        tool(lambda: 1, name="pay", expires=5)
    with pytest.raises(UsageError, match="expires must be a positive number"):
        tool(lambda: 1, name="pay", approval=True, expires=0)

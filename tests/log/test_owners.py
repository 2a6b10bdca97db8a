"""A run with several owners: its time limit, its takeovers and the keys of its tools count over all of them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock import Agent, Context, Done, Limits, Model, Runs, ToolStart, UsageError, tool
from penstock.log import SQLiteStore, Store
from penstock.log.ending import release_claimed
from penstock.log.store import UnknownRunError
from penstock.log.take_up import read_log
from penstock.run.events import LogEvent, Waiting
from penstock.runs.driving import DEPS_PAUSE
from penstock.testing import Crashed, FakeClock, Reply, Scripted, call, crash_at

LEASE = 30.0


class Desk:
    """An agent whose tool takes some seconds of the clock of its store."""

    def __init__(self, store: Store, clock: FakeClock, limits: Limits, seconds: float = 0.0) -> None:
        self.keys: list[str] = []
        self.store = store
        self._clock = clock

        @tool(idempotent=True)
        def look(context: Context[Any]) -> str:
            """Look."""
            clock.advance(seconds)
            self.keys.append(context.key)
            return "sunny"

        def answer(request: Any) -> Reply | str:
            return "Sunny." if len(request.results) > 1 else Reply("I look.", call("look"))

        self.agent = Agent(Model("openai:gpt-5", via=Scripted(answer)), tools=[look], limits=limits)
        self.runs = Runs(store, {"desk": self.agent})

    def crash(self, run_id: str, point: Any, detail: str = "", number: int = 1) -> None:
        """A process that owns the run ends; afterwards its lease has expired."""
        with crash_at(point, detail, number=number), pytest.raises(Crashed):
            self.runs.drive(run_id)
        self._clock.advance(LEASE + 1)

    def log(self, run_id: str) -> list[LogEvent]:
        return [event for _, _, event in read_log(self.store, run_id)]

    def end(self, run_id: str) -> Done:
        assert self.runs.drive(run_id).state == "over"
        done = self.log(run_id)[-1]
        assert isinstance(done, Done)
        return done


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[Store]:
    store = SQLiteStore(tmp_path / "runs.db", lease=LEASE, clock=clock)
    yield store
    store.close()


def test_the_time_limit_of_a_run_counts_the_time_of_all_its_owners(store: Store, clock: FakeClock) -> None:
    desk = Desk(store, clock, Limits(seconds=1000), seconds=600)
    run_id = desk.runs.start("desk", "Weather?")
    desk.crash(run_id, "before_request", number=2)
    desk.crash(run_id, "before_request", number=2)  # after another 600 seconds
    assert (desk.end(run_id).reason, len(desk.keys)) == ("limit", 2)


def test_the_time_between_two_owners_does_not_count(store: Store, clock: FakeClock) -> None:
    desk = Desk(store, clock, Limits(seconds=1000), seconds=300)
    run_id = desk.runs.start("desk", "Weather?")
    desk.crash(run_id, "before_request", number=2)
    clock.advance(100_000)
    assert desk.end(run_id).reason == "answered"


def test_a_run_that_ends_its_workers_is_parked(store: Store, clock: FakeClock) -> None:
    desk = Desk(store, clock, Limits(takeovers=2))
    run_id = desk.runs.start("desk", "Weather?")
    for _ in range(3):
        desk.crash(run_id, "before_request")
    assert desk.runs.drive(run_id).state == "parked"
    waiting = desk.log(run_id)[-1]
    assert isinstance(waiting, Waiting)
    assert waiting.why.startswith("3 workers died or lost the run in one step")
    assert desk.runs.claimable() == []
    assert store.claim("another worker", run_id=run_id) is None
    assert desk.runs.drive(run_id).state == "parked"


def test_a_parked_run_that_is_retried_continues_alone(store: Store, clock: FakeClock) -> None:
    desk = Desk(store, clock, Limits(takeovers=0))
    run_id, other = desk.runs.start("desk", "Weather?"), desk.runs.start("desk", "And tomorrow?")
    assert not desk.runs.retry(run_id)  # it is not parked
    desk.crash(run_id, "before_request")
    assert desk.runs.drive(run_id).state == "parked"
    assert desk.runs.retry(run_id)
    desk.crash(run_id, "before_request")
    assert desk.runs.drive(run_id).state == "parked"  # it ends its worker again
    assert desk.runs.retry(run_id)
    assert [claim.run_id for claim in store.claim_next("a busy worker", limit=5)] == [other]
    [claim] = store.claim_next("a worker without runs", limit=5, group="")
    assert claim.run_id == run_id
    release_claimed(store, claim)
    assert desk.end(run_id).reason == "answered"
    with pytest.raises(UnknownRunError):
        desk.runs.retry("nobody")


def test_answers_and_messages_leave_a_parked_run_parked_and_a_cancel_ends_it(store: Store, clock: FakeClock) -> None:
    desk = Desk(store, clock, Limits(takeovers=0))
    run_id = desk.runs.start("desk", "Weather?")
    desk.crash(run_id, "after_tool_start")
    assert desk.runs.drive(run_id).state == "parked"
    keys = list(desk.keys)
    assert desk.runs.say(run_id, "Hurry.")
    desk.runs.decide(run_id, "no such call", True)
    assert desk.runs.find(run_id).state == "parked"
    assert desk.runs.cancel(run_id, "not needed")
    done = desk.end(run_id)
    assert (done.reason, done.why, desk.keys) == ("cancelled", "not needed", keys)  # its tool did not run again


def test_a_run_that_workers_give_back_is_not_ended(store: Store, clock: FakeClock) -> None:
    desk = Desk(store, clock, Limits(takeovers=2))
    run_id = desk.runs.start("desk", "Weather?")
    for _ in range(10):
        claim = store.claim("a worker that is stopped", run_id=run_id)
        assert claim is not None
        release_claimed(store, claim)
    assert desk.end(run_id).reason == "answered"


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_no_exception_of_deps_ends_a_run(error: type[BaseException], store: Store, clock: FakeClock) -> None:
    desk = Desk(store, clock, Limits())
    run_id = desk.runs.start("desk", "Weather?")

    def fail(meta: Any) -> Any:
        raise error

    with pytest.raises(error):
        Runs(store, {"desk": desk.agent}, deps=fail).drive(run_id)
    row = desk.runs.find(run_id)
    assert (row.state, row.lost) == ("waiting" if error is GeneratorExit else "ready", 0)
    clock.advance(DEPS_PAUSE + 1)
    assert desk.end(run_id).reason == "answered"


@pytest.mark.parametrize("error", [ConnectionError, UsageError])
def test_a_run_whose_deps_fail_is_tried_again_later(error: type[Exception], store: Store, clock: FakeClock) -> None:
    desk = Desk(store, clock, Limits(takeovers=2))
    run_id = desk.runs.start("desk", "Weather?")

    def fail(meta: Any) -> Any:
        raise error("the database of customers is away")

    runs = Runs(store, {"desk": desk.agent}, deps=fail)
    for _ in range(10):
        with pytest.raises(error):
            runs.drive(run_id)
        assert runs.claimable() == []
        assert (runs.find(run_id).lost, store.suspects()) == (0, [])
        clock.advance(DEPS_PAUSE + 1)
        assert runs.claimable() == [run_id]
    assert desk.end(run_id).reason == "answered"


def test_progress_begins_the_count_of_takeovers_again(store: Store, clock: FakeClock) -> None:
    desk = Desk(store, clock, Limits(takeovers=1))
    run_id = desk.runs.start("desk", "Weather?")
    for _ in range(2):
        desk.crash(run_id, "before_request", number=2)  # after a tool has ended
    assert desk.end(run_id).reason == "answered"


def test_a_key_is_used_again_only_for_the_same_execution(store: Store, clock: FakeClock) -> None:
    desk = Desk(store, clock, Limits())
    run_id = desk.runs.start("desk", "Weather?")
    desk.crash(run_id, "after_append", "tool_call")  # a response that is asked for again
    desk.crash(run_id, "after_tool_end", "look")  # a tool that runs again
    assert desk.end(run_id).reason == "answered"
    starts = [event.key for event in desk.log(run_id) if isinstance(event, ToolStart)]
    assert len(starts) == len(set(starts)) == 2
    assert desk.keys == [f"{run_id}:{key}" for key in (starts[0], *starts)]


def test_drive_does_not_return_while_another_process_owns_the_run(
    store: Store, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = Desk(store, clock, Limits())
    run_id = desk.runs.start("desk", "Weather?")
    assert store.claim("another process", run_id=run_id) is not None
    attempts, claim = threading.Semaphore(0), store.claim

    def attempt(*args: Any, **options: Any) -> Any:
        attempts.release()
        return claim(*args, **options)

    monkeypatch.setattr(store, "claim", attempt)
    with ThreadPoolExecutor(1) as pool:
        driven = pool.submit(desk.runs.drive, run_id)
        for _ in range(3):
            assert attempts.acquire(timeout=30)
        assert not driven.done()
        clock.advance(LEASE + 1)  # the other process has died
        assert driven.result(30).state == "over"

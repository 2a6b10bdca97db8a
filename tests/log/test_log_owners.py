"""Owners of runs: leases, clocks that jump, workers with one name, time limits, and agents that have changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from penstock import Agent, AgentRun, Done, Limits, LostRunError, Model, Runs, StoreError, ToolEnd, tool
from penstock.agent.driver.ownership import Ownership
from penstock.log import PostgresStore, RunRow, SQLiteStore, Store, points
from penstock.log.bodies import body_of
from penstock.log.flusher import flusher_of
from penstock.log.in_memory import MemoryStore
from penstock.log.run_writer import RunCallbacks
from penstock.log.start import new_start
from penstock.log.store import MAX_LEASES, Batch, Claim, first_claim
from penstock.log.take_up import begin, read_log, take_up
from penstock.messages import user
from penstock.run.events import Taken, Waiting
from penstock.runs import runs as runs_module
from penstock.testing import Crashed, Reply, Scripted, call, crash_at
from tests.log.sqlite.connections import connection_of
from tests.log_stores import Clock, Desk

SOON = 30.0


def test_two_workers_with_one_name_do_not_share_a_run(store: Store) -> None:
    desk = Desk(store)
    other = Runs(store, {"desk": desk.agent})
    other._owner = desk.runs._owner
    run_id = desk.runs.start("desk", "Send it.")
    states: list[str] = []
    threads = [
        threading.Thread(target=lambda runs=runs: states.append(runs.drive(run_id).state))
        for runs in (desk.runs, other, desk.runs, other)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert states == ["over"] * 4
    assert desk.sent == ["sent"]
    assert desk.log(run_id).count("taken") == 1


def test_a_tool_that_would_begin_after_the_end_of_its_log_does_not_begin_and_the_run_is_not_lost() -> None:
    """A tool whose thread begins while its run is cancelled; with a lease that has ended, the run is lost."""
    desk, errors = Desk(store := MemoryStore()), list[Exception]()
    run_id = desk.runs.start("desk", "Send it.")
    claim = store.claim("worker", run_id=run_id)
    assert claim is not None
    ownership = Ownership(None)
    ownership.log = flusher_of(store).attach(claim, RunCallbacks(lambda: None, lambda input: None, errors.append))
    assert ownership.may_start()
    ownership.log.deadline = 0.0
    assert not ownership.may_start()
    assert [type(error) for error in errors] == [LostRunError]
    ownership.log.close()
    assert not ownership.may_start()
    assert len(errors) == 1


def test_driving_a_run_that_is_over_changes_nothing(store: Store) -> None:
    desk = Desk(store)
    run_id = desk.runs.start("desk", "Send it.")
    assert desk.runs.drive(run_id).state == "over"
    before = desk.log(run_id)
    assert desk.runs.drive(run_id).state == "over"
    assert desk.log(run_id) == before


def test_a_reader_may_join_at_every_event(store: Store) -> None:
    desk = Desk(store)
    run_id = desk.runs.start("desk", "Send it.")
    desk.runs.drive(run_id)
    events = list(desk.runs.follow(run_id))
    for after in range(len(events)):
        assert list(desk.runs.follow(run_id, after)) == events[after:]


def test_a_lease_of_a_clock_that_was_set_back_ends(store: Store, clock: Clock) -> None:
    store.create(RunRow(id="r", agent="desk"), b"start")
    clock.now += 86_400.0
    assert store.claim("dead") is not None
    clock.now -= 86_400.0
    assert store.claim("next") is not None  # and not only in a day
    clock.now -= (MAX_LEASES - 2) * store.lease  # a smaller step only makes the lease longer
    assert store.claim("other") is None


def test_a_worker_with_a_short_lease_respects_a_long_one(store: Store) -> None:
    if isinstance(store, MemoryStore):
        pytest.skip("a store in memory is opened once, with one lease")
    store.create(RunRow(id="r", agent="desk"), b"start")
    store.lease = 600.0
    assert store.claim("one") is not None
    store.lease = 1.0
    assert list(store.claimable()) == []
    assert store.claim("two") is None


def test_a_clock_that_is_set_forward_starts_no_tool_twice(store: Store, clock: Clock) -> None:
    desk = Desk(store)
    claims: list[Claim | None] = []

    def jump(point: points.Point, details: Iterable[str], writer: Any) -> None:
        if point == "before_tool_start" and not claims:
            clock.now += 86_400.0
            claims.append(store.claim("other", run_id="r"))

    points.hook = jump
    try:
        with pytest.raises(LostRunError), desk.agent.stream("Send it.", log=store, run_id="r") as run:
            list(run)
    finally:
        points.hook = None
    assert claims[0] is not None
    clock.now += store.lease + 1
    assert desk.runs.drive("r").state == "over"
    assert len(desk.sent) <= 1


def test_the_lease_of_a_claim_begins_before_the_store_is_asked(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    times: list[float] = []

    def slow() -> float:
        times.append(time.monotonic())
        return 1000.0

    monkeypatch.setattr(store, "_clock", slow)
    store.create(RunRow(id="r", agent="desk"), b"start")
    times.clear()
    claim = store.claim("one")
    assert claim is not None
    assert claim.deadline <= times[0] + store.lease


def test_a_worker_that_was_frozen_after_its_claim_starts_nothing(store: Store, clock: Clock) -> None:
    ran: list[str] = []

    @tool(idempotent=True)
    def put() -> str:
        """Put."""
        ran.append("put")
        return "put"

    agent = Agent(Model("openai:gpt-5", via=Scripted([Reply(call("put"))])), tools=[put], name="desk")
    runs = Runs(store, {"desk": agent})
    run_id = runs.start("desk", "Put it.")
    with crash_at("after_append", "tool_start"), pytest.raises(Crashed):
        runs.drive(run_id)
    clock.now += store.lease + 1
    claim = store.claim("frozen")
    assert claim is not None
    frozen = msgspec.structs.replace(claim, deadline=time.monotonic())
    run, owned = take_up(store, frozen, agent.config.policies)
    clock.now += store.lease + 1
    assert store.claim("another") is not None  # else it could renew its lease, and continue
    with pytest.raises(LostRunError, match="taken over"), AgentRun(agent.config, run, None, owned) as running:
        list(running)
    assert ran == []


def test_a_run_is_rebuilt_up_to_its_claim(store: Store, clock: Clock) -> None:
    desk = Desk(store)
    desk.runs.start("desk", "Send it.", run_id="r")
    claim = store.claim("frozen")
    assert claim is not None
    clock.now += store.lease + 1
    desk.runs.drive("r")
    run, _ = take_up(store, claim, desk.agent.config.policies)
    assert run.state.phase == "new"


def test_a_run_that_is_created_with_an_owner_begins_as_if_its_log_had_been_read(store: Store) -> None:
    desk = Desk(store)
    row, start = new_start("desk", [user("Send it.")], "r", meta={"users": (1, 2)})
    assert store.create(row, body_of(start), owner="one")
    claim = first_claim(store, row, time.monotonic())
    begun, owned = begin(store, claim, start, desk.agent.config.policies)
    rebuilt, again = take_up(store, claim, desk.agent.config.policies)
    assert begun.dump() == rebuilt.dump()
    assert owned == replace(again, inputs=())
    assert not again.inputs


def test_a_run_that_is_created_with_an_owner_is_taken_over_like_any_other(store: Store, clock: Clock) -> None:
    row, start = new_start("desk", [user("Send it.")], "r")
    assert store.create(row, body_of(start), owner="one")
    assert store.find("r") == RunRow(
        id="r", agent="desk", state="running", epoch=1, owner="one", lease_until=clock.now + store.lease, seq=2,
        created=clock.now, updated=clock.now,
    )  # fmt: skip
    assert store.claim("two") is None
    assert not store.create(row, body_of(start), owner="two"), "it exists, and its owner is the same"
    assert store.append([Batch("r", 1, 2, [b"3"])], durable=True) == [True]
    clock.now += store.lease + 1
    claim = store.claim("two")
    assert claim is not None
    assert (claim.epoch, claim.seq, claim.previous_state) == (2, 4, "running")
    assert store.append([Batch("r", 1, 3, [b"4"])], durable=True) == [False]
    assert [event for _, _, event in read_log(store, "r", 1, 2)] == [Taken(1, "one")]


def test_the_time_limit_of_a_run_counts_all_its_owners(store: Store, clock: Clock) -> None:
    desk = Desk(store, limits=Limits(seconds=5))
    desk.runs.start("desk", "Send it.", run_id="r")
    for seconds in (2.0, 2.5, -3600.0):  # a clock that is set back does not give time back
        claim = store.claim("one")
        assert claim is not None
        clock.now += seconds
        assert store.append([Batch("r", claim.epoch, claim.seq, [b'{"type":"waiting"}'], "ready")], durable=True)
    claim = store.claim("last")
    assert claim is not None
    _, owned = take_up(store, claim, desk.agent.config.policies)
    assert owned.seconds == pytest.approx(4.5)


# -- agents that have changed ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("moment", ["before_append:tool_start", "before_tool_start", "after_tool_end", "waiting"])
def test_tools_that_were_renamed_since_do_not_start(moment: str, store: Store, clock: Clock) -> None:
    ran: list[str] = []

    def agent(suffix: str) -> Agent[Any]:
        def run(name: str) -> Callable[[], str]:
            def function() -> str:
                ran.append(name)
                return "done"

            function.__name__ = name + suffix
            return function

        tools = [
            tool(run("put"), idempotent=True), tool(run("send")), tool(run("ask"), deferred=True),
            tool(run("pay"), approval=True),
        ]  # fmt: skip

        def answer(request: Any) -> Reply | str:
            names = ("put", "send", "ask", "pay")
            return "Done." if request.results else Reply(*(call(name, id=name) for name in names))

        return Agent(Model("openai:gpt-5", via=Scripted(answer)), tools=tools)

    runs = Runs(store, {"desk": agent("")})
    runs.start("desk", "Go.", run_id="r")
    if moment == "waiting":
        assert runs.drive("r").state == "waiting"
    else:
        point, _, detail = moment.partition(":")
        with crash_at(point, detail), pytest.raises(Crashed):  # type: ignore[arg-type]
            runs.drive("r")
        clock.now += store.lease + 1
    ran.clear()
    renamed = Runs(store, {"desk": agent("_v2")})
    renamed.drive("r")
    renamed.decide("r", "pay", True)
    renamed.provide("r", "ask", "yes")
    assert renamed.drive("r").state == "over"
    assert ran == []
    ends = {event.name: event.result.text for _, _, event in read_log(store, "r") if isinstance(event, ToolEnd)}
    assert set(ends) == {"pay", "put", "send", "ask"}
    assert ends["pay"].startswith("There is no tool called 'pay'")


# -- inputs and crashes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("point", ["before_append", "after_append"])
def test_a_cancel_that_was_accepted_outlives_the_worker_that_took_it(point: Any, store: Store, clock: Clock) -> None:
    desk = Desk(store)
    desk.runs.start("desk", "Send it.", run_id="r")
    desk.runs.cancel("r", "changed my mind")
    with crash_at(point, "done"), pytest.raises(Crashed):
        desk.runs.drive("r")
    clock.now += store.lease + 1
    assert desk.runs.drive("r").state == "over"
    assert not desk.runs.cancel("r")
    done = [event for _, _, event in read_log(store, "r") if isinstance(event, Done)]
    assert [(end.reason, end.why) for end in done] == [("cancelled", "changed my mind")]
    assert desk.sent == []


@pytest.mark.parametrize("point", ["before_append", "after_append"])
def test_a_decision_that_was_accepted_outlives_the_worker_that_took_it(point: Any, store: Store, clock: Clock) -> None:
    ran: list[str] = []

    @tool(approval=True)
    def pay(amount: int) -> str:
        """Pay."""
        ran.append(f"{amount}")
        return "paid"

    def answer(request: Any) -> Reply | str:
        return "Paid." if request.results else Reply(call("pay", {"amount": 500}, id="c"))

    runs = Runs(store, {"desk": Agent(Model("openai:gpt-5", via=Scripted(answer)), tools=[pay])})
    runs.start("desk", "Pay.", run_id="r")
    assert runs.drive("r").state == "waiting"
    assert runs.decide("r", "c", True, {"amount": 5})
    with crash_at(point, "decision"), pytest.raises(Crashed):
        runs.drive("r")
    clock.now += store.lease + 1
    assert not runs.decide("r", "c", False)
    assert runs.drive("r").state == "over"
    types = [event.type for _, _, event in read_log(store, "r")]
    assert types.count("decision") == types.count("tool_end") == 1
    assert ran in (["5"], [])  # none if the log had its start in the unit of the decision, and the worker died then


def test_all_runs_that_can_continue_are_listed_by_pages(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs_module, "PAGE", 3)
    runs = Runs(store, {"desk": Agent("sim:demo")})
    for name in ("g", "a", "f", "b", "e", "c", "d"):
        runs.start("desk", "Pay.", run_id=name)
        clock.now += name in "fe"  # several changed at the same time
    store.create(RunRow(id="other", agent="another"), b"start")
    assert runs.claimable() == ["a", "f", "g", "b", "e", "c", "d"]
    assert runs.claimable(4) == ["a", "f", "g", "b"]
    assert store.claim("one", run_id="g") is not None
    assert runs.claimable() == ["a", "f", "b", "e", "c", "d"]


def test_a_run_that_ends_its_workers_is_parked(store: Store, clock: Clock) -> None:
    @tool(idempotent=True)  # so that it starts after the end of the response
    def crash() -> str:
        """Crash."""
        return "never"

    agent = Agent(Model("openai:gpt-5", via=Scripted(lambda request: Reply(call("crash")))), tools=[crash],
                  limits=Limits(takeovers=2))  # fmt: skip
    runs = Runs(store, {"desk": agent})
    runs.start("desk", "Crash.", run_id="r")
    crashes = 0
    for _ in range(10):
        with crash_at("after_tool_start"):
            try:
                runs.drive("r")
                break
            except Crashed:
                crashes += 1
        clock.now += store.lease + 1
    assert crashes == 3
    assert runs.find("r").state == "parked"
    *_, (_, _, waiting) = read_log(store, "r")
    assert isinstance(waiting, Waiting)
    assert waiting.why.split()[0] == "3"
    assert [row.id for row in store.list(state="parked")] == ["r"]


def test_an_append_that_fails_leaves_nothing(store: Store) -> None:
    if isinstance(store, MemoryStore):
        pytest.skip("an append to memory does not fail half-way")
    for run_id in ("a", "b"):
        store.create(RunRow(id=run_id, agent="desk"), b"start")
        assert store.claim("one", run_id=run_id) is not None
    if isinstance(store, SQLiteStore):
        connection_of(store._file).execute(
            "CREATE TRIGGER failing BEFORE INSERT ON events WHEN new.run_id = 'b' AND new.seq = 4 "
            "BEGIN SELECT RAISE(ABORT, 'the disk failed'); END"
        )
    else:
        assert isinstance(store, PostgresStore)
        store._execute("ALTER TABLE {schema}.events ADD CHECK (run_id <> 'b' OR seq <> 4)")
    units = [Batch("a", 1, 2, [b"1", b"2"]), Batch("b", 1, 2, [b"1", b"2", b"3"])]
    with pytest.raises(StoreError):
        store.append(units, durable=True)
    assert [seq for seq, _, _ in store.read("a")] == [1, 2]
    assert [seq for seq, _, _ in store.read("b")] == [1, 2]
    assert [row.seq for row in store.list()] == [2, 2]

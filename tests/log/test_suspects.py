"""Runs whose worker has died: which of them continue together, and how they are cleared, on every store."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from penstock import Agent, Limits, Model, Runs, tool
from penstock.log import RunRow, Store
from penstock.log.bodies import event_of
from penstock.log.ending import release_claimed
from penstock.log.store import Batch, Claim
from penstock.log.suspects import is_joinable, park, trial_seconds, was_alone
from penstock.run.events import Taken
from penstock.runs.quarantine import DRAIN_LEASES, Quarantine
from penstock.testing import Crashed, Reply, Scripted, call, crash_at, wait
from tests.log_stores import Clock


def create(store: Store, *run_ids: str) -> None:
    for run_id in run_ids:
        store.create(RunRow(id=run_id, agent="desk"), b"start")


def claim_group(store: Store, owner: str) -> list[Claim]:
    """What a worker without runs claims."""
    return store.claim_next(owner, limit=100, group="")


def names(claims: list[Claim]) -> list[str]:
    return sorted(claim.run_id for claim in claims)


def test_the_runs_of_a_dead_worker_continue_in_groups_that_halve(store: Store, clock: Clock) -> None:
    runs = [f"r{number:02}" for number in range(16)]
    create(store, *runs)
    assert names(claim_group(store, "worker 0")) == runs
    suspects, cause = runs, "r05"
    claims: list[Claim] = []
    for death in range(1, 6):
        clock.now += store.lease + 1
        create(store, f"healthy {death}")
        claims = claim_group(store, f"worker {death}")
        while cause not in names(claims):  # those without the cause are cleared
            store.acquit([(claim.run_id, claim.epoch) for claim in claims])
            assert store.append([Batch(claim.run_id, claim.epoch, claim.seq, (), "over") for claim in claims],
                                durable=True) == [True] * len(claims)  # fmt: skip
            claims = claim_group(store, f"worker {death}")
        assert {claim.lost for claim in claims} == {death}
        assert set(names(claims)) <= set(suspects)
        assert len(claims) == (16 if death == 1 else len(suspects) // 2)
        suspects = names(claims)
    assert suspects == [cause]
    assert not was_alone(claims[0].suspect)
    clock.now += store.lease + 1
    [claim] = claim_group(store, "the last worker")
    assert (claim.run_id, claim.lost, was_alone(claim.suspect)) == (cause, 6, True)


def test_runs_with_a_running_tool_go_first_and_apart(store: Store, clock: Clock) -> None:
    create(store, "a", "b", "c", "d")
    claims = store.claim_next("one", limit=4)
    marks = {"b": True, "d": True}
    store.append([Batch(claim.run_id, 1, 2, (), in_tool=marks.get(claim.run_id)) for claim in claims], durable=True)
    clock.now += store.lease + 1
    assert names(claim_group(store, "two")) == ["b", "d"]
    assert names(claim_group(store, "three")) == ["a", "c"]


def test_a_busy_worker_takes_suspects_that_have_lost_one_worker_only(store: Store, clock: Clock) -> None:
    create(store, "a", "b")
    assert len(store.claim_next("one", limit=2)) == 2
    clock.now += store.lease + 1
    assert names(store.claim_next("busy", limit=2)) == ["a", "b"]
    clock.now += store.lease + 1
    create(store, "new")
    assert names(store.claim_next("also busy", limit=5)) == ["new"]
    assert sorted(row.id for row in store.suspects()) == ["a", "b"]
    assert store.suspects(agents=["another"]) == []
    assert len(claim_group(store, "without runs")) == 1


def test_a_completed_step_clears_a_run_and_counts_from_zero(store: Store, clock: Clock) -> None:
    create(store, "a")
    for number in range(3):
        [claim] = claim_group(store, f"worker {number}")
        clock.now += store.lease + 1
    [claim] = claim_group(store, "the next one")
    assert claim.lost == 3
    assert not is_joinable(claim.suspect)
    assert store.append([Batch("a", claim.epoch, claim.seq, (), progress="step")], durable=True) == [True]
    row = store.find("a")
    assert row is not None
    assert (row.lost, row.suspect) == (0, "")


def test_a_run_that_survives_is_no_suspect_and_keeps_its_count(store: Store, clock: Clock) -> None:
    create(store, "a")
    claim_group(store, "one")
    clock.now += store.lease + 1
    [claim] = claim_group(store, "two")
    store.acquit([("a", claim.epoch - 1)])  # of an earlier owner
    assert (store.find("a") or RunRow(id="")).suspect
    store.acquit([("a", claim.epoch)])
    row = store.find("a")
    assert row is not None
    assert (row.lost, row.suspect) == (1, "")
    assert [trial_seconds(lost, 15.0) for lost in range(6)] == [15, 15, 30, 60, 120, 120]


def test_a_worker_that_was_cut_off_and_lives_is_not_held_against_its_runs(store: Store, clock: Clock) -> None:
    create(store, "a", "b")
    claims = store.claim_next("one", limit=2)
    clock.now += store.lease + 1
    assert store.claim("two", run_id="nobody") is None  # which notes that the leases have ended
    assert [row.lost for row in store.list()] == [1, 1]
    first, second = claims
    assert store.renew([(first.run_id, 1)]) == [True]
    assert store.append([Batch(second.run_id, 1, 2, [b"1"])], durable=True) == [True]
    assert [(row.lost, row.suspect) for row in store.list()] == [(0, ""), (0, "")]


def test_leases_of_one_worker_count_as_ended_when_all_of_them_are(store: Store, clock: Clock) -> None:
    create(store, "a", "b")
    store.claim_next("one", limit=2)
    clock.now += store.lease * 0.6
    assert store.renew([("b", 1)]) == [True]
    clock.now += store.lease * 0.6
    assert claim_group(store, "two") == []  # the lease of `b` lasts: `a` follows soon
    clock.now += store.lease * 0.6
    assert names(claim_group(store, "two")) == ["a", "b"]


def test_a_run_that_a_living_worker_forgot_is_no_suspect(store: Store, clock: Clock) -> None:
    create(store, "a", "b")
    store.claim_next("one", limit=2)
    for _ in range(5):
        clock.now += store.lease * 0.5
        assert store.renew([("b", 1)]) == [True]
    [claim] = claim_group(store, "two")
    assert (claim.run_id, claim.lost, claim.suspect) == ("a", 0, "")


def test_a_released_suspect_is_still_one(store: Store, clock: Clock) -> None:
    create(store, "a")
    for number in range(2):
        claim_group(store, f"worker {number}")
        clock.now += store.lease + 1
    [claim] = claim_group(store, "stops")
    release_claimed(store, claim)
    assert store.claim_next("busy", limit=5) == []
    [again] = claim_group(store, "without runs")
    assert (again.lost, again.suspect) == (2, claim.suspect)


def test_a_clock_that_is_set_back_makes_suspects_and_ends_nothing(store: Store, clock: Clock) -> None:
    create(store, "a", "b")
    store.claim_next("one", limit=2)
    clock.now -= 1000 * store.lease
    assert names(claim_group(store, "two")) == ["a", "b"]
    clock.now += 2000 * store.lease
    assert {row.state for row in store.list()} == {"running"}
    assert claim_group(store, "three")


def test_a_worker_with_suspects_takes_nothing_else_until_they_are_cleared(store: Store, clock: Clock) -> None:
    create(store, "a", "b", "later")
    store.claim_next("one", limit=2)
    clock.now += store.lease + 1
    held = Quarantine(store)
    assert names([*held.take("two", ["desk"], 10)]) == ["a", "b"]
    assert held.take("two", ["desk"], 10) == []
    assert held.admits(RunRow(id="later"))  # whoever drives a run by its id need not wait for these
    with held.holding(Claim("a", "desk", 2, 3, 0.0)), held.holding(Claim("b", "desk", 2, 3, 0.0)):
        pass
    assert names([*held.take("two", ["desk"], 10)]) == ["later"]


def test_a_busy_worker_makes_room_for_suspects_that_nobody_takes(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(store, "a", "b", "c", "d")
    for number in range(2):
        assert len(store.claim_next(f"worker {number}", limit=4, group="")) == 4
        clock.now += store.lease + 1
    assert store.claim("anybody", run_id="nobody") is None  # which notes that the leases have ended
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    held = Quarantine(store)
    with held.holding(Claim("x", "desk", 1, 2, 0.0)):
        create(store, "first", "second")
        assert names([*held.take("two", ["desk"], 1)]) == ["first"]  # it has seen the suspects
        now += 2 * store.lease
        assert held.take("two", ["desk"], 10) == ()  # and makes room
        now += (DRAIN_LEASES + 1) * store.lease
        assert names([*held.take("two", ["desk"], 10)]) in (["a", "b"], ["c", "d"])  # its own run takes too long


class Kitchen:
    """An agent whose tool is interrupted again and again, although it has side effects."""

    def __init__(self, store: Store) -> None:
        self.store = store

        @tool
        def cook() -> str:
            """Cook."""
            return "cooked"

        self.agent = Agent(
            Model("openai:gpt-5", via=Scripted(lambda _: Reply(call("cook")))), [cook], name="desk",
            limits=Limits(takeovers=2, steps=30),
        )  # fmt: skip

    def drive(self, run_id: str) -> Any:
        return Runs(self.store, {"desk": self.agent}).drive(run_id)


def test_a_step_whose_tool_was_interrupted_is_not_progress(store: Store, clock: Clock) -> None:
    kitchen = Kitchen(store)
    Runs(store, {"desk": kitchen.agent}).start("desk", "Cook.", run_id="r")
    for _ in range(3):
        with crash_at("after_tool_start"), pytest.raises(Crashed):
            kitchen.drive("r")
        clock.now += store.lease + 1
    assert kitchen.drive("r").state == "parked"


def test_a_suspect_that_survives_is_cleared_by_its_worker(store: Store, clock: Clock) -> None:
    agent = Agent(Model("openai:gpt-5", via=Scripted([Reply("Hello", wait(3.0), ".")])), name="desk")
    runs = Runs(store, {"desk": agent})
    runs.start("desk", "Hello?", run_id="r")
    assert store.claim("dies", run_id="r") is not None
    clock.now += store.lease + 1
    store.lease = 0.3

    async def drive() -> list[tuple[str, int, str]]:
        seen: list[tuple[str, int, str]] = []
        task = asyncio.create_task(runs.adrive("r"))
        while not task.done():
            row = runs.find("r")
            seen.append((row.state, row.lost, row.suspect[:2]))
            await asyncio.sleep(0.02)
        await task
        return seen

    seen = asyncio.run(drive())
    assert ("running", 1, "2a") in seen
    assert ("running", 1, "") in seen  # it has survived, and its step is not completed
    row = runs.find("r")
    assert (row.state, row.lost, row.suspect) == ("over", 0, "")


def test_a_takeover_says_whether_the_last_worker_was_lost(store: Store, clock: Clock) -> None:
    create(store, "a")
    [claim] = claim_group(store, "one")
    release_claimed(store, claim)
    claim_group(store, "two")
    clock.now += store.lease + 1
    claim_group(store, "three")
    events = [event_of("a", seq, body) for seq, _, body in store.read("a", 1)]
    assert [event.is_lost for event in events if isinstance(event, Taken)] == [False, False, True]


def test_a_worker_counts_the_runs_that_nobody_claims(store: Store, clock: Clock) -> None:
    runs = Runs(store, {"desk": Agent("sim:fast", name="desk")})
    store.create(RunRow(id="renamed", agent="old name"), b"start")  # long ago, by the clock of the store
    create(store, "a")
    [claim] = store.claim_next("one", agents=["desk"])
    assert park(store, claim, "it ends its workers")

    async def work() -> None:
        task = asyncio.create_task(runs.awork())
        for _ in range(1000):
            await asyncio.sleep(0.02)
            if runs.unclaimed.parked:
                break
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    asyncio.run(work())
    assert (runs.unclaimed.stranded, runs.unclaimed.parked) == (1, 1)

"""Many runs at once, on the command line and in Python; who is alive, and the size of the log."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import click.testing
import pytest

from penstock import Agent, Runs, UsageError
from penstock.cli.app import penstock as command
from penstock.log import SQLiteStore
from penstock.log.follower import new_owner
from penstock.log.retention.survey import WorkerRow
from penstock.log.store import Batch
from penstock.log.suspects import park
from tests.log_stores import Clock

AGENT = Agent("sim:fast", name="desk")
HOUR = 3600.0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the store and of what compares with it."""
    clock = Clock()
    clock.now = 1_700_000_000.0
    monkeypatch.setattr("penstock.runs.bulk.time.time", clock)
    return clock


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock) -> Iterator[SQLiteStore]:
    """A log with two old runs of acme, a parked one, a waiting one, and a finished one; and one of another agent."""
    monkeypatch.chdir(tmp_path)
    store = SQLiteStore("runs.db", clock=clock)
    runs = Runs(store, {"desk": AGENT, "shop": AGENT})
    for run_id in ("old-1", "old-2"):
        runs.start("desk", "Hi", run_id=run_id, tenant="acme")
    clock.now += 2 * HOUR
    for run_id, agent in (("parked", "desk"), ("waiting", "desk"), ("over", "desk"), ("other", "shop")):
        runs.start(agent, "Hi", run_id=run_id)
    claims = {name: store.claim("w", run_id=name) for name in ("parked", "waiting", "over")}
    for name, claim in claims.items():
        assert claim is not None
        if name == "parked":
            assert park(store, claim, "6 workers died")
        else:
            store.append([Batch(name, claim.epoch, claim.seq, [], name)], durable=True)  # type: ignore[arg-type]
    yield store
    store.close()


def runs_of(store: SQLiteStore) -> Runs:
    return Runs(store, {"desk": AGENT, "shop": AGENT})


def penstock(*arguments: str, answer: str | None = None) -> click.testing.Result:
    return click.testing.CliRunner().invoke(
        command, ["runs", arguments[0], "--log", "runs.db", *arguments[1:]], input=answer
    )


def states(store: SQLiteStore) -> dict[str, str]:
    return {row.id: row.state for row in store.list()}


def test_runs_are_counted_before_they_are_cancelled(store: SQLiteStore) -> None:
    before = states(store)
    result = penstock("cancel", "--agent", "desk", "--dry-run")
    assert result.stdout == "4 runs would be cancelled: 2 ready, 1 waiting, 1 parked\n"
    assert penstock("cancel", "--all", "--dry-run").stdout.startswith("5 runs would be cancelled")
    assert penstock("cancel", "--tenant", "acme", "--dry-run").stdout == "2 runs would be cancelled: 2 ready\n"
    assert penstock("cancel", "--tenant", "nobody", "--dry-run").stdout == "0 runs would be cancelled\n"
    assert penstock("cancel", "--state", "parked", "--dry-run").stdout == "1 run would be cancelled: 1 parked\n"
    assert penstock("retry", "--all", "--dry-run").stdout == "1 run would be retried: 1 parked\n"
    assert states(store) == before


def test_runs_of_an_agent_are_cancelled_and_others_are_not(store: SQLiteStore) -> None:
    result = penstock("cancel", "--agent", "desk", "--yes", "--why", "closed")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [f"cancelled {name}" for name in ("old-1", "old-2", "parked", "waiting")]
    assert states(store) == {
        "old-1": "over", "old-2": "over", "parked": "over", "waiting": "over", "over": "over", "other": "ready",
    }  # fmt: skip


def test_old_runs_are_chosen_by_the_time_since_their_last_event(store: SQLiteStore, clock: Clock) -> None:
    runs = runs_of(store)
    assert runs.cancel_all(older_than=HOUR, dry_run=True) == ["old-1", "old-2"]
    assert runs.cancel_all(older_than=HOUR, tenant="", dry_run=True) == []
    assert runs.cancel_all(older_than=3 * HOUR, dry_run=True) == []
    clock.now -= 1e6
    assert runs.cancel_all(older_than=1, dry_run=True) == [], "a clock that was set back makes no run old"
    assert len(runs.cancel_all(older_than=0, dry_run=True)) == 5


def test_nobody_is_asked_where_nobody_is(store: SQLiteStore) -> None:
    before = states(store)
    result = penstock("cancel", "--agent", "desk")
    assert result.exit_code == 2
    assert "Cancel 4 runs? Add --yes, or --dry-run to count them only" in result.stderr
    assert states(store) == before
    assert penstock("cancel", "--agent", "nobody").stderr == "no such runs\n"


@pytest.mark.parametrize(("answer", "ended"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_a_person_confirms(store: SQLiteStore, monkeypatch: pytest.MonkeyPatch, answer: str, ended: bool) -> None:
    monkeypatch.setattr("penstock.cli.commands.run_bulk.is_asked", lambda: True)
    result = penstock("cancel", "--tenant", "acme", answer=answer)
    assert "Cancel 2 runs?" in result.stderr
    assert (states(store)["old-1"] == "over") is ended


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["cancel"], "name a run, or choose runs"),
        (["cancel", "old-1", "--agent", "desk"], "both at once"),
        (["cancel", "--state", "over", "--yes"], "only for ready, running, waiting, parked, damaged"),
        (["retry", "--state", "waiting", "--yes"], "only for parked, damaged"),
        (["cancel", "--older-than", "soon"], "is not a duration"),
    ],
)
def test_unclear_choices_are_refused(store: SQLiteStore, arguments: list[str], problem: str) -> None:
    before = states(store)
    result = penstock(*arguments)
    assert result.exit_code == 2
    assert problem in result.stderr
    assert states(store) == before


def test_parked_runs_are_retried_and_damaged_ones_only_if_they_can_be_read(store: SQLiteStore) -> None:
    claim = store.claim(new_owner(), run_id="old-1")
    assert claim is not None
    store.append([Batch("old-1", claim.epoch, claim.seq, [b"not json"], "damaged")], durable=True)
    result = penstock("retry", "--all", "--yes")
    assert result.stdout.splitlines() == [
        "old-1 is still damaged, or somebody else has retried it",
        "a worker continues parked alone; if it ends that worker too, it is parked again",
    ]
    assert (states(store)["old-1"], states(store)["parked"]) == ("damaged", "ready")
    assert runs_of(store).retry_all() == []


def test_python_cancels_and_retries_too(store: SQLiteStore) -> None:
    runs = runs_of(store)
    assert runs.retry_all(state="parked", dry_run=True) == ["parked"]
    assert asyncio.run(runs.aretry_all(agent="desk")) == ["parked"]
    assert runs.cancel_all(agent="shop") == ["other"]
    assert runs.cancel_all(agent="shop") == [], "it was cancelled before"
    assert asyncio.run(runs.acancel_all(state="waiting", dry_run=True)) == ["waiting"]
    assert (runs.stats().runs, runs.stats().ready) == ({"ready": 4, "waiting": 1}, {"desk": 3, "shop": 1})
    with pytest.raises(UsageError, match="unknown state"):
        runs.cancel_all(state="asleep")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="older_than"):
        runs.cancel_all(older_than=-1)


def test_old_runs_are_listed(store: SQLiteStore, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.cli.commands.runs.time.time", clock)
    listed = penstock("list", "--older-than", "1h", "--json").stdout.splitlines()
    assert sorted(json.loads(line)["id"] for line in listed) == ["old-1", "old-2"]


def test_who_is_alive_is_listed(store: SQLiteStore, clock: Clock) -> None:
    assert penstock("workers").stderr == "no process drives runs of this log\n"
    with closing(SQLiteStore("runs.db")) as now:  # with the clock of the machine, as the command
        now.survey.beat(WorkerRow(owner="web-1:17:ab", kind="serve", agents=["desk", "shop"]))
    result = penstock("workers")
    assert result.stdout.startswith("alive   serve   pid 17 on web-1: 0 runs, agents desk, shop, since now")
    [worker] = [json.loads(line) for line in penstock("workers", "--json").stdout.splitlines()]
    assert (worker["owner"], worker["is_alive"], worker["agents"]) == ("web-1:17:ab", True, ["desk", "shop"])


def test_the_queue_and_the_size_are_printed(store: SQLiteStore) -> None:
    lines = penstock("stats").stdout.splitlines()
    assert lines[0] == "unfinished: 3 ready, 1 waiting, 1 parked"
    assert lines[1].startswith("ready: 2 of desk, 1 of shop; the first waits for ")
    assert lines[2] == "alive: 0 processes"
    assert lines[3].startswith("size: ")
    stats = json.loads(penstock("stats", "--json").stdout)
    assert stats["runs"] == {"ready": 3, "waiting": 1, "parked": 1}
    assert stats["size"] > 10_000

"""Runs survive processes that are killed or frozen at named points and at random; `make chaos` does more of it."""

from __future__ import annotations

import os
import signal
import sys
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from penstock import Done, Runs, StoreError
from penstock.log import RunRow
from penstock.log.store import Batch
from tests.budget import sample
from tests.chaos.agents import make_agent
from tests.chaos.ledger import Ledger
from tests.chaos.points import points_for
from tests.chaos.processes import Plan, Setup, work
from tests.chaos.round import How, Mode
from tests.chaos.trials import Trial
from tests.chaos.verdict import Verdict

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has neither SIGKILL nor SIGSTOP")

every_store = pytest.mark.parametrize("kind", ["sqlite", "postgres"])
every_way = pytest.mark.parametrize("how", ["kill", "stop"])


@pytest.fixture
def url(kind: str, request: pytest.FixtureRequest) -> str:
    """The address of a PostgreSQL server; empty for SQLite."""
    address: str = request.getfixturevalue("postgres_url") if kind == "postgres" else ""
    return address


@pytest.fixture
def record(record_property: Any) -> Any:
    """Report what was seen, for the summary."""

    def record(verdict: Verdict) -> None:
        record_property("hits", verdict.hits)
        record_property("hit starts", verdict.starts)
        record_property("takeover times", verdict.seconds)

    return record


@every_store
@every_way
def test_runs_survive_hits_at_every_point(kind: str, how: How, url: str, record: Any) -> None:
    points = sample(points_for(kind, how, events=4, tools=1), few=8)
    verdict = Trial(url, how).play(hits=0, seed=1, points=points)
    assert not verdict.problems, "\n".join(verdict.problems)
    assert verdict.hits >= len(points)
    record(verdict)


@every_store
@every_way
@pytest.mark.parametrize("mode", ["work", "inline"])
def test_runs_survive_hits_at_random(kind: str, how: How, mode: Mode, url: str, record: Any) -> None:
    verdict = Trial(url, how, mode).play(hits=3, seed=2)
    assert not verdict.problems, "\n".join(verdict.problems)
    assert verdict.starts
    record(verdict)


@pytest.mark.parametrize(
    ("mutation", "how", "points", "problem"),
    [
        ("interrupted tools run again", "kill", ["after_tool_end:pay", "after_tool_end:mail"], "ran twice"),
        ("leases are not checked", "stop", ["before_tool_start:pay", "before_tool_start:mail"], "did not own the run"),
    ],
)
def test_a_broken_driver_is_noticed(mutation: str, how: How, points: list[str], problem: str) -> None:
    seen: list[str] = []
    for seed in range(3, 8):  # on a busy machine a round may be over before the process that was frozen goes on
        seen += Trial("", how, mutation=mutation).play(hits=0, seed=seed, points=points).problems
        if any(problem in one for one in seen):
            return
    pytest.fail(f"not noticed in five rounds, only {seen}")


@pytest.mark.parametrize("end", [signal.SIGCONT, signal.SIGKILL])
def test_a_process_that_is_frozen_inside_a_write_to_sqlite_blocks_writers_and_not_readers(
    end: signal.Signals, tmp_path: Path
) -> None:
    setup = Setup(str(tmp_path / "runs.db"), "", str(tmp_path / "ledger"), lease=1.0)
    ledger, store = Ledger(setup.ledger), setup.open()
    runs = Runs(store, {"agent": make_agent(ledger)})
    run_id = runs.start("agent", "Go.")
    plan = Plan("inside_append:tool_start", signal.SIGSTOP)
    frozen = get_context("forkserver").Process(target=work, args=(setup, plan), daemon=True)
    frozen.start()
    while not any(note.what == "frozen" for note in ledger.news()):
        assert frozen.is_alive()
        time.sleep(0.01)
    try:
        # Writers wait for as long as they are willing to, also when the lease has ended.
        time.sleep(setup.lease + 0.5)  # more than the lease, which may have been renewed right before
        for write in (
            lambda: store.claim("other"),
            lambda: store.create(RunRow(id="other", agent="agent"), b"start"),
            lambda: store.append([Batch(run_id, 1, 2, [b"more"])], durable=True),
        ):
            with pytest.raises(StoreError, match="locked") as caught:
                write()
            assert caught.value.is_temporary
        # Readers go on, and see nothing of what is not committed. The store names the process.
        types = [event.type for _, event in zip(range(3), (event for _, event in runs.follow(run_id)), strict=False)]
        assert types == ["run_start", "taken", "step_start"]
        assert runs.find(run_id).owner.split(":")[1] == str(frozen.pid)
        assert b"tool_start" not in b"".join(body for _, _, body in store.read(run_id))
    finally:
        assert frozen.pid is not None
        os.kill(frozen.pid, end)
    drive_to_the_end(runs, run_id)
    assert isinstance([event for _, event in runs.follow(run_id)][-1], Done)
    frozen.kill()
    frozen.join()
    ledger.close()
    store.close()


def drive_to_the_end(runs: Runs, run_id: str) -> None:
    """Drive a run to its end, and approve what waits."""
    while runs.drive(run_id).state != "over":
        for _, event in runs.follow(run_id):
            if event.type == "waiting":
                break
            if event.type == "approval_request":
                runs.decide(run_id, event.call_id, True)

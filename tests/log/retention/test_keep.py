"""How long finished runs are kept: by age, by tenant, and a conversation as a whole."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import penstock.log
from penstock import StoreError, UsageError
from penstock.log import Keep, RunRow, Store
from penstock.log.retention import sweep as sweeping
from penstock.log.retention.sweep import archived_path, count_old, sweep
from penstock.log.store import Batch, Cutoff
from penstock.runs import sweeper
from tests.log_stores import Clock, Desk

DAY = 86_400.0


def add_run(store: Store, id: str, *, state: str = "over", thread: str = "", tenant: str = "") -> None:
    store.create(RunRow(id=id, agent="support", thread=thread, tenant=tenant), b'{"type":"said"}', owner="one")
    batch = Batch(id, 1, 2, [b"{}"], state)  # type: ignore[arg-type]
    assert store.append([batch], durable=True) == [True]


def ids(store: Store) -> set[str]:
    return {row.id for row in store.list()}


def test_runs_go_when_they_ended_too_long_ago_and_unfinished_ones_stay(store: Store, clock: Clock) -> None:
    for state in ("over", "waiting", "running", "ready", "damaged"):
        add_run(store, state, state=state)
    clock.now += 31 * DAY
    add_run(store, "new")
    cutoff = Keep(days=30).cutoff(clock.now)
    assert count_old(store, cutoff) == 1
    assert sweep(store, cutoff) == 1
    assert ids(store) == {"waiting", "running", "ready", "damaged", "new"}
    assert store.read("over") == []


def test_a_conversation_is_deleted_as_a_whole_when_its_last_run_is_old(store: Store, clock: Clock) -> None:
    for number in range(5):
        add_run(store, f"live-{number}", thread="live")
        add_run(store, f"old-{number}", thread="old")
        add_run(store, f"open-{number}", thread="open")
        add_run(store, f"same-{number}", thread="live", tenant="other")
    add_run(store, "unanswered", thread="open", state="waiting")
    clock.now += 40 * DAY
    add_run(store, "live-5", thread="live")
    kept = {f"live-{number}" for number in range(6)} | {f"open-{number}" for number in range(5)} | {"unanswered"}
    assert sweep(store, Keep(days=30).cutoff(clock.now)) == 10
    assert ids(store) == kept
    clock.now += 31 * DAY
    assert sweep(store, Keep(days=30).cutoff(clock.now)) == 6
    assert ids(store) == kept - {f"live-{number}" for number in range(6)}


def test_tenants_have_their_own_days(store: Store, clock: Clock) -> None:
    for tenant in ("", "short", "long", "forever"):
        add_run(store, f"of-{tenant}", tenant=tenant, thread="t")
    keep = Keep(days=30, per_tenant={"short": 1, "long": 365, "forever": None})
    clock.now += 2 * DAY
    assert sweep(store, keep.cutoff(clock.now)) == 1
    clock.now += 40 * DAY
    assert sweep(store, keep.cutoff(clock.now)) == 1
    assert ids(store) == {"of-long", "of-forever"}
    clock.now += 1000 * DAY
    assert sweep(store, keep.cutoff(clock.now)) == 1
    assert sweep(store, Keep().cutoff(clock.now)) == 0
    assert ids(store) == {"of-forever"}


def test_old_runs_of_live_conversations_do_not_hide_those_behind_them(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "PAGE", 3)
    for number in range(20):
        add_run(store, f"live-{number}", thread="live")
    for number in range(7):
        add_run(store, f"old-{number}")
    clock.now += 40 * DAY
    add_run(store, "live", thread="live")
    assert count_old(store, Keep(days=30).cutoff(clock.now)) == 7
    assert sweep(store, Keep(days=30).cutoff(clock.now)) == 7
    assert len(ids(store)) == 21


def test_a_conversation_that_goes_on_while_it_is_deleted_stays(store: Store, clock: Clock) -> None:
    add_run(store, "first", thread="t")
    clock.now += 40 * DAY
    cutoff = Keep(days=30).cutoff(clock.now)
    [row], _ = store.prunable(cutoff)
    add_run(store, "second", thread="t")
    assert store.delete([row.id], cutoff) == 0
    assert ids(store) == {"first", "second"}


def test_each_run_is_archived_before_it_is_deleted(store: Store, clock: Clock, tmp_path: Path) -> None:
    clock.now = time.time() - 100 * DAY
    desk = Desk(store)
    for run_id, tenant in {"r": "", "../x": "a/b", "..": "..", "長" * 400: "_"}.items():
        desk.runs.start("desk", "Send it.", run_id=run_id, tenant=tenant)
        desk.runs.drive(run_id)
    rows = {row.id: row for row in store.list()}
    archive = tmp_path / "archive"
    clock.now += 31 * DAY
    assert sweep(store, Keep(days=30).cutoff(clock.now), archive) == 4
    files = {path for path in archive.rglob("*") if path.is_file()}
    assert files == {archived_path(row, archive) for row in rows.values()}
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in files)
    assert max(len(path.name) for path in files) == sweeping.MAX_NAME + len("-0123456789abcdef.jsonl.gz")
    assert store.list() == []


def test_a_run_that_cannot_be_archived_is_not_deleted(store: Store, clock: Clock, tmp_path: Path) -> None:
    add_run(store, "r")
    clock.now += 40 * DAY
    (tmp_path / "archive").write_text("a file")
    with pytest.raises(StoreError, match=r"archive .* cannot be written"):
        sweep(store, Cutoff(clock.now), tmp_path / "archive")
    assert ids(store) == {"r"}


def test_workers_delete_old_runs_while_they_run(
    store: Store, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock.now = time.time()
    desk = Desk(store)
    desk.runs.start("desk", "Send it.", run_id="old")
    desk.runs.drive("old")
    clock.now -= 40 * DAY
    desk.runs.start("desk", "Send it.", run_id="older")
    desk.runs.drive("older")
    clock.now = time.time()
    store.keep = Keep(days=30, archive=tmp_path)
    monkeypatch.setattr(sweeper, "FIRST_SECONDS", 0.0)

    async def work() -> None:
        task = asyncio.create_task(desk.runs.awork())
        while await asyncio.to_thread(store.find, "older") is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        task.cancel()

    asyncio.run(asyncio.wait_for(work(), 30))
    assert ids(store) == {"old"}
    assert len([*tmp_path.rglob("*.jsonl.gz")]) == 1


def test_several_workers_may_delete_and_archive_at_the_same_time(store: Store, clock: Clock, tmp_path: Path) -> None:
    for number in range(60):
        add_run(store, f"r{number}", thread=f"t{number % 7}")
    clock.now += 40 * DAY
    counts: list[int] = []
    threads = [
        threading.Thread(target=lambda: counts.append(sweep(store, Cutoff(clock.now), tmp_path))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (store.list(), len([*tmp_path.rglob("*.jsonl.gz")])) == ([], 60)
    assert sum(counts) == 60


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"days": -1}, "days must be a number of days, 0 or more, or None"),
        ({"days": "30"}, "days must be"),
        ({"days": float("nan")}, "days must be"),
        ({"days": True}, "days must be"),
        ({"per_tenant": {"acme": -1}}, r"per_tenant\['acme'\] must be"),
        ({"per_tenant": [1]}, "per_tenant must be a dict"),
        ({"archive": 1}, "archive must be the path"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Keep(**options)


def test_a_log_is_opened_with_a_policy(tmp_path: Path) -> None:
    store = penstock.log.open(tmp_path / "runs.db", keep=Keep(days=30))
    try:
        assert store.keep == Keep(days=30)
    finally:
        store.close()
    with pytest.raises(UsageError, match=r"keep must be a penstock.log.Keep, as in Keep"):
        penstock.log.open(tmp_path / "runs.db", keep=30)  # type: ignore[arg-type]

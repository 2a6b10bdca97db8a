"""The flusher: which units share a commit, and when it happens."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from penstock import Done, LostRunError, Said, StoreError, Text, Usage
from penstock.log import RunRow, SQLiteStore, flusher, run_writer
from penstock.log.flusher import flusher_of
from penstock.log.run_writer import RunCallbacks, RunWriter
from penstock.log.store import Batch, Claim
from penstock.messages import user

LONG = 3600.0
SECONDS = 30.0


class Commits:
    """The numbers of units that were committed together, in order."""

    writer: RunWriter

    def __init__(self) -> None:
        self.units = SimpleQueue[int]()
        self._known = 0

    def add(self) -> None:
        units = self.writer.units - self._known
        self._known += units
        self.units.put(units)

    def next(self) -> int:
        return self.units.get(timeout=SECONDS)


@pytest.fixture
def commits() -> Commits:
    return Commits()


@pytest.fixture
def writer(tmp_path: Path, commits: Commits) -> Iterator[RunWriter]:
    store = SQLiteStore(tmp_path / "runs.db")
    store.create(RunRow(id="r", agent="support"), b"start")
    claim = store.claim("one")
    assert claim is not None
    ignore = lambda _: None  # noqa: E731
    commits.writer = writer = flusher_of(store).attach(claim, RunCallbacks(commits.add, ignore, ignore))
    yield writer
    flusher_of(store).remove(writer)
    store.close()


def hold_text(patch: pytest.MonkeyPatch) -> None:
    """Text waits for others without end, once something was committed."""
    patch.setattr(flusher, "DELAY", LONG)
    patch.setattr(flusher, "MAX_DELAY", LONG)


def test_text_is_gathered_up_to_a_number_of_events(
    writer: RunWriter, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold_text(monkeypatch)
    monkeypatch.setattr(run_writer, "MAX_GATHERED", 4)
    writer.put([Said(user("Hello."))])
    assert commits.next() == 1
    for _ in range(4):
        writer.put([Text(0, "x")])
    assert commits.next() == 4


def test_text_is_committed_after_the_delay(
    writer: RunWriter, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher, "MAX_DELAY", LONG)
    for _ in range(3):
        writer.put([Text(0, "x")])
        assert commits.next() == 1


def test_text_waits_longer_after_a_large_commit(
    writer: RunWriter, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher, "MAX_DELAY", LONG)
    monkeypatch.setattr(flusher, "USUAL_EVENTS", 1e-9)
    monkeypatch.setattr(run_writer, "MAX_GATHERED", 4)
    writer.put([Text(0, "x")])
    assert commits.next() == 1
    for _ in range(4):
        writer.put([Text(0, "x")])
    assert commits.next() == 4


def test_text_is_committed_after_the_longest_delay(
    writer: RunWriter, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher, "MAX_DELAY", 0.02)
    monkeypatch.setattr(flusher, "USUAL_EVENTS", 1e-9)
    for _ in range(3):
        writer.put([Text(0, "x")])
        assert commits.next() == 1


def test_an_event_that_must_be_durable_does_not_wait_for_others(
    writer: RunWriter, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold_text(monkeypatch)
    writer.put([Said(user("Hello."))])
    assert commits.next() == 1
    writer.put([Text(0, "x")])
    writer.put([Said(user("Stop."))])
    assert commits.next() == 2


def test_an_event_that_cannot_be_encoded_is_an_error_of_its_own_run(
    writer: RunWriter, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(event: object) -> bytes:
        raise ValueError("it cannot be encoded")

    with monkeypatch.context() as patch:
        patch.setattr(run_writer, "body_of", fail)
        with pytest.raises(ValueError, match="cannot be encoded"):
            writer.put([Text(0, "x"), Said(user("Stop."))])
    writer.put([Said(user("Hello."))])
    assert commits.next() == 1


def test_what_one_run_cannot_write_does_not_end_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as an event that is larger than any database takes."""
    hold_text(monkeypatch)
    store = SQLiteStore(tmp_path / "runs.db")
    lost = SimpleQueue[tuple[str, Exception]]()
    committed = SimpleQueue[str]()
    append = store.append

    def callbacks_of(run_id: str) -> RunCallbacks:
        return RunCallbacks(lambda: committed.put(run_id), lambda _: None, lambda error: lost.put((run_id, error)))

    def refuse(batches: Sequence[Batch], *, durable: bool) -> list[bool]:
        if any(batch.run_id == "large" for batch in batches):
            raise StoreError("string or blob too big")
        return append(batches, durable=durable)

    monkeypatch.setattr(store, "append", refuse)
    writers = []
    for run_id in ("small", "large", "other"):
        store.create(RunRow(id=run_id, agent="support"), b"start")
        claim = store.claim("one", run_id=run_id)
        assert claim is not None
        writers.append(flusher_of(store).attach(claim, callbacks_of(run_id)))
    writers[0].put([Said(user("Hello."))])
    assert committed.get(timeout=SECONDS) == "small"
    for writer in writers:
        writer.put([Text(0, "x")])
    writers[2].put([Said(user("Hello."))])  # which takes them all along
    assert {committed.get(timeout=SECONDS), committed.get(timeout=SECONDS)} == {"small", "other"}
    run_id, error = lost.get(timeout=SECONDS)
    assert (run_id, str(error)) == ("large", "string or blob too big")
    for writer in writers:
        flusher_of(store).remove(writer)
    store.close()


def test_after_a_long_outage_the_lease_is_renewed_before_the_run_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    store.create(RunRow(id="r", agent="support"), b"start")
    append, late = store.append, 0.0

    def slow(batches: Sequence[Batch], *, durable: bool) -> list[bool]:
        nonlocal late
        late += store.lease + 1
        return append(batches, durable=durable)

    monkeypatch.setattr(store, "append", slow)
    monkeypatch.setattr(flusher, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + late))
    claim = store.claim("one")
    assert claim is not None
    owned = SimpleQueue[bool]()
    ignore = lambda _: None  # noqa: E731
    callbacks = RunCallbacks(lambda: owned.put(log.is_owner), ignore, ignore)
    log = flusher_of(store).attach(claim, callbacks)
    log.put([Said(user("Hello."))])
    assert owned.get(timeout=SECONDS)
    log.close()
    store.close()


def test_what_ends_the_thread_reaches_the_runs_that_wait_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    store.create(RunRow(id="r", agent="support"), b"start")
    claim = store.claim("one")
    assert claim is not None
    lost = SimpleQueue[Exception]()
    ignore = lambda _: None  # noqa: E731
    monkeypatch.setattr(store, "inputs", lambda run_ids: 1 // 0)
    flusher_of(store).attach(claim, RunCallbacks(lambda: None, ignore, lost.put))
    assert isinstance(lost.get(timeout=SECONDS), ZeroDivisionError)
    store.close()


def test_a_run_that_its_process_claims_again_is_lost_for_its_earlier_writer(
    tmp_path: Path, commits: Commits, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    store = SQLiteStore(tmp_path / "runs.db", clock=lambda: now)
    monkeypatch.setattr(store, "renew", lambda owned: [True for _ in owned])  # it comes later than the second claim
    store.create(RunRow(id="r", agent="support"), b"start")
    lost = SimpleQueue[Exception]()
    ignore = lambda _: None  # noqa: E731
    first = store.claim("one")
    now += store.lease + 1
    again = store.claim("one")
    assert first is not None
    assert again is not None
    earlier = flusher_of(store).attach(first, RunCallbacks(lambda: None, ignore, lost.put))
    commits.writer = writer = flusher_of(store).attach(again, RunCallbacks(commits.add, ignore, lost.put))
    assert isinstance(lost.get(timeout=SECONDS), LostRunError)
    earlier.put([Said(user("Is not written."))])
    writer.put([Said(user("Hello."))])
    assert commits.next() == 1
    assert writer.is_owner
    assert not earlier.is_owner
    assert lost.empty()
    writer.close()
    store.close()


def test_a_run_whose_end_is_not_written_yet_is_not_released() -> None:
    units: list[run_writer.Unit] = []
    gathering: Any = SimpleNamespace(add=lambda unit, is_urgent: units.append(unit))
    ignore: Any = None
    writer = RunWriter(gathering, Claim("r", "support", 1, 2, LONG), RunCallbacks(ignore, ignore, ignore))
    writer.put([Done("answered", "", (), Usage(0, 0))])
    writer.release()
    assert [unit.state for unit in units] == ["over"], "else a worker would continue a run that has its end"

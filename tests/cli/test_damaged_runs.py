"""A run whose log is damaged is set aside: no worker claims it, nothing is lost, and it continues when repaired."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import click.testing
import pytest

from penstock import DamagedRunError, Text, ToolStart
from penstock.cli.app import penstock as command
from penstock.log import PostgresStore, RunRow, SQLiteStore, Store
from penstock.log.in_memory import MemoryStore
from penstock.log.store import Batch
from penstock.run.events import RunStart, encode
from penstock.testing import Crashed, FakeClock, crash_at
from tests.log.sqlite.connections import connection_of
from tests.log_stores import Clock, Desk, interrupted_desk

Damage = Callable[[Store, int], Callable[[], None]]
"""Damages the log of the run `r` before an event; returns what repairs it."""


def write(store: Store, seq: int, body: bytes | None) -> None:
    """Replace or delete an event, which no operation of a store does."""
    match store:
        case SQLiteStore():
            connection_of(store._file).execute("DELETE FROM events WHERE run_id = 'r' AND seq = ?", (seq,))
            if body is not None:
                connection_of(store._file).execute("INSERT INTO events VALUES (NULL, 'r', ?, 0, ?, 0)", (seq, body))
        case PostgresStore():
            store._execute("DELETE FROM {schema}.events WHERE run_id = 'r' AND seq = %(seq)s", seq=seq)
            if body is not None:
                store._execute("INSERT INTO {schema}.events VALUES ('r', %(seq)s, 0, %(body)b)", seq=seq, body=body)
        case MemoryStore():
            store._runs["r"].events[seq - 1] = (seq, 0.0, body) if body is not None else (-1, 0.0, b"")
        case _:
            raise AssertionError


def replacing(body: bytes | None, *, at_end: bool = False) -> Damage:
    def damage(store: Store, last: int) -> Callable[[], None]:
        seq = last if at_end else 3
        [(_, _, before)] = store.read("r", seq - 1, 1)
        write(store, seq, body)
        return partial(write, store, seq, before)

    return damage


DAMAGES: dict[str, Damage] = {
    "an event is missing": replacing(None),
    "the last event is missing": replacing(None, at_end=True),
    "an event is cut": replacing(b'{"type":"te'),
    "an event is not JSON": replacing(b"\xff\xfe"),
    "an event is of a later version": replacing(b'{"type":"levitate","height":3}'),
    "it begins twice": replacing(encode(RunStart((), "desk")), at_end=True),
    "a tool starts in a step that has not begun": replacing(encode(ToolStart("9.9", "c", "send", {}))),
    "a tool has a key that is not one": replacing(encode(ToolStart("1.x", "c", "send", {})), at_end=True),
    "it has media that are missing": replacing(b'{"type":"text","block":0,"text":"\0%s\0"}' % (b"0" * 64)),
}
every_damage = pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)


@pytest.fixture
def desk(store: Store, clock: Clock) -> Desk:
    return interrupted_desk(store, clock)


def row_of(store: Store) -> RunRow:
    row = store.find("r")
    assert row is not None
    return row


@every_damage
def test_a_damaged_run_is_set_aside_and_continues_when_its_log_is_repaired(
    damage: Damage, desk: Desk, clock: Clock
) -> None:
    store = desk.store
    repair = damage(store, row_of(store).seq)
    with pytest.raises(DamagedRunError):
        desk.runs.drive("r")
    row = row_of(store)
    assert (row.state, row.owner != "") == ("damaged", True)
    for _ in range(3):  # the leases of workers that looked
        clock.now += store.lease + 1
        assert store.claim("worker", agents=["desk"]) is None
        assert desk.runs.claimable() == []
        with pytest.raises(DamagedRunError):
            desk.runs.drive("r")  # as a job engine may do again and again
    with pytest.raises(DamagedRunError), desk.agent.stream("Send it.", log=store, run_id="r") as run:
        list(run)
    assert row_of(store) == row, "nothing was added to its log"
    assert desk.sent == []
    repair()
    assert desk.runs.drive("r").state == "over"
    assert desk.sent == ["sent"]


@every_damage
def test_whoever_follows_a_damaged_run_gets_what_its_log_has_and_then_the_error(damage: Damage, desk: Desk) -> None:
    damage(desk.store, row_of(desk.store).seq)
    with pytest.raises(DamagedRunError):
        desk.runs.drive("r")
    seen: list[int] = []
    with pytest.raises(DamagedRunError):
        seen.extend(number for number, _ in desk.runs.follow("r"))
    assert seen == list(range(1, len(seen) + 1))
    assert len(seen) >= 2


@every_damage
def test_a_damaged_run_that_is_cancelled_ends_and_can_be_pruned(damage: Damage, desk: Desk, clock: Clock) -> None:
    store = desk.store
    damage(store, row_of(store).seq)
    with pytest.raises(DamagedRunError):
        desk.runs.drive("r")
    assert desk.runs.say("r", "Hurry.")
    assert store.claimable() == [], "only a cancel helps"
    assert desk.runs.cancel("r", "enough")
    assert desk.runs.claimable() == ["r"]
    with pytest.raises(DamagedRunError):
        desk.runs.drive("r")
    assert row_of(store).state == "over"
    [(_, _, body)] = store.read("r", row_of(store).seq - 1)
    assert (json.loads(body)["reason"], json.loads(body)["why"]) == ("cancelled", "enough")
    clock.now += 1
    assert store.prune(before=clock.now) == 1
    assert desk.sent == []


# -- penstock runs -----------------------------------------------------------------------------------------------------


STEP = b'{"type":"step_start","step":1}'


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SQLiteStore]:
    """The file `runs.db` with the run `r`, the start of whose first step is damaged."""
    monkeypatch.chdir(tmp_path)
    clock = FakeClock()
    store = SQLiteStore("runs.db", clock=clock)
    desk = Desk(store)
    desk.runs.start("desk", "Send it.", run_id="r")
    with crash_at("before_append", "tool_start"), pytest.raises(Crashed):
        desk.runs.drive("r")
    assert store.read("r", 2, 1)[0][2] == STEP
    write(store, 3, b"{")
    clock.advance(60)
    with pytest.raises(DamagedRunError):
        desk.runs.drive("r")
    yield store
    store.close()


def penstock(*arguments: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(command, ["runs", "--log", "runs.db", *arguments])


def test_the_command_line_says_what_is_wrong_with_a_damaged_run_and_how_it_continues(log: SQLiteStore) -> None:
    listed = penstock()
    assert "damaged" in listed.stdout
    assert "`penstock runs --log runs.db show r` says what is wrong" in listed.stderr
    assert penstock("list", "--state", "damaged", "--json").stdout.count("\n") == 1
    shown = penstock("show", "r", "--plain")
    assert shown.exit_code == 0
    assert "damage     event 3 of the run r cannot be read" in shown.stdout
    assert (
        "then `penstock runs --log runs.db retry r`. Or end it: `penstock runs --log runs.db cancel r`" in shown.stdout
    )
    assert "prompt     Send it." in shown.stdout
    assert "event 3 of the run r" in json.loads(penstock("show", "r", "--json").stdout)["damage"]
    again = penstock("retry", "r")
    assert again.exit_code == 2
    assert "event 3 of the run r cannot be read" in again.stderr
    assert row_of(log).state == "damaged"


def test_the_command_line_gives_a_run_that_was_repaired_back_to_the_workers(log: SQLiteStore) -> None:
    write(log, 3, STEP)
    assert "damage     nothing any more: the log was repaired" in penstock("show", "r", "--plain").stdout
    assert penstock("retry", "r").stdout == "r can be read again: the next worker continues it\n"
    assert row_of(log).state == "ready"
    refused = penstock("retry", "r")
    assert "only a damaged or parked run can be retried, and r is ready" in refused.stderr
    desk = Desk(log)
    assert desk.runs.drive("r").state == "over"
    assert desk.sent == ["sent"]


def test_the_command_line_cancels_a_damaged_run(log: SQLiteStore) -> None:
    assert penstock("cancel", "r").stdout == "cancelled r\n"
    assert row_of(log).state == "over"


@every_damage
def test_the_command_line_decides_nothing_for_a_run_that_cannot_be_read(damage: Damage, log: SQLiteStore) -> None:
    """Also if nobody has set it aside yet."""
    write(log, 3, STEP)
    damage(log, row_of(log).seq)
    connection_of(log._file).execute("UPDATE runs SET state = 'waiting'")
    decided = penstock("decide", "r", "--yes")
    assert (decided.exit_code, type(decided.exception)) == (2, SystemExit), decided
    assert decided.stderr.count("\n") == 1
    assert log.inputs(["r"]) == []


@pytest.mark.parametrize("state", ["ready", "over"])
def test_the_command_line_shows_what_can_be_read_of_a_run_that_nobody_has_set_aside(
    state: str, log: SQLiteStore
) -> None:
    connection_of(log._file).execute("UPDATE runs SET state = ?", (state,))
    shown = penstock("show", "r", "--plain")
    assert shown.exit_code == 0
    assert "damage     event 3 of the run r cannot be read" in shown.stdout
    assert ("continue   restore the log from a backup" in shown.stdout) is (state == "ready")
    assert "prompt     Send it." in shown.stdout


def test_a_run_with_a_damaged_page_of_its_file_is_set_aside(tmp_path: Path) -> None:
    path, clock = tmp_path / "runs.db", Clock()
    store = SQLiteStore(path, clock=clock)
    desk = Desk(store)
    for run_id in ("r", "other"):
        desk.runs.start("desk", "Send it.", run_id=run_id)
    claim = store.claim("one", run_id="r")
    assert claim is not None
    texts = [encode(Text(0, f"page {number} " * 300)) for number in range(20)]
    assert store.append([Batch("r", claim.epoch, claim.seq, texts)], durable=True) == [True]
    store.close()
    content = path.read_bytes()
    start = content.index(b"page 9 page 9") // 4096 * 4096
    path.write_bytes(content[:start] + b"\xa5" * 4096 + content[start + 4096 :])
    clock.now += 1000
    desk = Desk(SQLiteStore(path, clock=clock))
    with pytest.raises(DamagedRunError, match="is damaged: database disk image is malformed"):
        desk.runs.drive("r")
    assert [row.id for row in desk.runs.list(state="damaged")] == ["r"]
    clock.now += 1000
    assert desk.runs.claimable() == ["other"]
    assert desk.runs.drive("other").state == "over"
    desk.store.close()

"""Runs as files: exported and imported exactly, and refused when they were cut or changed."""

from __future__ import annotations

import gzip
import io
import json
import random
from pathlib import Path

import pytest

from penstock import RunExistsError
from penstock.log import Store
from penstock.log.bodies import body_of
from penstock.log.retention import run_files
from penstock.log.retention.run_files import RunFileError, lines_of, read_runs
from penstock.log.start import new_start
from penstock.log.starts.requests import KeyTakenError, StartRequest
from penstock.log.store import RunRow
from tests.log_stores import Clock, Desk, open_store


def exported(store: Store, *run_ids: str) -> bytes:
    rows = [store.find(run_id) for run_id in run_ids]
    return b"".join(line for row in rows if row is not None for line in lines_of(store, row))


def imported(store: Store, data: bytes) -> list[bool]:
    return [
        store.add(run.row, run.events, run.inputs, run.starts)
        for run in read_runs(io.BufferedReader(io.BytesIO(data)), "it")
    ]


def finished_desk(store: Store) -> Desk:
    desk = Desk(store)
    for run_id in ("a", "b"):
        desk.runs.start("desk", "Send it.", run_id=run_id, thread="t", tenant="acme", meta={"n": 1})
        desk.runs.drive(run_id)
    return desk


@pytest.mark.parametrize("kind", ["memory", "sqlite", "postgres"])
def test_a_run_is_the_same_in_another_store(store: Store, tmp_path: Path, postgres_url: str, kind: str) -> None:
    finished_desk(store)
    data = exported(store, "a", "b")
    (tmp_path / "other").mkdir()
    with open_store(kind, tmp_path / "other", postgres_url, lease=10.0) as other:
        assert imported(other, gzip.compress(data)) == [True, True]
        for run_id in ("a", "b"):
            before, after = store.find(run_id), other.find(run_id)
            assert before is not None
            assert after is not None
            assert (after.agent, after.thread, after.tenant, after.state) == ("desk", "t", "acme", "over")
            assert (after.seq, after.created, after.updated) == (before.seq, before.created, before.updated)
            assert [(seq, at, bytes(body)) for seq, at, body in other.read(run_id)] == [
                (seq, at, bytes(body)) for seq, at, body in store.read(run_id)
            ]
        assert imported(other, data) == [False, False]
        assert exported(other, "a", "b") == data


def test_a_run_that_waits_goes_on_where_it_is_imported(store: Store, clock: Clock, tmp_path: Path) -> None:
    desk = Desk(store)
    run_id = desk.runs.start("desk", "Send it.", run_id="r")
    desk.runs.say(run_id, "Quickly.", key="k")
    (tmp_path / "other").mkdir()
    with open_store("sqlite", tmp_path / "other", "", lease=10.0) as other:
        assert imported(other, exported(store, "r")) == [True]
        there = Desk(other)
        assert there.runs.drive("r").state == "over"
        assert {"said", "tool_end", "done"} <= {*there.log("r")}
    assert desk.sent == []


def test_another_run_with_the_same_id_is_refused(store: Store) -> None:
    finished_desk(store)
    data = exported(store, "a").replace(b'"id":"a"', b'"id":"b"')
    lines = data.splitlines(keepends=True)
    assert "checksum differs" in refusal(data)
    other = json.loads(lines[0])
    with pytest.raises(RunExistsError, match="'b' exists"):
        store.add(RunRow(**{**other["run"], "id": "b"}), store.read("a"))


def refusal(data: bytes) -> str:
    with pytest.raises(RunFileError) as error:
        for _ in read_runs(io.BufferedReader(io.BytesIO(data)), "the file"):
            pass
    return str(error.value)


def test_a_file_that_was_cut_or_changed_anywhere_is_refused(store: Store) -> None:
    finished_desk(store)
    data = exported(store, "a")
    chance = random.Random(1)
    for _ in range(300):
        place = chance.randrange(len(data))
        assert refusal(data[:place])
        changed = bytearray(data)
        changed[place] ^= 1 << chance.randrange(8)
        assert refusal(bytes(changed))
    lines = data.splitlines(keepends=True)
    for place in range(len(lines)):
        assert refusal(b"".join(lines[:place] + lines[place + 1 :]))
        assert refusal(b"".join([*lines[: place + 1], *lines[place:]]))
    packed = gzip.compress(data)
    for place in (1, 5, len(packed) // 2, len(packed) - 1):
        assert refusal(packed[:place])


def test_a_line_has_a_largest_size(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    finished_desk(store)
    monkeypatch.setattr(run_files, "MAX_LINE", 100)
    assert "a line of more than 100 bytes" in refusal(exported(store, "a"))


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "the file is empty"),
        (b"hello\n", "line 1 of the file is not that of a run"),
        (b"\xff\xfe\n", "line 1 of the file is not that of a run"),
        (b'{"type":"run","format":2,"run":{"id":"r"}}\n', "later version of penstock: upgrade this one"),
        (b'{"type":"run","format":1,"run":{"id":"r","version":9}}\n', "later version of penstock"),
        (b'{"type":"event","at":1,"event":{}}\n', "line 1 of the file is out of place"),
    ],
)
def test_other_files_are_refused_with_a_reason(data: bytes, message: str) -> None:
    assert message in refusal(data)


def test_an_imported_run_still_answers_its_key(store: Store, tmp_path: Path, postgres_url: str) -> None:
    request = StartRequest(id="q", tenant="acme", key="once", caller="c", body="b")
    row, start = new_start("desk", Desk(store).agent.first_messages("Send it.", None), "r", tenant="acme")
    store.create(row, body_of(start), request=request)
    data = exported(store, "r")
    for kind in ("memory", "sqlite", "postgres"):
        (tmp_path / kind).mkdir()
        with open_store(kind, tmp_path / kind, postgres_url, lease=10.0) as other:
            assert imported(other, data) == [True]
            known = other.starts.find_key("acme", "once")
            assert known is not None
            assert (known.run_id, known.body, known.caller, known.answered) == ("r", "b", "c", True)
            assert exported(other, "r") == data


def test_a_run_whose_key_is_taken_is_not_imported(store: Store, tmp_path: Path) -> None:
    desk, request = Desk(store), StartRequest(id="q", tenant="acme", key="once", body="b")
    row, start = new_start("desk", desk.agent.first_messages("Send it.", None), "r", tenant="acme")
    store.create(row, body_of(start), request=request)
    data = exported(store, "r")
    (tmp_path / "other").mkdir()
    with open_store("sqlite", tmp_path / "other", "", lease=10.0) as other:
        row, start = new_start("desk", desk.agent.first_messages("Another.", None), "mine", tenant="acme")
        other.create(row, body_of(start), request=request)
        with pytest.raises(KeyTakenError, match="another run was started with the key 'once'"):
            imported(other, data)
        assert other.find("r") is None
        assert other.read("r") == []

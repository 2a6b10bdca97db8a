"""`penstock log check` and `penstock log migrate`."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import click.testing
import pytest

import penstock.log
from penstock.cli.app import penstock as command
from penstock.log.retention import status as status_module
from penstock.log.retention.status import status_of
from penstock.log.sqlite import schema as sqlite_schema
from tests.log_stores import Desk
from tests.postgres import new_schema


def log(*words: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(command, ["log", *words])


def add_runs(address: str, count: int = 3, **options: str) -> None:
    store = penstock.log.open(address, **options)  # type: ignore[arg-type]
    desk = Desk(store)
    for number in range(count):
        desk.runs.start("desk", "Send it.", run_id=f"r{number}")
        if number:
            desk.runs.drive(f"r{number}")
    store.close()


def test_a_log_is_described_and_not_changed(tmp_path: Path) -> None:
    path = str(tmp_path / "runs.db")
    add_runs(path)
    version, oldest = sqlite_schema.SCHEMA_VERSION, sqlite_schema.OLDEST_VERSION
    result = log("check", "--log", path)
    assert result.exit_code == 0, result.stderr
    first, second, third = result.stdout.splitlines()
    assert first.startswith(f"{path}: tables of version {version}, for versions from {oldest} on, ")
    assert first.endswith(" kB")
    assert (second, third) == ("3 runs: 2 over, 1 ready", "nothing is wrong")
    assert log("migrate", "--log", path).stdout == f"the tables have version {version} already\n"


def test_missing_events_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "runs.db")
    add_runs(path, 5)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM events WHERE seq = 3")
        connection.commit()
    result = log("check", "--log", path)
    assert result.exit_code == 1
    assert "the run r1 has" in result.stdout
    assert len(status_of(path).problems) == 4
    monkeypatch.setattr(status_module, "MAX_PROBLEMS", 2)
    assert len(status_of(path).problems) == 2


def test_tables_of_an_earlier_version_are_upgraded_on_command(tmp_path: Path) -> None:
    path = str(tmp_path / "runs.db")
    with closing(sqlite3.connect(path)) as connection:
        for script in sqlite_schema.MIGRATIONS[:7]:
            connection.executescript(script)
        connection.executescript(f"PRAGMA application_id = {sqlite_schema.APPLICATION_ID}; PRAGMA user_version = 7")
    version = sqlite_schema.SCHEMA_VERSION
    checked = log("check", "--log", path).stdout
    assert f"tables of version 7 (this penstock has {version})" in checked
    assert "`penstock log migrate` upgrades it" in checked
    assert log("migrate", "--log", path).stdout == f"upgraded the tables from version 7 to {version}\n"
    assert status_of(path).is_current


def test_a_database_is_described(postgres_url: str) -> None:
    schema = new_schema()
    add_runs(postgres_url, schema=schema)
    status = status_of(postgres_url, schema)
    assert (status.runs, status.problems, status.is_current) == ({"over": 2, "ready": 1}, (), True)
    assert status.size > 10_000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["check"], "no log is named"),
        (["check", "--log", "missing.db"], "there is no log missing.db"),
        (["check", "--log", "other.db"], "is a database of another program"),
        (["check", "--log", "text.db"], "text.db cannot be read: file is not a database"),
        (["migrate", "--log", "missing.db"], "there is no log missing.db"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_LOG", raising=False)
    (tmp_path / "text.db").write_text("hello " * 1000)
    with closing(sqlite3.connect("other.db")) as connection:
        connection.execute("CREATE TABLE t (x)")
    result = log(*words)
    assert (result.exit_code, message in result.stderr) == (2, True), result.stderr

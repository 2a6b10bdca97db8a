"""`penstock runs export`, `import`, `archive` and `prune`, and the options that keep runs."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import click.testing
import pytest

import penstock.log
from penstock.cli.app import penstock as command
from penstock.log import Store
from tests.log_stores import Desk


@pytest.fixture
def store(tmp_path: Path) -> Any:
    store = penstock.log.open(tmp_path / "runs.db")
    desk = Desk(store)
    for run_id, thread in {"a": "t", "b": "t", "c": ""}.items():
        desk.runs.start("desk", "Send it.", run_id=run_id, thread=thread)
        desk.runs.drive(run_id)
    desk.runs.start("desk", "Send it.", run_id="open")
    yield store
    store.close()


def runs(tmp_path: Path, *words: str, log: str = "runs.db", input: bytes | None = None) -> click.testing.Result:
    arguments = ["runs", "--log", str(tmp_path / log), *words]
    return click.testing.CliRunner().invoke(command, arguments, input=input)


def test_exported_runs_are_imported_into_another_log(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl.gz"
    result = runs(tmp_path, "export", "--all", "-o", str(file))
    assert result.stderr == "3 runs exported\n1 run not finished, and left out: --unfinished exports them\n"
    assert file.stat().st_mode & 0o777 == 0o600
    assert runs(tmp_path, "import", str(file), log="other.db").stderr == "3 runs imported\n"
    assert runs(tmp_path, "import", str(file), log="other.db").stderr == "0 runs imported, 3 were there already\n"
    other = penstock.log.open(tmp_path / "other.db")
    try:
        assert {row.id: row.state for row in other.list()} == {"a": "over", "b": "over", "c": "over"}
        assert other.read("a") == store.read("a")
    finally:
        other.close()


def test_runs_go_through_a_pipe(store: Store, tmp_path: Path) -> None:
    data = runs(tmp_path, "export", "--thread", "t").stdout_bytes
    assert runs(tmp_path, "import", "-", log="other.db", input=data).stderr == "2 runs imported\n"


def test_archived_runs_can_be_brought_back(store: Store, tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    words = "archive", str(archive), "--older-than"
    assert runs(tmp_path, *words, "1d").stdout.startswith("0 runs archived in ")
    assert runs(tmp_path, *words, "0s", "--dry-run").stdout == "3 runs would be archived\n"
    assert runs(tmp_path, *words, "0s").stdout.startswith("3 runs archived in ")
    assert [row.id for row in store.list()] == ["open"]
    files = sorted(map(str, archive.rglob("*.jsonl.gz")))
    assert runs(tmp_path, "import", *files).stderr == "3 runs imported\n"
    assert {row.id for row in store.list()} == {"a", "b", "c", "open"}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["export"], "name the runs, or use --all"),
        (["export", "a", "--all"], "not both"),
        (["export", "zzz"], "there is no run 'zzz'"),
        (["export", "a", "-o", "missing/x.jsonl"], "cannot write missing/x.jsonl: No such file or directory"),
        (["import", "missing.jsonl"], "cannot read missing.jsonl: No such file or directory"),
        (["archive", "runs.db", "--older-than", "1d"], "runs.db is a file: name a directory"),
        (["archive", "x", "--older-than", "soon"], "'soon' is not a duration"),
    ],
)
def test_mistakes_are_one_line(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    result = runs(tmp_path, *words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("\n") == 1


def test_what_came_before_a_damaged_run_of_a_file_is_imported(store: Store, tmp_path: Path) -> None:
    data = runs(tmp_path, "export", "--all").stdout_bytes
    file = tmp_path / "cut.jsonl.gz"
    file.write_bytes(gzip.compress(data[:-20]))
    result = runs(tmp_path, "import", str(file), log="other.db")
    assert result.exit_code == 2
    assert "2 runs imported" in result.stderr
    assert "cut.jsonl.gz" in result.stderr


def test_the_options_of_a_worker_are_checked_before_it_starts(tmp_path: Path) -> None:
    file = tmp_path / "agent.py"
    file.write_text("import penstock\nagent = penstock.Agent('sim:fast', name='desk')\n")
    for words, message in {
        ("--archive", "x"): "--archive needs --keep",
        ("--keep", "soon"): "'soon' is not a duration",
        ("--keep", "30d", "--archive", str(file)): "is a file: name a directory",
    }.items():
        for name in ("worker", "serve"):
            arguments = [name, str(file), "--log", str(tmp_path / "runs.db"), *words]
            result = click.testing.CliRunner().invoke(command, arguments)
            assert (result.exit_code, message in result.stderr) == (2, True), result.stderr
    result = click.testing.CliRunner().invoke(command, ["serve", str(file), "--keep", "30d"])
    assert "--keep needs --log" in result.stderr

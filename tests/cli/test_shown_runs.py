"""`penstock run --log` shows an end that was not shown, instead of starting another run."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest

import penstock.log
from penstock.cli.runs.logged_runs import is_shown
from tests.command import PENSTOCK, run_command
from tests.one_start import CLI_AGENT

pytestmark = pytest.mark.skipif(os.name == "nt", reason="kill -9")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agent.py").write_text(CLI_AGENT.replace("FOLDER", str(tmp_path)))
    return tmp_path


def command(folder: Path, *options: str) -> tuple[int, str, str]:
    """Run the agent; the exit code and what was printed."""
    done = run_command("run", "agent.py", "Pay.", "--log", "runs.db", *options, cwd=folder)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def killed(folder: Path, *options: str) -> None:
    """Run the agent in a process that is killed when the log has the end of the run."""
    process = subprocess.run(
        [*PENSTOCK, "run", "agent.py", "Pay.", "--log", "runs.db", *options],
        cwd=folder, env={**os.environ, "PENSTOCK_CRASH_AT": "after_done"}, capture_output=True, check=False,
    )  # fmt: skip
    assert process.returncode == -signal.SIGKILL
    assert b'"type":"done"' not in process.stdout


def effects(folder: Path) -> int:
    return len((folder / "effects").read_text().splitlines())


@pytest.mark.parametrize("format", ["--quiet", "--json", "--plain"])
def test_an_end_that_was_not_shown_is_shown_once(folder: Path, format: str) -> None:
    killed(folder, format)
    code, output, remark = command(folder, format)
    assert (code, effects(folder)) == (0, 1)
    assert "Done." in output
    assert "--new" in remark
    code, output, remark = command(folder, format)  # which starts another
    assert (code, effects(folder), remark) == (0, 2, "")
    assert "Done." in output


def test_new_starts_a_run_although_an_end_was_not_shown(folder: Path) -> None:
    killed(folder)
    code, output, remark = command(folder, "--new", "--quiet")
    assert (code, output, remark, effects(folder)) == (0, "Done.\n", "", 2)
    code, _, remark = command(folder, "--new", "--run-id", "x")
    assert code == 2
    assert "--new cannot be combined with --run-id" in remark


def test_the_log_records_that_the_end_was_shown_by_any_command(folder: Path) -> None:
    killed(folder)
    store = penstock.log.open(folder / "runs.db")
    [row] = store.list()
    assert not is_shown(store, row.id)
    done = run_command("run", "agent.py", "--log", "runs.db", "--resume", row.id, "-q", cwd=folder)
    assert done.stdout == b"Done.\n"
    assert is_shown(store, row.id)
    store.close()

"""Parked runs on the command line, for readers of the run, and for clients of a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click.testing
import pytest

from penstock import Agent, Runs
from penstock.cli.app import penstock as command
from penstock.log import SQLiteStore
from penstock.log.suspects import park
from penstock.run.events import LogEvent, Taken, Waiting
from penstock.serve.ag_ui.encoder import AGUIEncoder, RunHead
from penstock.serve.ai_sdk.encoder import UIMessageEncoder

AGENT = Agent("sim:fast", name="desk")


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SQLiteStore]:
    """A log with the parked run `r`."""
    monkeypatch.chdir(tmp_path)
    store = SQLiteStore("runs.db")
    Runs(store, {"desk": AGENT}).start("desk", "Hello.", run_id="r")
    claim = store.claim("a worker", run_id="r")
    assert claim is not None
    assert park(store, claim, "6 workers died")
    yield store
    store.close()


def penstock(*arguments: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(command, ["runs", arguments[0], "--log", "runs.db", *arguments[1:]])


def test_the_command_line_lists_shows_and_retries_a_parked_run(log: SQLiteStore) -> None:
    listed = penstock("list", "--state", "parked")
    assert "parked" in listed.stdout
    assert "Workers skip a parked run until it is retried: `penstock runs --log runs.db show r`" in listed.stderr
    shown = penstock("show", "r", "--plain")
    assert "6 workers died" in shown.stdout
    assert "`penstock runs --log runs.db retry r`. Or end it: `penstock runs --log runs.db cancel r`" in shown.stdout
    assert json.loads(penstock("show", "r", "--json").stdout)["parked"] == "6 workers died"
    assert penstock("retry", "r").stdout.startswith("a worker continues r alone")
    assert "only a damaged or parked run can be retried, and r is ready" in penstock("retry", "r").stderr
    assert Runs(log, {"desk": AGENT}).drive("r").state == "over"


def test_the_command_line_cancels_a_parked_run(log: SQLiteStore) -> None:
    assert penstock("cancel", "r").stdout == "cancelled r\n"
    assert [row.state for row in log.list()] == ["over"]


def test_whoever_runs_a_parked_run_gets_the_reason(log: SQLiteStore) -> None:
    result = AGENT.run("Hello.", log=log, run_id="r")
    assert (result.reason, result.why) == ("paused", "6 workers died")
    assert [row.state for row in log.list()] == ["parked"]


def test_front_ends_end_the_stream_of_a_parked_run_with_an_error() -> None:
    events: list[LogEvent] = [Taken(1), Waiting(why="6 workers died")]
    chat = UIMessageEncoder("r")
    assert b'"type":"error"' in b"".join([*chat.feed(events), *chat.close()])
    agent = AGUIEncoder(RunHead(run_id="r", thread_id="thread", client_run_id="r"))
    written = b"".join([*agent.feed(events), *agent.close()])
    assert b"RUN_ERROR" in written
    assert b"6 workers died" not in written

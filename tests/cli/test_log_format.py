"""`--log-format json`: every line is one JSON object, with fields for programs; and the port of a worker."""

from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
import urllib.request
import warnings
from pathlib import Path
from typing import Any

import click.testing
import pytest

from penstock import Agent, Runs
from penstock.cli.app import penstock as command
from penstock.cli.commands.worker import read_place
from penstock.cli.model_options import CommandError
from penstock.cli.printed_log import announce, printed_records
from penstock.log import SQLiteStore
from tests.serve.operations.test_readiness import AGENT_FILE, process

PATIENCE = 60


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_records_are_one_line_of_json_each(capsys: pytest.CaptureFixture[str]) -> None:
    logger = logging.getLogger("penstock.runs")
    with printed_records("penstock.runs", form="json"):
        announce("serving", "json", {"address": "http://x"})
        logger.info("run %s", "a\nb\x1b[31m€", extra={"fields": {"run": "r", "tenant": "", "level": "mine"}})
        logging.getLogger("penstock.other").info("not shown")
        logging.getLogger("asyncio").warning("of a library")
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            logging.captureWarnings(True)
            warnings.warn("old", stacklevel=1)
        try:
            raise ValueError("bad")
        except ValueError:
            logging.getLogger("penstock.serve").exception("failed")
    err = capsys.readouterr().err
    assert "\x1b" not in err
    found = lines(err)
    assert [one["message"] for one in found[:3]] == ["serving", r"run a\nb\x1b[31m€", "of a library"]
    assert found[0]["address"] == "http://x"
    assert (found[1]["run"], found[1]["tenant"], found[1]["level"], found[1]["logger"]) == (
        "r", "", "info", "penstock.runs",
    )  # fmt: skip
    assert found[1]["time"].endswith("Z")
    assert found[2]["level"] == "warning"
    assert "old" in found[3]["message"]
    assert found[4]["exception"].endswith("ValueError: bad")


def test_lines_for_people_have_no_json(capsys: pytest.CaptureFixture[str]) -> None:
    with printed_records("penstock.runs"):
        announce("serving \x1b[31m", "plain", {"address": "http://x"})
        logging.getLogger("penstock.runs").info("run r", extra={"fields": {"run": "r"}})
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("serving ")
    assert "\x1b" not in first
    assert second[8:] == " run r"


def test_a_worker_says_whose_run_it_was(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "runs.db")
    run_id = Runs(store, {"desk": Agent("sim:fast", name="desk")}).start("desk", "Hi", tenant="acme")
    options = ["worker", "agent.py", "--log", "runs.db", "--metrics", "0"]
    with process(*options, folder=tmp_path) as (running, url):
        assert running.stderr is not None
        of_run: list[dict[str, Any]] = []
        while len(of_run) < 2:
            record = json.loads(running.stderr.readline())
            of_run += [record] if "run" in record else []
        with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE) as response:
            assert b'penstock_claims_total{how="started"} 1\n' in response.read()
        running.send_signal(signal.SIGTERM)
        rest = lines(running.stderr.read())
        assert running.wait(PATIENCE) == 0
    store.close()
    assert [record["message"].partition(": ")[2] for record in of_run] == ["started, agent desk", "ended, answered"]
    owners = {record["owner"] for record in of_run}
    assert len(owners) == 1
    assert f":{running.pid}:" in owners.pop()
    assert {(record["run"], record["tenant"], record["agent"]) for record in of_run} == {(run_id, "acme", "desk")}
    assert rest[-1]["message"] == "stopped"


def test_a_gateway_logs_requests_with_fields(tmp_path: Path) -> None:
    options = ["gateway", "--upstream", "http://127.0.0.1:9/v1", "--port", "0"]
    with process(*options, folder=tmp_path) as (running, url):
        subprocess.run([sys.executable, "-c", f"""
import urllib.request
try: urllib.request.urlopen("{url}/nothing")
except OSError: pass
"""], check=True)  # fmt: skip
        assert running.stderr is not None
        record = json.loads(running.stderr.readline())
    assert (record["path"], record["status"], record["logger"]) == ("/nothing", 404, "penstock.gateway")
    assert record["request"]


@pytest.mark.parametrize(
    ("text", "place"),
    [("9100", ("127.0.0.1", 9100)), ("0.0.0.0:1", ("0.0.0.0", 1)), ("[::1]:80", ("::1", 80)), (":7", ("127.0.0.1", 7))],
)
def test_a_place_is_a_host_and_a_port(text: str, place: tuple[str, int]) -> None:
    assert read_place(text) == place


@pytest.mark.parametrize("text", ["", "x", "host:", "host:99999", "host:1e3", "host:٣"])
def test_a_place_without_a_port_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="HOST:PORT"):
        read_place(text)


def test_other_machines_need_a_token_for_the_metrics_of_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PENSTOCK_TOKEN", raising=False)
    Path("agent.py").write_text(AGENT_FILE, encoding="utf-8")
    options = ["worker", "agent.py", "--log", "runs.db", "--metrics", "0.0.0.0:0"]
    result = click.testing.CliRunner().invoke(command, options)
    assert result.exit_code == 2
    assert "set a token" in result.stderr

"""The life of a server: runs that nobody reads, servers that stop and others that take over, and `--reload`."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

import pytest

import penstock.serve
from penstock import Agent, Model, Runs, UsageError
from penstock.cli import reloading
from penstock.cli.reloading import file_times, folders_of
from penstock.log import SQLiteStore
from penstock.serve.abandonment import Abandonment
from penstock.testing import Reply, Scripted, wait
from tests.asgi_client import Browser, serving

PATIENCE = 60

# -- runs that nobody reads --------------------------------------------------------------------------------------------


def test_a_run_is_abandoned_when_nobody_has_read_it_for_so_long() -> None:
    readers = {"a": 0, "b": 1}
    watch = Abandonment(cast("Runs", None), 10, lambda: readers, lambda run_id: readers[run_id])
    assert watch.abandoned(100) == []
    assert watch.abandoned(109) == []
    assert watch.abandoned(110) == ["a"]
    readers["b"] = 0
    assert watch.abandoned(115) == ["a"]
    readers["a"] = 1
    assert watch.abandoned(119) == []
    assert watch.abandoned(120) == ["b"]
    del readers["b"]
    readers["a"] = 0
    assert watch.abandoned(128) == []
    assert watch.abandoned(130) == ["a"]


def test_an_abandoned_run_is_cancelled_and_a_read_one_goes_on() -> None:
    agent = Agent(Model("openai:gpt-5", via=Scripted(lambda request: Reply("first ", wait(2), "last"))), name="support")

    async def test(browser: Browser) -> None:
        alone = (await browser.post("/runs", {"prompt": "alone"})).json["id"]
        followed = (await browser.post("/runs", {"prompt": "followed"})).json["id"]
        connection = browser.connect("GET", f"/runs/{followed}/events")
        await connection.reply.until('"type":"done"')
        assert connection.reply.frames[-1][1]["output"] == "first last"
        end = (await browser.get(f"/runs/{alone}/events")).frames[-1][1]
        assert (end["reason"], end["why"]) == ("cancelled", "nobody has read the run for 0.2 seconds")

    async def go() -> None:
        async with serving(penstock.serve.app(agent, abandon_after=0.2)) as browser:
            await test(browser)

    asyncio.run(go())


def test_a_time_that_is_not_one_is_refused() -> None:
    agent = Agent("sim:demo", name="support")
    with pytest.raises(UsageError, match="abandon_after"):
        penstock.serve.app(agent, abandon_after=0)


# -- servers that stop -------------------------------------------------------------------------------------------------

SERVER = """
import os, sys, time
from penstock.agent.agent import Agent
from penstock.asgi.server import listen, run_server
from penstock.log.sqlite.store import SQLiteStore
from penstock.model.model import Model
from penstock.serve import app
from penstock.testing import Reply, Scripted
from penstock.tools.tool import tool

path, gate, seconds = sys.argv[1:]

@tool(read_only=True)
def hold() -> str:
    while not os.path.exists(gate):
        time.sleep(0.02)
    return "open"

def answer(request):
    from penstock.testing import call
    is_first = request.body["messages"][-1]["role"] == "user"
    return Reply("Holding. ", call("hold", {})) if is_first else "Done."

agent = Agent(Model("deepseek:test", via=Scripted(answer)), tools=[hold], name="support")
served = app(agent, log=SQLiteStore(path, lease=2), shutdown_seconds=float(seconds))
with listen("127.0.0.1", 0) as listener:
    print(listener.getsockname()[1], flush=True)
    run_server(served, listener, served.context.limits, on_stop=served.context.feeds.close)
"""


@contextmanager
def server(folder: Path, seconds: float) -> Generator[tuple[subprocess.Popen[str], str]]:
    """A process that serves an agent whose tool waits for the file `gate`, and its address."""
    command = [sys.executable, "-c", SERVER, str(folder / "runs.db"), str(folder / "gate"), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process, f"http://127.0.0.1:{int(cast('IO[str]', process.stdout).readline())}"
        finally:
            process.kill()


def start(url: str) -> str:
    body = json.dumps({"prompt": "Hold, please."}).encode()
    request = urllib.request.Request(f"{url}/runs", body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
        return str(json.load(reply)["id"])


def until_holding(url: str, run_id: str) -> None:
    with urllib.request.urlopen(f"{url}/runs/{run_id}/events", timeout=PATIENCE) as stream:
        while b'"tool_start"' not in stream.readline():
            pass


def row_of(folder: Path, run_id: str, log: str = "runs.db") -> Any:
    store = SQLiteStore(folder / log)
    try:
        return store.find(run_id)
    finally:
        store.close()


def test_a_server_that_is_told_to_stop_lets_its_answers_end(tmp_path: Path) -> None:
    with server(tmp_path, seconds=30) as (process, url):
        run_id = start(url)
        until_holding(url, run_id)
        process.send_signal(signal.SIGTERM)
        (tmp_path / "gate").touch()
        process.wait(PATIENCE)
    assert row_of(tmp_path, run_id).state == "over"


def test_an_answer_that_does_not_end_is_left_to_another_server_where_a_reader_gets_all_of_it(tmp_path: Path) -> None:
    with server(tmp_path, seconds=0.1) as (first, url), server(tmp_path, seconds=0.1) as (_, other):
        run_id = start(url)
        until_holding(url, run_id)
        first.send_signal(signal.SIGTERM)
        first.wait(PATIENCE)
        (tmp_path / "gate").touch()
        with penstock.serve.Client(other) as client:
            run = client.follow(run_id)
            assert run.result().output == "Done."
            assert client.find(run_id).done is not None


def test_a_server_that_is_killed_is_replaced_and_its_reader_goes_on_elsewhere(tmp_path: Path) -> None:
    with server(tmp_path, seconds=0.1) as (first, url), server(tmp_path, seconds=0.1) as (_, other):
        run_id = start(url)
        until_holding(url, run_id)
        first.kill()
        first.wait(PATIENCE)
        (tmp_path / "gate").touch()
        with penstock.serve.Client(other) as client:
            assert client.follow(run_id).result().output == "Done."


# -- reload ------------------------------------------------------------------------------------------------------------

AGENT = 'import penstock\nagent = penstock.Agent("sim:demo", name="{name}")\n'


def test_the_files_that_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "inner" / ".hidden").mkdir(parents=True)
    for name in ("a.py", "b.txt", "inner/c.py", "inner/.hidden/d.py"):
        (tmp_path / name).touch()
    assert [Path(path).name for path in file_times([tmp_path])] == ["a.py", "c.py"]
    monkeypatch.setattr(reloading, "MAX_FILES", 1)
    assert len(file_times([tmp_path])) == 1
    monkeypatch.chdir(tmp_path)
    assert folders_of([f"{tmp_path}/inner/c.py:agent", "module:agent", "other"]) == [tmp_path / "inner", tmp_path]


def test_reload_serves_the_changed_agent(tmp_path: Path) -> None:
    file = tmp_path / "agent.py"
    file.write_text(AGENT.format(name="before"))
    command = [sys.executable, "-m", "penstock", "serve", str(file), "--port", "0", "--reload"]
    with subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, "PENSTOCK_TOKEN": ""}
    ) as child:
        lines = cast("IO[str]", child.stderr)
        try:
            assert "serving before on" in lines.readline()
            file.write_text("raise SyntaxError\n")
            os.utime(file, ns=(time.time_ns(), time.time_ns() + 1))
            assert "agent.py has changed" in lines.readline()
            file.write_text(AGENT.format(name="after_the_change"))
            os.utime(file, ns=(time.time_ns(), time.time_ns() + 2))
            while "serving after_the_change on" not in (line := lines.readline()):
                assert line, "it ended"
        finally:
            child.send_signal(signal.SIGINT)
            child.wait(PATIENCE)
    assert child.returncode == 0


# -- what is printed ---------------------------------------------------------------------------------------------------


def test_the_server_prints_why_a_run_failed_and_keeps_runs_where_the_environment_says(tmp_path: Path) -> None:
    file, log = tmp_path / "agent.py", tmp_path / "kept.db"
    file.write_text('import penstock\nagent = penstock.Agent("openai:gpt-5", name="support")\n')
    command = [sys.executable, "-m", "penstock", "serve", str(file), "--port", "0"]
    env = {name: value for name, value in os.environ.items() if name != "OPENAI_API_KEY"}
    env |= {"PENSTOCK_TOKEN": "", "PENSTOCK_LOG": str(log)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=env) as child:
        lines = cast("IO[str]", child.stderr)
        try:
            first = lines.readline()
            assert "(runs in kept.db)" in first
            run_id = start(first.split()[3])
            while f"run {run_id}: ended, error: no API key for openai: set OPENAI_API_KEY" not in (
                line := lines.readline()
            ):
                assert line, "it ended"
        finally:
            child.send_signal(signal.SIGINT)
            child.wait(PATIENCE)
    assert row_of(tmp_path, run_id, "kept.db").state == "over"

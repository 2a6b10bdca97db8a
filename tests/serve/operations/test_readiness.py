"""Probes of load balancers: a server says that it is about to stop, and still answers for a while."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import penstock.serve
from penstock import Agent
from penstock.asgi import readiness
from penstock.asgi.readiness import Readiness
from penstock.log.flusher import flusher_of
from penstock.log.in_memory import MemoryStore
from tests.asgi_client import serving

PATIENCE = 60
AGENT_FILE = """
import penstock
from penstock.testing import Scripted

agent = penstock.Agent(penstock.Model("openai:gpt-5", via=Scripted(lambda request: "Hello.")), name="desk")
"""


def ask(url: str, body: Any = None) -> tuple[int, Any]:
    """The status and the JSON of a response."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return response.status, json.load(response)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@contextmanager
def process(*arguments: str, folder: Path) -> Generator[tuple[subprocess.Popen[str], str]]:
    """A command that says as JSON where it listens, and its address."""
    (folder / "agent.py").write_text(AGENT_FILE, encoding="utf-8")
    command = [sys.executable, "-m", "penstock", *arguments, "--log-format", "json"]
    with subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stderr is not None
            yield running, json.loads(running.stderr.readline())["address"]
        finally:
            running.kill()


def serve(folder: Path, *options: str) -> Any:
    return process("serve", "agent.py", "--log", "runs.db", "--port", "0", *options, folder=folder)


def test_a_server_that_is_about_to_stop_says_so_and_closes_connections() -> None:
    async def main() -> None:
        app = penstock.serve.app(Agent("sim:fast", name="desk"))
        async with serving(app) as browser:
            reply = await browser.get("/readyz")
            assert (reply.status, reply.json) == (200, {"status": "ready"})
            assert "connection" not in reply.headers
            app.drain()
            reply = await browser.get("/readyz")
            assert (reply.status, reply.json["reason"]) == (503, "the server is about to stop")
            reply = await browser.get("/metrics")
            assert (reply.status, reply.headers["connection"]) == (200, "close")
            assert b"penstock_draining 1\n" in reply.body

    asyncio.run(main())


def test_a_log_that_accepts_no_events_makes_a_server_unready() -> None:
    async def main() -> None:
        store = MemoryStore()
        async with serving(penstock.serve.app(Agent("sim:fast", name="desk"), log=store)) as browser:
            flusher_of(store).is_behind = True
            reply = await browser.get("/readyz")
            assert (reply.status, reply.json["reason"]) == (503, "the log of runs does not accept events")

    asyncio.run(main())


def test_a_server_is_watched_for_a_while_after_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    watched = Readiness()
    assert not watched.is_watched
    watched._asked = now
    now += readiness.WATCHED_SECONDS
    assert watched.is_watched
    now += 1
    assert not watched.is_watched


def test_a_probed_server_answers_until_the_end_of_its_drain(tmp_path: Path) -> None:
    with serve(tmp_path, "--drain-seconds", "3") as (running, url):
        assert ask(f"{url}/readyz")[0] == 200
        running.send_signal(signal.SIGTERM)
        began = time.monotonic()
        while (status := ask(f"{url}/readyz")[0]) == 200:
            assert time.monotonic() - began < 2
        assert status == 503
        assert ask(f"{url}/runs", {"prompt": "Hi"})[0] == 201
        assert running.wait(PATIENCE) is not None
        assert time.monotonic() - began >= 3


@pytest.mark.parametrize("signals", [[signal.SIGINT], [signal.SIGTERM, signal.SIGTERM]], ids=["ctrl-c", "twice"])
def test_a_probed_server_stops_at_once_after_ctrl_c_or_a_second_signal(
    tmp_path: Path, signals: list[signal.Signals]
) -> None:
    with serve(tmp_path, "--drain-seconds", "300") as (running, url):
        assert ask(f"{url}/readyz")[0] == 200
        for number in signals:
            running.send_signal(number)
            time.sleep(0.3)
        running.wait(PATIENCE)


def test_a_server_that_nobody_probes_stops_at_once(tmp_path: Path) -> None:
    with serve(tmp_path, "--drain-seconds", "300") as (running, url):
        assert ask(f"{url}/healthz")[0] == 200
        running.send_signal(signal.SIGTERM)
        running.wait(PATIENCE)


def test_a_gateway_drains_too(tmp_path: Path) -> None:
    options = ["gateway", "--upstream", "http://127.0.0.1:9/v1", "--port", "0", "--drain-seconds", "2"]
    with process(*options, folder=tmp_path) as (running, url):
        assert ask(f"{url}/readyz") == (200, {"status": "ready"})
        running.send_signal(signal.SIGTERM)
        began = time.monotonic()
        while (status := ask(f"{url}/readyz")[0]) == 200:
            assert time.monotonic() - began < 1.5
        assert status == 503
        assert ask(f"{url}/healthz")[0] == 200
        running.wait(PATIENCE)
        assert time.monotonic() - began >= 2


def test_a_worker_is_probed_on_its_own_port(tmp_path: Path) -> None:
    options = ["worker", "agent.py", "--log", "runs.db", "--metrics", "127.0.0.1:0"]
    with process(*options, folder=tmp_path) as (running, url):
        assert ask(f"{url}/readyz") == (200, {"status": "ready"})
        assert ask(f"{url}/healthz") == (200, {"status": "ok"})
        with urllib.request.urlopen(f"{url}/metrics", timeout=PATIENCE) as response:
            assert b"penstock_log_up 1\n" in response.read()
        running.send_signal(signal.SIGTERM)
        assert running.wait(PATIENCE) == 0

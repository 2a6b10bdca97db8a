"""The benchmarks that use the insides of an agent still run: each once, with little to do."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import process
from benchmarks.early_server import PunctualServer
from benchmarks.environment import ROOT
from benchmarks.serve_server import served
from tests.asgi_client import serving


@pytest.mark.parametrize("function", ["penstock_read_only_async", "penstock_read_only_sync", "penstock_prepared_async"])
def test_an_early_start_is_measured(function: str) -> None:
    with PunctualServer([0.02, 0.04], 0.1) as server:
        starts = process.ask(sys.executable, "early_agents", function, server.base_url)
    assert len(starts) == server.results == 2


def test_runs_without_a_log_are_measured() -> None:
    command = [sys.executable, "-m", "benchmarks.log_crowd", "none", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_served_runs_are_measured(tmp_path: Path) -> None:
    events = asyncio.run(_served_events(3, str(tmp_path)))
    assert [event["type"] for event in events].count("text") == 3
    assert events[-1]["reason"] == "answered"


async def _served_events(texts: int, folder: str) -> list[dict[str, Any]]:
    go = asyncio.Event()
    async with serving(served("none", texts, 0.0, go, folder)) as client:
        run_id = (await client.post("/runs", {"prompt": "Go."})).json["id"]
        go.set()
        return [event for _, event in (await client.get(f"/runs/{run_id}/events")).frames]

"""A worker or a server that starts while its database cannot be reached waits for it, and says so."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from penstock.log import PostgresStore
from tests.postgres import NoServer, own_server

AGENT = """
import penstock
from penstock.testing import Scripted

agent = penstock.Agent(penstock.Model("openai:gpt-5", via=Scripted(["Hello."])), name="desk")
"""
SECONDS = 60.0


@pytest.mark.parametrize("command", ["worker", "serve"])
def test_a_command_that_starts_before_its_database_waits_for_it(command: str, tmp_path: Path) -> None:
    try:
        server = own_server()
    except NoServer as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    (tmp_path / "agent.py").write_text(AGENT)
    with server:
        url = server.get_uri()
        PostgresStore(url).close()
        server.stop()
        extra = ["--port", "0"] if command == "serve" else []
        command_line = [sys.executable, "-m", "penstock", command, "agent.py", "--log", url, *extra]
        with subprocess.Popen(command_line, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as started:
            assert started.stderr is not None
            try:
                assert "waiting for the log, next attempt in 0.5 s" in started.stderr.readline()
                server.start()
                while (line := started.stderr.readline()).startswith("waiting"):
                    pass
            finally:
                started.terminate()
                started.wait(SECONDS)
    assert line == "the log can be used\n"


def test_a_database_that_does_not_exist_is_not_waited_for(tmp_path: Path, postgres_url: str) -> None:
    began = time.monotonic()
    (tmp_path / "agent.py").write_text(AGENT)
    url = postgres_url.replace("/postgres?", "/no_such_database?")
    done = subprocess.run(
        [sys.executable, "-m", "penstock", "worker", "agent.py", "--log", url],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 2
    assert "waiting" not in done.stderr
    assert time.monotonic() - began < SECONDS

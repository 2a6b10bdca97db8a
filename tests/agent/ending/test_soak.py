"""Many runs in one process, a tenth of them interrupted: nothing grows, and nothing is left. `make soak` does more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from penstock.testing import Loopback
from tests.soak import reply

ROOT = Path(__file__).parents[3]
RUNS = 300


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="no list of what a process holds")
def test_runs_leave_nothing_behind() -> None:
    with Loopback(reply) as server:
        command = [sys.executable, "-W", "error", "-m", "tests.soak", "--runs", str(RUNS)]
        url = server.base_url("openai-chat")
        done = subprocess.run(
            [*command, "--url", url], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
        )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert f"{RUNS} runs" in done.stdout

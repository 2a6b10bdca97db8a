"""Runs a module of the benchmarks in its own process, possibly in the environment of a peer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.environment import ROOT

QUIET = {
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "PYTHONWARNINGS": "ignore",
}
"""Settings that keep the peers from using the network."""


class ProcessFailed(Exception):
    """A process failed; the message is the last line of its output."""


def variables() -> dict[str, str]:
    """The environment variables of the process."""
    return {**os.environ, **QUIET, "PYTHONPATH": str(ROOT / "src")}


def ask(python: str | Path, module: str, *words: object) -> Any:
    """Runs a module of the benchmarks with these arguments, and returns the JSON that it prints."""
    command = [str(python), "-m", f"benchmarks.{module}", *map(str, words)]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        result = subprocess.run(
            command, cwd=ROOT, env=variables(), stdout=subprocess.PIPE, stderr=errors, text=True, check=False
        )
        errors.seek(0)
        output = errors.read().strip().splitlines()[-1:]
    if result.returncode == -signal.SIGALRM:
        raise ProcessFailed("it took too long")
    if result.returncode:
        raise ProcessFailed(" ".join(output) or f"exit {result.returncode}")
    return json.loads(result.stdout)

"""A part of the benchmarks that runs as a process of its own, maybe in a peer's environment."""

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
"""What keeps the peers from looking around the network."""


class ProcessFailed(Exception):
    """A process did not end well; the message is what it said last."""


def variables() -> dict[str, str]:
    """The environment variables of such a process."""
    return {**os.environ, **QUIET, "PYTHONPATH": str(ROOT / "src")}


def ask(python: str | Path, module: str, *words: object) -> Any:
    """The JSON that a module of ours prints, run by that Python with these words."""
    command = [str(python), "-m", f"benchmarks.{module}", *map(str, words)]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        result = subprocess.run(
            command, cwd=ROOT, env=variables(), stdout=subprocess.PIPE, stderr=errors, text=True, check=False
        )
        errors.seek(0)
        said = errors.read().strip().splitlines()[-1:]
    if result.returncode == -signal.SIGALRM:
        raise ProcessFailed("it took too long")
    if result.returncode:
        raise ProcessFailed(" ".join(said) or f"exit {result.returncode}")
    return json.loads(result.stdout)

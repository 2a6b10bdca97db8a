"""Starts a llama.cpp server in its own process, for tests."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def running(model: Path) -> Generator[str]:
    """The address of a server with this model."""
    log = model.with_suffix(".log")
    command = [sys.executable, "-m", "tests.llamacpp.serve", str(model)]
    with (
        log.open("w") as errors,
        subprocess.Popen(
            command, cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors,
            text=True,
        ) as process,
    ):  # fmt: skip
        assert process.stdout is not None
        try:
            found = next((line.strip() for line in process.stdout if line.startswith("http")), "")
            assert found, f"the server did not start:\n{log.read_text()}"
            yield found
        finally:
            process.kill()

"""The gateway as a user starts it: a process, with upstreams on its command line."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parent.parent
START_SECONDS = 60.0


@contextmanager
def gateway_process(upstreams: Mapping[str, str], *options: str) -> Generator[str]:
    """The address of a gateway on any free port; `upstreams` are URLs by their names."""
    with running_gateway(upstreams, *options) as (address, _):
        yield address


@contextmanager
def running_gateway(upstreams: Mapping[str, str], *options: str) -> Generator[tuple[str, int]]:
    """The address of a gateway, and the id of its process."""
    words = [word for name, url in upstreams.items() for word in ("--upstream", f"{name}={url}")]
    command = [sys.executable, "-m", "penstock.cli", "gateway", "--port", "0", *words, *options]
    with TemporaryDirectory() as folder:
        log = Path(folder) / "log.txt"  # and not a pipe: it would be full one day
        with (
            log.open("wb") as output,
            subprocess.Popen(command, cwd=ROOT, stdout=output, stderr=subprocess.STDOUT) as process,
        ):
            try:
                yield _address(process, log), process.pid
            finally:
                process.terminate()
                process.wait(30)


def _address(process: subprocess.Popen[bytes], log: Path) -> str:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and process.poll() is None:
        if found := re.search(r"http://127\.0\.0\.1:\d+(?=/v1)", log.read_text(encoding="utf-8")):
            return found[0]
        time.sleep(0.05)
    raise AssertionError(f"the gateway did not start: {log.read_text(encoding='utf-8')}")

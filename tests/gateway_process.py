"""The gateway as a user starts it: a process, with upstreams on its command line."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parent.parent


@contextmanager
def gateway_process(upstreams: Mapping[str, str], *options: str) -> Iterator[str]:
    """The address of a gateway on any free port; `upstreams` are URLs by their names."""
    words = [word for name, url in upstreams.items() for word in ("--upstream", f"{name}={url}")]
    command = [sys.executable, "-m", "penstock.cli", "gateway", "--port", "0", *words, *options]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8"
    ) as process:
        try:
            assert process.stdout is not None
            lines: list[str] = []
            for line in process.stdout:
                lines.append(line)
                if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                    yield found[0]
                    break
            else:
                raise AssertionError("the gateway did not start:\n" + "".join(lines))
        finally:
            process.terminate()
            process.communicate(timeout=30)

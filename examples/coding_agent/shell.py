"""Commands of the shell: their output, and their end if they take too long or the run is cancelled."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

MAX_OUTPUT = 20_000
"""The characters of output that are kept: the first and the last half."""


async def run_command(command: str, folder: Path, seconds: float) -> str:
    """Run a command, and return its output and exit code. A failed command is a result as any other."""
    process = await asyncio.create_subprocess_shell(
        command,
        cwd=folder,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,  # so that its children can be ended with it
    )
    assert process.stdout is not None
    output = Tail()
    try:
        async with asyncio.timeout(seconds):
            while data := await process.stdout.read(65536):
                output.add(data)
            end = f"exit code {await process.wait()}"
    except TimeoutError:
        end = f"ended after {seconds:g} seconds"
    finally:
        _kill(process)  # also what it left in the background
        await process.wait()
    return f"{output.text}\n[{end}]".lstrip("\n")


class Tail:
    """The beginning and the end of a long output."""

    def __init__(self) -> None:
        self._head = self._tail = b""
        self._size = 0

    def add(self, data: bytes) -> None:
        self._size += len(data)
        room = MAX_OUTPUT // 2 - len(self._head)
        self._head += data[:room]
        self._tail = (self._tail + data[room:])[-MAX_OUTPUT // 2 :]

    @property
    def text(self) -> str:
        left_out = self._size - len(self._head) - len(self._tail)
        middle = f"\n… {left_out} bytes left out …\n".encode() if left_out else b""
        return (self._head + middle + self._tail).decode("utf-8", "replace").rstrip()


def _kill(process: asyncio.subprocess.Process) -> None:
    """End a command with everything that it started."""
    try:
        if sys.platform == "win32":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass

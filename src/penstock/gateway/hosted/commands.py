"""Commands that run web tools: the query on standard input, the result on standard output, no shell."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct

PASSED = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ", "SYSTEMROOT", "PATHEXT", "TEMP", "TMP",
          "USERPROFILE", "COMSPEC")  # fmt: skip
"""The variables of the environment that every command gets; others may be secrets."""
MAX_OUTPUT = 1024 * 1024
"""How many bytes of a command's output are read."""
MAX_ERRORS = 300
"""How many bytes of what a command wrote to standard error are reported."""
_READ = 64 * 1024
_GRACE = 2.0  # seconds for the pipes of a killed command to close


class CommandFailed(Exception):
    """A command that gave no result, and why."""


class Command(Struct, frozen=True):
    """A command, and the variables that it gets besides `PASSED`."""

    arguments: tuple[str, ...]
    variables: Mapping[str, str] = {}


async def run_command(command: Command, text: str, seconds: float) -> str:
    """The output of a command that got this text. It is killed at the timeout, and if this is cancelled."""
    environment = {name: os.environ[name] for name in PASSED if name in os.environ} | dict(command.variables)
    pipe = asyncio.subprocess.PIPE
    try:
        process = await asyncio.create_subprocess_exec(
            *command.arguments, stdin=pipe, stdout=pipe, stderr=pipe, env=environment,
            start_new_session=os.name != "nt",
        )  # fmt: skip
    except (OSError, ValueError) as error:
        raise CommandFailed(f"it cannot be started: {error}") from None
    try:
        async with asyncio.timeout(seconds):
            return await _talk(process, text)
    except TimeoutError:
        raise CommandFailed(f"it gave no result within {seconds:g} seconds") from None
    finally:
        await _stop(process)


async def _talk(process: asyncio.subprocess.Process, text: str) -> str:
    assert process.stdout is not None
    assert process.stderr is not None
    errors = asyncio.create_task(_tail(process.stderr))
    try:
        await _write(process, text)
        output = await _head(process.stdout)
        if len(output) < MAX_OUTPUT and await process.wait() != 0:
            tail = (await errors).decode("utf-8", "replace").strip()
            raise CommandFailed(f"it ended with the code {process.returncode}{f': {tail}' if tail else ''}")
        return output.decode("utf-8", "replace")
    finally:
        errors.cancel()
        await asyncio.wait([errors])  # until then it reads the pipe, which `_stop` reads to its end


async def _write(process: asyncio.subprocess.Process, text: str) -> None:
    """Give the command its input; it may end without reading it."""
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.write(f"{text}\n".encode())
        await process.stdin.drain()
        process.stdin.close()


async def _head(stream: asyncio.StreamReader) -> bytes:
    """What a command writes, up to the cap."""
    data = bytearray()
    while len(data) < MAX_OUTPUT and (piece := await stream.read(_READ)):
        data += piece
    return bytes(data[:MAX_OUTPUT])


async def _tail(stream: asyncio.StreamReader) -> bytes:
    """The end of what a command writes."""
    data = b""
    while piece := await stream.read(_READ):
        data = (data + piece)[-MAX_ERRORS:]
    return data


async def _stop(process: asyncio.subprocess.Process) -> None:
    """Kill the command and its children, and read what is left in its pipes, which closes them."""
    with suppress(ProcessLookupError, PermissionError):
        if os.name == "nt":
            process.kill()
        else:
            os.killpg(process.pid, signal.SIGKILL)
    with suppress(TimeoutError):  # a child in a session of its own may hold the pipes
        async with asyncio.timeout(_GRACE):
            for stream in (process.stdout, process.stderr):
                while stream is not None and await stream.read(_READ):
                    pass
            await process.wait()

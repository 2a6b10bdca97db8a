"""A server as a subprocess: JSON-RPC over its standard input and output, one message per line.

Unlike the transport of the SDK, it has a cap on the size of a message, reads in linear time, and keeps the end of the
server's standard error, which says why a server did not start.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import mcp_types
import msgspec
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from msgspec import Struct

from penstock.jsontext.nearest import nearest_json
from penstock.mcp.errors import ServerError

MAX_STDERR = 2000
"""How many of the last characters of a server's standard error are kept."""

_READ = 64 * 1024
_GRACE = 1.0  # seconds for a server to end after its input was closed, and again after it was asked to


class Subprocess:
    """A server as a subprocess, and its streams."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str], cwd: str | Path | None, limit: int) -> None:
        self._command = [shutil.which(command[0]) or command[0], *command[1:]]
        self._env = get_default_environment() | dict(env)
        self._cwd = cwd
        self._limit = limit
        self._process: asyncio.subprocess.Process
        self._written = b""
        self._errors_are_read = anyio.Event()

    @property
    def stderr_tail(self) -> str:
        """The end of the server's standard error."""
        return self._written.decode("utf-8", "replace").strip()

    @asynccontextmanager
    async def connect(self) -> AsyncGenerator[tuple[Any, Any]]:
        """Start the server; its streams of messages are open until the end of the context."""
        pipe = asyncio.subprocess.PIPE
        try:
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=pipe, stdout=pipe, stderr=pipe, env=self._env, cwd=self._cwd,
                start_new_session=os.name != "nt",
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise ServerError(f"the MCP server cannot be started: {error}") from None
        inbox, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        outgoing, outbox = anyio.create_memory_object_stream[SessionMessage](0)
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._read, inbox)
                tasks.start_soon(self._read_errors)
                tasks.start_soon(self._write, outbox, inbox)
                try:
                    yield incoming, outgoing
                except Exception as error:  # noqa: BLE001  # whatever the SDK makes of a server that has ended
                    raise await self._explained(error) from None
                finally:
                    tasks.cancel_scope.cancel()
        finally:
            for stream in (inbox, incoming, outgoing, outbox):
                stream.close()
            with anyio.CancelScope(shield=True):
                await self._stop()

    async def _explained(self, error: Exception) -> Exception:
        """The error of an exited server, with the end of its standard error."""
        with anyio.move_on_after(_GRACE, shield=True):
            await self._errors_are_read.wait()
            await self._process.wait()
        if self._process.returncode is None:
            return error
        return ServerError(f"it ended with the code {self._process.returncode}: {self.stderr_tail or error}")

    async def _read(self, inbox: Any) -> None:
        """Pass on the messages of the server, until it closes its output."""
        assert self._process.stdout is not None
        lines = Lines(self._limit)
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with inbox:
                while data := await self._process.stdout.read(_READ):
                    for line in without_superseded(lines.feed(data)):
                        if line and (message := self._message(line)) is not None:
                            await inbox.send(message)

    def _message(self, line: bytes | TooLong) -> SessionMessage | None:
        """The message in a line; None if it is not JSON-RPC, such as printed text."""
        if isinstance(line, TooLong):
            if (request := line.request_id) is None:
                raise ServerError(f"the MCP server sent a message of more than {self._limit} bytes")
            return _error(request, too_large(self._limit))
        value = _decoded(line)
        try:
            return SessionMessage(mcp_types.jsonrpc_message_adapter.validate_python(value, by_name=False))
        except ValueError:
            return _rejected(line, value)

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(_READ):
            self._written = (self._written + data)[-MAX_STDERR:]
        self._errors_are_read.set()

    async def _write(self, outbox: Any, inbox: Any) -> None:
        """Send the messages of the client; closes the connection when the server stops reading."""
        assert self._process.stdin is not None
        try:
            async for item in outbox:
                text = item.message.model_dump_json(by_alias=True, exclude_unset=True)
                self._process.stdin.write(text.encode() + b"\n")
                await self._process.stdin.drain()
        except OSError:
            inbox.close()

    async def _stop(self) -> None:
        """Stop the server and its children: close its input, then SIGTERM, then SIGKILL."""
        process = self._process
        assert process.stdin is not None
        process.stdin.close()
        for signal_name in ("SIGTERM", "SIGKILL"):
            if await self._has_ended(_GRACE):
                break
            self._kill(getattr(signal, signal_name, signal.SIGTERM))
        await self._has_ended(_GRACE)
        transport: Any = getattr(process, "_transport", None)
        if transport is not None:
            transport.close()  # a child of the server may keep the pipes open
        with suppress(OSError):
            await process.stdin.wait_closed()

    async def _has_ended(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), seconds)
        return self._process.returncode is not None

    def _kill(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            if os.name == "nt":
                self._process.kill()
            else:
                os.killpg(self._process.pid, number)


def _decoded(line: bytes) -> Any:
    """The JSON of a line; None if it is not JSON. The SDK takes several times as long, and refuses half a character."""
    try:
        return msgspec.json.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    try:
        return nearest_json(json.loads(line.decode("utf-8", "replace")))
    except (ValueError, RecursionError):
        return None


def _rejected(line: bytes, value: Any) -> SessionMessage | None:
    """The error for the waiting call, if an invalid line is a response; else None."""
    request = value.get("id") if isinstance(value, dict) else request_id(line)
    is_call = "method" in value if isinstance(value, dict) else b'"method"' in line
    if is_call or isinstance(request, bool) or not isinstance(request, int | str):
        return None
    return _error(request, "The MCP server sent a response that is not valid JSON-RPC, so the result is not known.")


def _error(request: int | str, message: str) -> SessionMessage:
    """An error as the answer to a request."""
    error = mcp_types.ErrorData(code=mcp_types.INTERNAL_ERROR, message=message)
    return SessionMessage(mcp_types.JSONRPCError(jsonrpc="2.0", id=request, error=error))


def too_large(limit: int) -> str:
    """The message for a result that is not read."""
    return f"The result is larger than {limit} bytes, and was not read. Ask for less."


_KEPT = 256
"""The bytes kept of each end of an oversized line, to find the id in them."""

_ID = rb'"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*("[^"\\]*"|\d+)'
_AT_START = re.compile(rb"\s*\{\s*" + _ID + rb"\s*,")
_AT_END = re.compile(rb"[,{]\s*" + _ID + rb"\s*\}\s*\Z")

_NOTIFICATION = 200
"""The bytes at the start of a line that are searched for the method of a notification."""
_REPLACEABLE = re.compile(
    rb'\A\s*\{(?:\s*"jsonrpc"\s*:\s*"2\.0"\s*,)?\s*"method"\s*:\s*"(notifications/(?:progress|message|\w+/list_changed))"'
)
_TOKEN = re.compile(rb'"progressToken"\s*:\s*("[^"\\]*"|\d+)')


class TooLong(Struct, frozen=True):
    """A line over the size limit; `head` and `tail` are its two ends."""

    head: bytes
    tail: bytes

    @property
    def request_id(self) -> int | str | None:
        """The request id in this line; None if it is not near one of the ends."""
        return _request_id(self.head, self.tail)


def request_id(line: bytes) -> int | str | None:
    """The request id in an invalid line; None if it is not near one of the ends."""
    return _request_id(line[:_KEPT], line[-_KEPT:])


def without_superseded(lines: Iterable[bytes | TooLong]) -> list[bytes | TooLong]:
    """The lines of one read without notifications that the next line supersedes: older progress, an older list.

    A server may send more of them than the SDK can handle.
    """
    kept: list[bytes | TooLong] = []
    last: tuple[bytes, ...] | None = None
    for line in lines:
        kind = _replaceable(line) if isinstance(line, bytes) else None
        if kind is not None and kind == last:
            kept[-1] = line
        else:
            kept.append(line)
        last = kind
    return kept


def _replaceable(line: bytes) -> tuple[bytes, ...] | None:
    """The key by which later notifications replace earlier ones: method and progress token; None if not replaceable."""
    head = line[:_NOTIFICATION]
    if (method := _REPLACEABLE.search(head)) is None:
        return None
    token = _TOKEN.search(line)
    return (method.group(1),) if token is None else (method.group(1), token.group(1))


def _request_id(head: bytes, tail: bytes) -> int | str | None:
    match = _AT_START.match(head) or _AT_END.search(tail)
    if match is None:
        return None
    value = match.group(1).decode("utf-8", "replace")
    return value[1:-1] if value.startswith('"') else int(value)


class Lines:
    """Splits bytes into lines, in linear time; for a line over `limit`, only its two ends are kept."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: deque[bytes] = deque()
        self._size = 0
        self._head = b""

    def feed(self, data: bytes) -> list[bytes | TooLong]:
        """The lines that these bytes complete."""
        *ended, rest = data.split(b"\n")
        lines: list[bytes | TooLong] = []
        for piece in ended:
            self._add(piece)
            lines.append(self._take())
        self._add(rest)
        return lines

    def _add(self, piece: bytes) -> None:
        if not piece:
            return
        self._parts.append(piece)
        self._size += len(piece)
        if self._size > self._limit:
            self._head = self._head or b"".join(self._parts)[:_KEPT]
            kept = sum(map(len, self._parts))
            while len(self._parts) > 1 and kept - len(self._parts[0]) >= _KEPT:
                kept -= len(self._parts.popleft())

    def _take(self) -> bytes | TooLong:
        whole, head, size = b"".join(self._parts), self._head, self._size
        self._parts.clear()
        self._size, self._head = 0, b""
        return TooLong(head, whole[-_KEPT:]) if size > self._limit else whole

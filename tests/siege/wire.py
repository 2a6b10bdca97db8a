"""HTTP by hand, for attackers and for the good client."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from msgspec import Struct

from tests.siege.targets import BAD

SECONDS = 30.0
"""How long a client waits for anything."""

ATTACKER = "127.0.0.2"
"""The address from which attacks come, where the server tells clients by their address."""


class Place(Struct, frozen=True):
    """A server, and how an attacker shows who it is."""

    kind: str
    port: int
    token: str = BAD

    def head(self, method: str, path: str, length: int | None = None, **headers: str) -> bytes:
        """The head of a request."""
        every = {"host": "localhost", "content-type": "application/json", **headers}
        if self.token:
            every["authorization"] = f"Bearer {self.token}"
        if length is not None:
            every["content-length"] = str(length)
        lines = "".join(f"{name}: {value}\r\n" for name, value in every.items())
        return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode()

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection from the attacker's address."""
        return await asyncio.open_connection("127.0.0.1", self.port, local_addr=(ATTACKER, 0))

    async def send(self, data: bytes, *, reads: bool = True) -> bytes:
        """Send some bytes on a connection of their own; returns the beginning of the response."""
        with suppress(OSError, asyncio.IncompleteReadError, TimeoutError):
            reader, writer = await self.connect()
            try:
                async with asyncio.timeout(SECONDS):
                    writer.write(data)
                    await writer.drain()
                    return await reader.read(65536) if reads else b""
            finally:
                writer.close()
        return b""

    async def post(self, path: str, body: bytes) -> bytes:
        """Send a request with a body; returns the beginning of the response."""
        return await self.send(self.head("POST", path, len(body)) + body)


async def request(
    port: int, token: str, method: str, path: str, value: Any = None, connection: Any = None
) -> tuple[int, bytes]:
    """The status and the body of a response; a good client's."""
    body = b"" if value is None else json.dumps(value).encode()
    reader, writer = connection or await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(Place("", port, token).head(method, path, len(body), connection="close") + body)
        head, _, rest = (await reader.read()).partition(b"\r\n\r\n")
        return int(head.split(b" ", 2)[1]) if head else 0, rest
    finally:
        writer.close()


def chat(model: str, *contents: str, tools: bool = False, **more: Any) -> dict[str, Any]:
    """A request for a model, in the protocol of most clients."""
    value: dict[str, Any] = {"model": model, "stream": True, **more}
    value["messages"] = [{"role": "user", "content": content} for content in contents]
    if tools:
        parameters: Mapping[str, Any] = {"type": "object", "properties": {"command": {"type": "string"}}}
        value["tools"] = [{"type": "function", "function": {"name": "bash", "parameters": parameters}}]
    return value

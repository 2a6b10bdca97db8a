"""Drives an ASGI app in the tests without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from penstock.asgi.request import Message, Scope
from penstock.log.position import Position, parse_position


class Reply:
    """What an app has sent in response to a request."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self.is_complete = False
        self.changed = asyncio.Event()

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)

    @property
    def frames(self) -> list[tuple[Position, dict[str, Any]]]:
        """The frames of our own protocol: the position and the event of each, 0 if it has none."""
        found = []
        for block in self.body.decode().split("\n\n"):
            lines = dict(line.split(": ", 1) for line in block.split("\n") if line and not line.startswith(":"))
            if "data" in lines:
                found.append((parse_position(lines.get("id", 0)), msgspec.json.decode(lines["data"])))
        return found

    async def until(self, wanted: str, seconds: float = 20) -> None:
        """Wait until the body contains this."""
        async with asyncio.timeout(seconds):
            while wanted.encode() not in self.body and not self.is_complete:
                self.changed.clear()
                await self.changed.wait()
        assert wanted.encode() in self.body


class Connection:
    """One request to an app, which can be left at any moment."""

    def __init__(self, app: Any, scope: Scope, body: bytes) -> None:
        self.reply = Reply()
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._messages.put_nowait({"type": "http.request", "body": body})
        self.task = asyncio.create_task(app(scope, self._messages.get, self._send))

    async def _send(self, message: Message) -> None:
        reply = self.reply
        if message["type"] == "http.response.start":
            reply.status = message["status"]
            reply.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            reply.body += message.get("body", b"")
            reply.is_complete = not message.get("more_body", False)
        reply.changed.set()

    def leave(self) -> None:
        """Close the connection, as a client does."""
        self._messages.put_nowait({"type": "http.disconnect"})


class Browser:
    """A client of an app in this process."""

    def __init__(self, app: Any, **headers: str) -> None:
        self.app = app
        self.client = "127.0.0.1"
        self.headers = {"host": "localhost", **headers}

    def connect(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Connection:
        path, _, query = path.partition("?")
        raw = body if isinstance(body, bytes) else b"" if body is None else msgspec.json.encode(body)
        every = dict(self.headers)
        if body is not None:
            every |= {"content-type": "application/json", "content-length": str(len(raw))}
        every |= headers or {}
        scope: Scope = {
            "type": "http", "method": method, "path": path, "query_string": query.encode(), "scheme": "http",
            "headers": [(name.encode(), value.encode()) for name, value in every.items() if value],
            "client": (self.client, 5000), "root_path": "",
        }  # fmt: skip
        return Connection(self.app, scope, raw)

    async def request(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, seconds: float = 30
    ) -> Reply:
        connection = self.connect(method, path, body, headers)
        async with asyncio.timeout(seconds):
            await connection.task
        return connection.reply

    async def get(self, path: str, **headers: str) -> Reply:
        return await self.request("GET", path, headers=headers)

    async def post(self, path: str, body: Any = None, **headers: str) -> Reply:
        return await self.request("POST", path, body, headers=headers)


@asynccontextmanager
async def serving(app: Any, **headers: str) -> AsyncGenerator[Browser, None]:
    """A client of an app that has started, and that is stopped afterwards."""
    events: asyncio.Queue[Message] = asyncio.Queue()
    sent: asyncio.Queue[Message] = asyncio.Queue()
    life = asyncio.create_task(app({"type": "lifespan"}, events.get, sent.put))
    events.put_nowait({"type": "lifespan.startup"})
    assert (await sent.get())["type"] == "lifespan.startup.complete"
    try:
        yield Browser(app, **headers)
    finally:
        events.put_nowait({"type": "lifespan.shutdown"})
        assert (await sent.get())["type"] == "lifespan.shutdown.complete"
        await life

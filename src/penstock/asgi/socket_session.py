"""A WebSocket that a client has opened: each of its requests is answered as a POST request to the same path.

So access control, limits, metrics and everything behind them are those of HTTP.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol

from penstock.asgi.limits import ServerLimits
from penstock.asgi.request import HTTPRequest, Message, Receive, Scope, Send
from penstock.asgi.sending import Sender
from penstock.asgi.shares import MemoryBudget

LIFETIME = 60 * 60.0
"""How many seconds a connection may be open."""
LEAVING_SECONDS = 5.0
"""How many seconds responses may take to end after their client has left."""
TOO_BIG = 1009
MAX_REFUSAL = 64 * 1024
"""How many bytes of an error response are kept."""


class SocketRules(Protocol):
    """The protocol of a connection, without I/O. Its actions have a `frame` to send, or a `body` for a `lane`."""

    @property
    def held(self) -> int: ...
    def receive(self, frame: str) -> Sequence[Any]: ...
    def event(self, name: str, data: bytes) -> Sequence[Any]: ...
    def refuse(self, name: str, status: int, headers: Mapping[str, str], body: bytes) -> Sequence[Any]: ...
    def end(self, name: str) -> Sequence[Any]: ...
    def expire(self) -> str: ...


Answer = Callable[[HTTPRequest, Sender], Awaitable[None]]


class SocketSession:
    """One connection, from its handshake to its end."""

    def __init__(
        self, handshake: HTTPRequest, rules: SocketRules, answer: Answer, limits: ServerLimits, budget: MemoryBudget
    ) -> None:
        self._handshake = handshake
        self._rules = rules
        self._answer = answer
        self._limits = limits
        self._budget = budget
        self._held = 0  # bytes of the budget, for what is remembered
        self._gone = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._send: Send

    async def run(self, receive: Receive, send: Send) -> None:
        """Accept the connection, and answer its requests until it is closed."""
        self._send = send
        try:
            if (await receive())["type"] != "websocket.connect":
                return
            await send({"type": "websocket.accept"})
            async with asyncio.timeout(LIFETIME):
                await self._read(receive)
        except TimeoutError:
            await self._close(1000, self._rules.expire())
        finally:
            await self._leave()

    async def _read(self, receive: Receive) -> None:
        while (message := await receive())["type"] == "websocket.receive":
            text = message.get("text")
            if text is None:
                text = ""  # which is not JSON, as is a binary frame
            if len(text) > self._limits.body or len(text.encode("utf-8", "surrogatepass")) > self._limits.body:
                await self._close(TOO_BIG)
                return
            await self._carry_out(self._rules.receive(text))
            self._hold(self._rules.held)

    async def _carry_out(self, actions: Sequence[Any]) -> None:
        for action in actions:
            if hasattr(action, "frame"):
                await self._write({"type": "websocket.send", "text": action.frame})
            else:
                task = asyncio.create_task(self._respond(action.lane, action.body))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _write(self, message: Message) -> None:
        if not self._gone.is_set():
            try:
                async with asyncio.timeout(self._limits.write_seconds):
                    await self._send(message)
            except (TimeoutError, OSError):
                self._gone.set()

    async def _respond(self, lane: str, body: bytes) -> None:
        """Answer a request of a lane."""
        request = HTTPRequest(
            self._scope(len(body)), self._receiver(body), self._limits, secrets.token_hex(8), self._budget
        )
        frames = _FrameSender(lane, self._rules, self._carry_out)
        await self._answer(request, Sender(frames.send))
        await frames.finish()
        await self._carry_out(self._rules.end(lane))
        if not self._gone.is_set():
            self._hold(self._rules.held)

    def _scope(self, size: int) -> Scope:
        """The scope of a request on this connection: its handshake says who sends it."""
        own = [(name, value) for name, value in self._handshake.scope["headers"] if name.lower() not in _HANDSHAKE]
        headers = [*own, (b"content-type", b"application/json"), (b"content-length", str(size).encode())]
        return {**self._handshake.scope, "type": "http", "method": "POST", "headers": headers}

    def _receiver(self, body: bytes) -> Receive:
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Message:
            if messages:
                return messages.pop()
            await self._gone.wait()
            return {"type": "http.disconnect"}

        return receive

    def _hold(self, size: int) -> None:
        """Count what is remembered as memory of the client."""
        share = self._handshake.share
        if self._held:
            self._budget.give_back(share, self._held)
        self._held = size if size and self._budget.take(share, size) is None else 0

    async def _close(self, code: int, last: str = "") -> None:
        if last:
            await self._write({"type": "websocket.send", "text": last})
        await self._write({"type": "websocket.close", "code": code})

    async def _leave(self) -> None:
        """The client has left: its responses end as those of a disconnected client."""
        self._gone.set()
        self._hold(0)
        if self._tasks:
            _, late = await asyncio.wait(self._tasks, timeout=LEAVING_SECONDS)
            for task in late:
                task.cancel()


_HANDSHAKE = (
    b"connection", b"upgrade", b"content-type", b"content-length", b"sec-websocket-key", b"sec-websocket-version",
    b"sec-websocket-extensions", b"sec-websocket-protocol",
)  # fmt: skip
"""The headers that belong to a handshake and not to a request."""


class _FrameSender:
    """Sends the response to a request of a lane as frames."""

    def __init__(self, lane: str, rules: SocketRules, carry_out: Callable[[Sequence[Any]], Awaitable[None]]) -> None:
        self._lane = lane
        self._rules = rules
        self._carry_out = carry_out
        self._status = 0
        self._headers: dict[str, str] = {}
        self._is_stream = False
        self._rest = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = {
                name.decode("latin-1").lower(): value.decode("latin-1") for name, value in message["headers"]
            }
            self._is_stream = self._headers.get("content-type", "").startswith("text/event-stream")
            return
        self._rest += message.get("body", b"")
        if not self._is_stream:
            self._rest = self._rest[:MAX_REFUSAL]
            return
        *events, self._rest = self._rest.split(b"\n\n")
        for event in events:
            lines = [line.partition(b":")[2].strip() for line in event.split(b"\n") if line.startswith(b"data:")]
            if lines and (data := b"".join(lines)) != b"[DONE]":
                await self._carry_out(self._rules.event(self._lane, data))

    async def finish(self) -> None:
        """Report an error response, which is not a stream."""
        if self._status and not self._is_stream:
            await self._carry_out(self._rules.refuse(self._lane, self._status, self._headers, self._rest))

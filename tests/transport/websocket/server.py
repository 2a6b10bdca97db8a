"""A small server that speaks Responses over WebSocket on loopback, for tests of our client.

It remembers the last response of each connection, as the provider does, and does what a script says: close with a code,
break off, refuse, send something else.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import Any, Self

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

Json = dict[str, Any]
Reply = Callable[[Json, list[Json]], list[Json]]
"""The output items for a request, and the whole history that the server sees."""


def message(text: str, number: int = 1) -> Json:
    return {
        "type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed",
        "content": [{"type": "output_text", "text": text, "annotations": []}],
    }  # fmt: skip


def call(name: str, arguments: Json, number: int = 1) -> Json:
    return {
        "type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": name, "status": "completed",
        "arguments": json.dumps(arguments),
    }  # fmt: skip


def frames_of(response_id: str, output: list[Json], status: str = "completed") -> list[Json]:
    """The frames of a response with these items."""
    head = {"id": response_id, "object": "response", "model": "m", "status": "in_progress", "output": []}
    frames: list[Json] = [{"type": "response.created", "response": head}]
    for index, item in enumerate(output):
        frames += _item_frames(index, item)
    usage = {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2}
    end = {**head, "status": status, "output": output, "usage": usage}
    frames.append({"type": f"response.{status}", "response": end})
    return [{**frame, "sequence_number": number} for number, frame in enumerate(frames)]


def _item_frames(index: int, item: Json) -> list[Json]:
    place = {"output_index": index, "item_id": item["id"]}
    if item["type"] == "function_call":
        frames = [{"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]}]
        empty = {**item, "arguments": "", "status": "in_progress"}
    else:
        text, part = item["content"][0]["text"], {"content_index": 0}
        frames = [
            {"type": "response.content_part.added", **place, **part, "part": {"type": "output_text", "text": ""}},
            *(
                {"type": "response.output_text.delta", **place, **part, "delta": piece}
                for piece in (text[:3], text[3:])
            ),
            {"type": "response.output_text.done", **place, **part, "text": text},
        ]
        empty = {**item, "content": [], "status": "in_progress"}
    added = {"type": "response.output_item.added", "output_index": index, "item": empty}
    return [added, *frames, {"type": "response.output_item.done", "output_index": index, "item": item}]


def refusal(code: str, status: int | None = 400, message: str = "no", **fields: Any) -> Json:
    error = {"type": "invalid_request_error", "code": code, "message": message, **fields}
    return {"type": "error", **({} if status is None else {"status": status}), "error": error}


NOT_FOUND = refusal("previous_response_not_found")


class Session:
    """One connection: its requests, and what it remembers."""

    def __init__(self, server: FrameServer, connection: ServerConnection) -> None:
        self.server = server
        self.connection = connection
        self.remembered: tuple[str, list[Json]] | None = None

    async def requests(self) -> AsyncIterator[Json]:
        with suppress(ConnectionClosed):
            async for frame in self.connection:
                request = json.loads(frame)
                self.server.requests.append(request)
                self.server.sizes.append(len(frame))
                yield request

    async def send(self, *frames: Any) -> None:
        for frame in frames:
            await self.connection.send(frame if isinstance(frame, str | bytes) else json.dumps(frame))

    async def answer(self, request: Json) -> None:
        """Answer a request as the provider would."""
        history = request["input"]
        if (parent := request.get("previous_response_id")) is not None:
            known, self.remembered = self.remembered, None
            if known is None or known[0] != parent:
                await self.send(NOT_FOUND)
                return
            history = [*known[1], *history]
        self.server.histories.append(history)
        number = f"resp_{next(self.server.numbers)}"
        output = [] if request.get("generate") is False else self.server.reply(request, history)
        await self.send(*frames_of(number, output))
        self.remembered = number, [*history, *output]

    async def drop(self) -> None:
        """Break off without a close frame."""
        self.connection.transport.abort()


Handle = Callable[[Session], Awaitable[None]]


async def answer_all(session: Session) -> None:
    async for request in session.requests():
        await session.answer(request)


class FrameServer:
    """The server, in a thread of its own. `status` refuses all handshakes with it."""

    def __init__(
        self, reply: Reply | None = None, handle: Handle = answer_all, status: int = 0, tls: Any = None
    ) -> None:
        self.reply: Reply = reply or (lambda request, history: [message("Hello!")])
        self.handle = handle
        self.status = status
        self.tls = tls
        self.numbers = count(1)
        self.handshakes: list[Json] = []
        self.requests: list[Json] = []
        self.sizes: list[int] = []
        self.histories: list[list[Json]] = []
        self.sessions: list[Session] = []
        self.closed = threading.Semaphore(0)
        self.posts = 0
        self._ready = threading.Event()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://localhost:{self.port}/v1"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=lambda: asyncio.run(self._main()))
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    def run(self, work: Any) -> Any:
        """Run a coroutine on the loop of the server."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(10)

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        options: Any = {"max_size": None, "close_timeout": 0.2, "process_request": self._check}
        async with serve(self._serve, "localhost", 0, ssl=self.tls, **options) as server:
            self.port = next(iter(server.sockets)).getsockname()[1]
            self._ready.set()
            await self._stop.wait()
            server.close()

    def _check(self, connection: ServerConnection, request: Request) -> Response | None:
        self.handshakes.append(
            {"path": request.path, **{name.lower(): value for name, value in request.headers.items()}}
        )
        return connection.respond(self.status, '{"error": {"message": "not here"}}') if self.status else None

    async def _serve(self, connection: ServerConnection) -> None:
        session = Session(self, connection)
        self.sessions.append(session)
        try:
            await self.handle(session)
        except ConnectionClosed:
            pass
        finally:
            self.closed.release()

"""Sends a response whose lines of JSON are changed on their way to the client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.asgi.request import HTTPRequest, Message
from penstock.asgi.sending import Sender


class ReadRequest(HTTPRequest):
    """A request whose body was read; its JSON is another one."""

    def __init__(self, request: HTTPRequest, body: Any) -> None:
        self.__dict__.update(request.__dict__)
        self._value = body

    async def json(self, keep: Callable[[bytes], None] | None = None) -> Any:
        if keep is not None:
            keep(msgspec.json.encode(self._value))
        return self._value


class LineSender(Sender):
    """Changes each line of a response, streamed or not; white space before a line is passed on at once."""

    def __init__(self, sender: Sender, change: Callable[[Any], Any]) -> None:
        super().__init__(self._pass)
        self._sender = sender
        self._change = change
        self._start: Message | None = None  # the head, until the length of the body is known
        self._rest = b""

    async def _pass(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._start = message
            return
        has_more = bool(message.get("more_body"))
        body = self._changed(message.get("body", b""), has_more=has_more)
        if self._start is not None:
            start, self._start = self._start, None
            await self._sender(start if has_more else _with_length(start, len(body)))
        await self._sender({**message, "body": body})

    def _changed(self, data: bytes, *, has_more: bool) -> bytes:
        if not self._rest and not data.strip():
            return data
        *lines, self._rest = (self._rest + data).split(b"\n")
        if not has_more and self._rest:
            lines, self._rest = [*lines, self._rest], b""
            return b"\n".join(map(self._line, lines))
        return b"".join(self._line(line) + b"\n" for line in lines)

    def _line(self, line: bytes) -> bytes:
        return msgspec.json.encode(self._change(msgspec.json.decode(line))) if line.strip() else line


def _with_length(start: Message, length: int) -> Message:
    """The head of a whole response with another length."""
    headers = [(name, value) for name, value in start["headers"] if name != b"content-length"]
    return {**start, "headers": [*headers, (b"content-length", str(length).encode())]}

"""Responses of a server: JSON, static content, and errors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from penstock.asgi.request import ClientGone, HTTPRequest, Message, RejectedRequest, Send
from penstock.asgi.sending import Sender

Headers = Mapping[str, str]
JSON = "application/json"
PIECE = 256 * 1024
"""How many bytes of a response are sent at once."""
SAFE_HEADERS = {
    "x-content-type-options": "nosniff",
    "cache-control": "no-store",
    "cross-origin-resource-policy": "same-origin",
}
"""Headers of every response."""


def raw_headers(request: HTTPRequest, headers: Headers) -> list[tuple[bytes, bytes]]:
    """The headers of a response as ASGI has them."""
    every = {"x-request-id": request.id, **SAFE_HEADERS, **request.scope.get("penstock.headers", {}), **headers}
    return [(name.encode("latin-1"), value.encode("latin-1")) for name, value in every.items()]


async def respond(
    request: HTTPRequest, send: Send, status: int, body: bytes, kind: str = JSON, headers: Headers | None = None
) -> None:
    """Send a whole response."""
    if len(body) > PIECE:
        await respond_parts(request, send, status, [body], kind, headers)
        return
    every = {**(headers or {}), "content-type": kind, "content-length": str(len(body))}
    await send({"type": "http.response.start", "status": status, "headers": raw_headers(request, every)})
    await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else body})


async def respond_parts(
    request: HTTPRequest, send: Send, status: int, parts: Sequence[bytes], kind: str = JSON,
    headers: Headers | None = None,
) -> None:  # fmt: skip
    """Send a whole response that is made of parts, which several responses may share.

    A long one is sent in pieces, each when the client has read the one before: what it has not read takes no memory but
    that of the parts. These count for the client until the response has ended.
    """
    size = sum(map(len, parts))
    if size > PIECE:
        request.hold_response(size)
    every = {**(headers or {}), "content-type": kind, "content-length": str(size)}
    await send({"type": "http.response.start", "status": status, "headers": raw_headers(request, every)})
    if request.method != "HEAD":
        for part in parts:
            for start in range(0, len(part), PIECE):
                piece = part if len(part) <= PIECE else part[start : start + PIECE]
                await _send_in_time(request, send, {"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": b""})


async def _send_in_time(request: HTTPRequest, send: Send, message: Message) -> None:
    """Send a piece of a response; a client that does not read is disconnected."""
    try:
        async with asyncio.timeout(request.limits.write_seconds):
            await send(message)
    except TimeoutError:
        if isinstance(send, Sender):
            send.abort()
        raise ClientGone from None


async def respond_json(
    request: HTTPRequest, send: Send, value: Any, status: int = 200, headers: Headers | None = None
) -> None:
    """Send JSON."""
    await respond(request, send, status, msgspec.json.encode(value), headers=headers)


async def respond_error(request: HTTPRequest, send: Send, error: RejectedRequest) -> None:
    """Send an error: a code, a message, and the id of the request."""
    body = {"error": {"code": error.code, "message": error.message, "request_id": request.id}}
    await respond_json(request, send, body, error.status, error.headers)


def not_found(request: HTTPRequest, similar: str = "") -> RejectedRequest:
    hint = f"; did you mean {similar}?" if similar else ""
    return RejectedRequest(404, "not_found", f"there is nothing at {request.path}{hint}")


def not_allowed(methods: Iterable[str]) -> RejectedRequest:
    allowed = ", ".join(sorted(methods))
    return RejectedRequest(405, "method_not_allowed", f"use {allowed} here", {"allow": allowed})

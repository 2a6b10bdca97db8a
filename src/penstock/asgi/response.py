"""Responses of a server: JSON, static content, and errors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from penstock.asgi.request import HTTPRequest, RejectedRequest, Send

Headers = Mapping[str, str]
JSON = "application/json"
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
    every = {**(headers or {}), "content-type": kind, "content-length": str(len(body))}
    await send({"type": "http.response.start", "status": status, "headers": raw_headers(request, every)})
    await send({"type": "http.response.body", "body": b"" if request.method == "HEAD" else body})


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

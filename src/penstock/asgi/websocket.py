"""WebSocket handshakes, and how they are refused.

An ASGI server with a WebSocket library passes a handshake on in a scope of its own; one without passes it on as a GET
request. Codex and others first try a WebSocket for the Responses API. After `426` they send a POST request; after any
other status they try again for several seconds.
"""

from __future__ import annotations

from penstock.asgi.request import HTTPRequest, Message, RejectedRequest, Scope, Send

EXTENSION = "websocket.http.response"
"""The ASGI extension by which a handshake is answered with an HTTP response."""


def is_handshake(request: HTTPRequest) -> bool:
    """Whether a client wants to open a WebSocket with this request."""
    return request.scope["type"] == "websocket" or (
        request.method == "GET" and request.headers.get("upgrade", "").strip().lower() == "websocket"
    )


def websocket_refused() -> RejectedRequest:
    return RejectedRequest(
        426, "websocket_unsupported", "this server does not use WebSocket here: send a POST request instead",
        {"connection": "close"},
    )  # fmt: skip


def can_respond(scope: Scope) -> bool:
    """Whether the ASGI server can answer a handshake with an HTTP response."""
    return EXTENSION in (scope.get("extensions") or {})


def as_handshake(send: Send) -> Send:
    """Sends the messages of an HTTP response as those of the response to a handshake."""

    async def send_message(message: Message) -> None:
        await send({**message, "type": message["type"].replace("http.response", EXTENSION)})

    return send_message

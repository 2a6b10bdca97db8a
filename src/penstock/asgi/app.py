"""An ASGI app: lifespan, access control, request ids, and errors as responses."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from functools import partial

from penstock.asgi.access import Access
from penstock.asgi.limits import ServerLimits
from penstock.asgi.metrics import Metrics
from penstock.asgi.readiness import Readiness
from penstock.asgi.request import ClientGone, HTTPRequest, Receive, RejectedRequest, Scope, Send
from penstock.asgi.response import respond, respond_error
from penstock.asgi.sending import Sender
from penstock.asgi.shares import MemoryBudget
from penstock.asgi.socket_session import SocketRules, SocketSession
from penstock.asgi.turns import Turns
from penstock.asgi.websocket import as_handshake, can_respond, is_handshake, websocket_refused
from penstock.errors import UsageError
from penstock.loggers import get_logger
from penstock.transport.threads.off_loop import TURN

logger = get_logger("penstock.asgi")

PREFLIGHT = {
    "access-control-allow-methods": "GET, POST, DELETE",
    "access-control-allow-headers": (
        "authorization, content-type, idempotency-key, last-event-id, x-ai-sdk-version, x-api-key"
    ),
    "access-control-max-age": "600",
}
"""The headers of the response to a CORS preflight request."""


class ASGIApp:
    """An app that answers HTTP requests. Its metrics have a counter `requests`.

    Access is checked before anything else, so that a client without a token does not learn which paths there are. The
    `public_paths` need no token, but the right host and origin. At its `websocket_paths` it also answers over
    WebSocket, by the rules of `new_socket`. Where the ASGI server has no WebSocket library, clients that try it get
    status 426, and use HTTP.
    """

    public_paths: Collection[str] = ()
    websocket_paths: Collection[str] = ()

    def __init__(
        self, access: Access, limits: ServerLimits, metrics: Metrics, readiness: Readiness | None = None
    ) -> None:
        self.access = access
        self.limits = limits
        self.metrics = metrics
        self.readiness = readiness or Readiness()
        self._budget = MemoryBudget(limits)
        self._turns = Turns()
        metrics.counter("requests", "Requests by method and status")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                self.open()
                request = HTTPRequest(scope, receive, self.limits, secrets.token_hex(8), self._budget, self._turns)
                TURN.set(partial(self._turns.turn, request.share))
                await self._answer(request, Sender(send))
            case "lifespan":
                await self._live(receive, send)
            case "websocket":
                await self._serve_websocket(scope, receive, send)
            case other:
                raise UsageError(f"this app answers HTTP requests, not {other!r}")

    def open(self) -> None:
        """Start; each request calls it too, as a mounted app gets no lifespan."""

    def drain(self) -> None:
        """Say that the server is about to stop. Requests are still answered."""
        self.readiness.is_draining = True

    async def close(self) -> None:
        """Stop."""

    async def route(self, request: HTTPRequest, send: Sender, tenant: str) -> None:
        """Answer a request of a tenant, or raise."""
        raise NotImplementedError

    def rejection(self, request: HTTPRequest, error: Exception) -> RejectedRequest:
        """The response for a failed request. Only mistakes of the client are explained."""
        if isinstance(error, RejectedRequest):
            return error
        logger.exception("request %s failed", request.id, exc_info=error)
        return RejectedRequest(500, "internal_error", "the server failed; its log has the reason")

    def new_socket(self) -> SocketRules:
        """The rules of a new WebSocket at one of the `websocket_paths`."""
        raise NotImplementedError

    async def reject(self, request: HTTPRequest, send: Sender, error: RejectedRequest) -> None:
        """Answer a request with an error."""
        await respond_error(request, send, error)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self.open()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _serve_websocket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer the requests on a WebSocket; its handshake is subject to the same access control as each of them."""
        request = HTTPRequest({**scope, "method": "GET"}, receive, self.limits, secrets.token_hex(8))
        self.open()
        try:
            await self.access.tenant_of(request)
            if not self._is_websocket(request):
                await send({"type": "websocket.close", "code": 1003})
                return
            await SocketSession(request, self.new_socket(), self._answer, self.limits, self._budget).run(receive, send)
        except RejectedRequest as error:
            if can_respond(scope):
                request.scope["penstock.headers"] = {}
                await self.reject(request, Sender(as_handshake(send)), error)
            else:
                await send({"type": "websocket.close", "code": 1008})
        finally:
            request.release()

    def _is_websocket(self, request: HTTPRequest) -> bool:
        """Whether a client tries a WebSocket where it could use HTTP."""
        return request.path.rstrip("/") in self.websocket_paths and is_handshake(request)

    async def admit(self, request: HTTPRequest) -> str:
        """The tenant of a request; raises if it is not allowed."""
        if (request.path.rstrip("/") or "/") in self.public_paths:
            self.access.check_place(request)
            return ""
        return await self.access.tenant_of(request)

    async def _answer(self, request: HTTPRequest, send: Sender) -> None:
        request.scope["penstock.headers"] = self.access.cors_headers(request)
        if self.readiness.is_draining:  # the next request of this client goes to another server
            request.scope["penstock.headers"] |= {"connection": "close"}
        try:
            if request.method == "OPTIONS" and request.headers.get("origin") in self.access.origins:
                await respond(request, send, 204, b"", headers=PREFLIGHT)
            else:
                tenant = await self.admit(request)
                if self._is_websocket(request):
                    raise websocket_refused()
                await self.route(request, send, tenant)
        except ClientGone:
            pass
        except Exception as error:  # noqa: BLE001  # an error of an endpoint: the client gets a code, the log the rest
            if (
                not send.has_begun
            ):  # no variable for the rejection: with its traceback it would keep the body in a cycle
                await self.reject(request, send, self.rejection(request, error))
            elif not isinstance(error, RejectedRequest):
                self.rejection(request, error)
        finally:
            request.release()
            self.metrics.add("requests", status=str(send.status or 499), method=request.method)

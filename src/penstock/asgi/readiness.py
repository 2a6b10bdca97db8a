"""Whether a server may get new requests: what a load balancer asks at `/readyz`."""

from __future__ import annotations

import time

from penstock.asgi.request import HTTPRequest, Send
from penstock.asgi.response import respond_json

WATCHED_SECONDS = 60.0
"""How long after the last probe a load balancer is believed to send requests here."""

DRAIN_SECONDS = 5.0
"""How many seconds a server that is probed still answers after it has said that it is about to stop."""

DRAINING = "the server is about to stop"


class Readiness:
    """Whether the server is about to stop, and whether anybody asks."""

    def __init__(self) -> None:
        self.is_draining = False
        self._asked: float | None = None

    @property
    def is_watched(self) -> bool:
        """Whether somebody has asked lately, and would notice that the server is about to stop."""
        return self._asked is not None and time.monotonic() - self._asked <= WATCHED_SECONDS

    async def respond(self, request: HTTPRequest, send: Send, problem: str = "") -> None:
        """Answer a probe: status 503 with the reason if the server must get no new requests."""
        self._asked = time.monotonic()
        reason = DRAINING if self.is_draining else problem
        if not reason:
            await respond_json(request, send, {"status": "ready"})
            return
        error = {"code": "not_ready", "message": reason, "request_id": request.id}
        await respond_json(request, send, {"status": "not_ready", "reason": reason, "error": error}, 503)

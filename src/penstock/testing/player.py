"""Requests to responses: what a script says, sent over HTTP at a pace and in pieces."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from aiohttp import web

from penstock.testing.cuts import Cutting, cuts
from penstock.testing.faults import Hang, Reset
from penstock.testing.reply import Drop, Wait
from penstock.testing.request import Asked, asked_at
from penstock.testing.response import Response, recut, respond
from penstock.testing.script import Answer

_MODELS = {
    "object": "list",
    "data": [{"id": "sim", "type": "model", "object": "model", "created": 0, "owned_by": "penstock"}],
    "has_more": False,
    "models": [{"name": "sim", "model": "sim"}],
}
"""A list of models in the shapes of several providers at once."""


class Player:
    """Answers requests by a script; `requests` is what arrived, with keys masked."""

    def __init__(self, script: Answer, pace: float, cutting: Cutting, is_strict: bool = False) -> None:
        cuts(b"", cutting)  # a wrong one is told here, not in the middle of a response
        self.requests: list[Asked] = []
        self._script = script
        self._pace = pace
        self._cutting: Cutting = cutting
        self._is_strict = is_strict

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """The response to a request."""
        body = _json(await request.read())
        asked = asked_at(request.path, body, request.headers, request.query)
        if asked is None or request.method != "POST":
            return _elsewhere(request)
        self.requests.append(asked)
        try:
            return await self._play(request, respond(self._script, asked, self._is_strict))
        except ConnectionError:  # whoever asked is gone
            return web.Response()

    async def _play(self, request: web.Request, played: Response | Hang | Reset) -> web.StreamResponse:
        match played:
            case Response():
                return await self._send(request, played)
            case Hang():
                await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=played.seconds)
        return _broken(request)

    async def _send(self, request: web.Request, played: Response) -> web.StreamResponse:
        response = web.StreamResponse(status=played.status, headers=dict(played.headers))
        await response.prepare(request)
        for beat in recut(played.beats, self._cutting):
            match beat:
                case Wait():
                    await asyncio.sleep(beat.seconds)
                case Drop():
                    return response if beat.is_clean else _broken(request)
                case bytes():
                    await response.write(beat)
                    await asyncio.sleep(self._pace)
        return response


def _json(body: bytes) -> dict[str, Any]:
    """The body of a request; empty if it is no JSON object."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError):
        return {}


def _elsewhere(request: web.Request) -> web.Response:
    if request.method in ("GET", "HEAD") and request.path.endswith(("/models", "/api/tags")):
        return web.json_response(_MODELS)
    message = f"the loopback server has no {request.method} {request.path}"
    return web.json_response({"error": {"message": message, "code": "not_found"}, "message": message}, status=404)


def _broken(request: web.Request) -> web.Response:
    """Break the connection; what is returned has nowhere to go."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()

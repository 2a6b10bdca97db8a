"""The HTTP handler of the loopback server: sends the responses of a script, paced and cut."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from aiohttp import web

from penstock.testing.cuts import Cutting, cuts
from penstock.testing.faults import Hang, Reset
from penstock.testing.reply import Drop, Wait
from penstock.testing.request import ReceivedRequest, route_request
from penstock.testing.response import Response, recut, respond
from penstock.testing.script import Responder

_MODELS = {
    "object": "list",
    "data": [{"id": "sim", "type": "model", "object": "model", "created": 0, "owned_by": "penstock"}],
    "has_more": False,
    "models": [{"name": "sim", "model": "sim"}],
}
"""A list of models in the formats of several providers at once."""


class Player:
    """Responds to requests by a script. `requests` are those received, with keys masked."""

    def __init__(self, script: Responder, pace: float, cutting: Cutting, is_strict: bool = False) -> None:
        cuts(b"", cutting)  # a wrong value is reported here, not in the middle of a response
        self.requests: list[ReceivedRequest] = []
        self._script = script
        self._pace = pace
        self._cutting: Cutting = cutting
        self._is_strict = is_strict

    async def handle(self, http_request: web.Request) -> web.StreamResponse:
        """Responds to one HTTP request."""
        body = _json(await http_request.read())
        request = route_request(http_request.path, body, http_request.headers, http_request.query)
        if request is None or http_request.method != "POST":
            return _unknown_path(http_request)
        self.requests.append(request)
        try:
            return await self._play(http_request, respond(self._script, request, self._is_strict))
        except ConnectionError:  # the client is gone
            return web.Response()

    async def _play(self, http_request: web.Request, played: Response | Hang | Reset) -> web.StreamResponse:
        match played:
            case Response():
                return await self._send(http_request, played)
            case Hang():
                await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=played.seconds)
        return _broken(http_request)

    async def _send(self, http_request: web.Request, played: Response) -> web.StreamResponse:
        response = web.StreamResponse(status=played.status, headers=dict(played.headers))
        await response.prepare(http_request)
        for action in recut(played.actions, self._cutting):
            match action:
                case Wait():
                    await asyncio.sleep(action.seconds)
                case Drop():
                    return response if action.is_clean else _broken(http_request)
                case bytes():
                    await response.write(action)
                    await asyncio.sleep(self._pace)
        return response


def _json(body: bytes) -> dict[str, Any]:
    """The body of a request; empty if it is not a JSON object."""
    try:
        return msgspec.json.decode(body, type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError):
        return {}


def _unknown_path(http_request: web.Request) -> web.Response:
    if http_request.method in ("GET", "HEAD") and http_request.path.endswith(("/models", "/api/tags")):
        return web.json_response(_MODELS)
    message = f"the loopback server has no {http_request.method} {http_request.path}"
    return web.json_response({"error": {"message": message, "code": "not_found"}, "message": message}, status=404)


def _broken(http_request: web.Request) -> web.Response:
    """Breaks the connection; the returned response is not sent."""
    if http_request.transport is not None:
        http_request.transport.abort()
    return web.Response()

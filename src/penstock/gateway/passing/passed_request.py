"""Answers a request that is passed on: routing, the response in one piece or as a stream, errors, and the report."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.asgi.request import ClientGone, RejectedRequest
from penstock.asgi.response import JSON, respond
from penstock.asgi.stream import SSE_HEADERS, ResponseStream
from penstock.errors import ProviderError, UsageError
from penstock.gateway.asking import Caller, passed_headers
from penstock.gateway.attempts import Attempts
from penstock.gateway.context import Call, GatewayContext
from penstock.gateway.failures import rejection
from penstock.gateway.healed import HealedResponse
from penstock.gateway.journal import CLIENT_LEFT
from penstock.gateway.passing.relay import Passed, URLOf, pass_on
from penstock.gateway.routing import find_candidates
from penstock.gateway.upstream_keys import uses_client_key
from penstock.jsontext.shown_text import one_line
from penstock.loggers import get_logger
from penstock.wires import find_response_frames
from penstock.wires.shared.encode_response.response_bodies import encode_error
from penstock.wires.shared.encode_response.response_head import ResponseHead

logger = get_logger("penstock.gateway")

Rewrite = Callable[[bytes], bytes]
"""Changes a whole response; raises a `ValueError` if it is not what was expected."""


class PassedRequest:
    """One request that is passed on; its errors have the shape of a wire."""

    def __init__(self, wire: str, context: GatewayContext, call: Call) -> None:
        self._frames = find_response_frames(wire)
        self._is_lines = self._frames.format.content_type == "application/x-ndjson"
        self._context = context
        self._call = call
        self._caller = Caller(
            id=call.request.id, key=context.client_key(call.request),
            headers=passed_headers(wire, call.request.headers), servers=context.facts,
        )  # fmt: skip
        self._attempts = Attempts()
        self._model = ""
        self._upstream = ""
        self._problem = ""

    async def answer(self, body: Any, url_of: URLOf, *, is_streaming: bool, rewrite: Rewrite | None = None) -> None:
        """Pass the request on, and answer with its response."""
        try:
            self._model = read_model(body)
            if is_streaming:
                await self._stream(body, url_of)
            else:
                await self._respond(body, url_of, rewrite)
        except RejectedRequest as error:
            self._report(error.status, error.message)
            raise
        except ClientGone:
            self._report(CLIENT_LEFT, "the client has left")
            raise
        else:
            self._report(self._call.send.status, self._problem)

    async def _passed(self, body: Any, url_of: URLOf, *, is_whole: bool = False) -> Passed:
        context, caller = self._context, self._caller
        candidates = find_candidates(context.source.current, self._model)
        try:
            passed = await pass_on(
                candidates, body, url_of, caller, context.circuits, self._attempts, is_whole=is_whole
            )
        except (UsageError, ProviderError) as error:
            is_client_key = any(uses_client_key(candidate.upstream, self._caller.key) for candidate in candidates)
            raise rejection(error, self._frames.format, is_client_key=is_client_key) from None
        self._upstream = passed.candidate.upstream.name
        return passed

    async def _respond(self, body: Any, url_of: URLOf, rewrite: Rewrite | None) -> None:
        """Answer with the whole response, once it is known."""
        passed = await self._call.request.unless_gone(self._passed(body, url_of, is_whole=True))
        try:
            data = passed.first if rewrite is None else rewrite(passed.first)
        except ValueError as error:
            raise RejectedRequest(502, "", str(error)) from None
        headers = {"x-penstock-upstream": self._upstream}
        await respond(self._call.request, self._call.send, 200, data, JSON, headers)

    async def _stream(self, body: Any, url_of: URLOf) -> None:
        limits = replace(self._context.limits, keep_alive_seconds=inf)
        headers = {**SSE_HEADERS, "content-type": self._frames.format.content_type}
        stream = ResponseStream(self._call.request, self._call.send, limits, headers)
        if not await stream.run(self._write(body, url_of, stream, headers)):
            self._problem = "the client has left"

    async def _write(self, body: Any, url_of: URLOf, stream: ResponseStream, headers: dict[str, str]) -> None:
        """Write the response as it comes. A server that does not stream sends JSON."""
        passed = await self._passed(body, url_of)
        headers["x-penstock-upstream"] = self._upstream
        if not self._is_lines and passed.first.lstrip().startswith(b"{"):
            headers["content-type"] = JSON
        try:
            piece: bytes | None = passed.first
            while piece is not None and not stream.is_full:
                await stream.write(piece)
                piece = await passed.next()
        except ProviderError as error:
            self._problem = f"the response broke off: {error.message}"
            await stream.write(self._failure(error))
        finally:
            await passed.stream.close()

    def _failure(self, error: ProviderError) -> bytes:
        """An error in a stream that has begun: a frame of its own, so that the response does not look complete."""
        encoded = encode_error(self._frames, 502, error.message, head=ResponseHead(id=self._caller.id))
        return b"\n" + encoded.body + b"\n" if self._is_lines else b"\n\ndata: " + encoded.body + b"\n\n"

    def _report(self, status: int, problem: str) -> None:
        request = self._call.request
        asked = [replace(attempt, failure=one_line(attempt.failure)) for attempt in self._attempts.entries]
        response = HealedResponse(
            id=request.id, path=request.path, model=self._model, upstream=self._upstream, answered_by=self._model,
            status=status, problem=one_line(problem), asked=asked,
        )  # fmt: skip
        self._context.healed.add(response)
        upstream = self._upstream or (asked[0].upstream if asked else "")
        self._context.metrics.add("answers", upstream=upstream, problem="yes" if problem else "no")
        path, model = one_line(request.path), one_line(self._model)
        logger.info("%s %s model=%s upstream=%s passed on", request.id, path, model, upstream)


def read_model(body: Any) -> str:
    """The model in a body, also in the field of older clients."""
    if not isinstance(body, dict):
        raise RejectedRequest(400, "", "the body must be a JSON object")
    model = body.get("model") or body.get("name")
    if not isinstance(model, str) or not model:
        raise RejectedRequest(400, "", "model must be the name of a model")
    return model


def read_json(data: bytes) -> Any:
    """The JSON in a response; raises a `ValueError` if there is none."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError):
        raise ValueError("the upstream sent no JSON") from None

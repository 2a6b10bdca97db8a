"""Converts a step of a script to an HTTP response: status, headers, and timed pieces of the body."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, assert_never

import msgspec
from msgspec import Struct

from penstock.testing.cuts import Cutting, cuts
from penstock.testing.faults import Hang, HTMLPage, Mislabelled, Raw, Redirect, Reset, Status
from penstock.testing.reply import Drop, Reply, Wait
from penstock.testing.request import ReceivedRequest
from penstock.testing.script import Responder, Step, as_step
from penstock.testing.wires.judge import find_rejection
from penstock.testing.wires.play import SendAction, play
from penstock.wires import find_response_frames
from penstock.wires.shared.encode_response.response_bodies import encode_error
from penstock.wires.shared.encode_response.response_head import ResponseHead

_MESSAGES = {
    400: "The request is not valid.",
    401: "The API key is not valid.",
    403: "This key may not use this model.",
    404: "There is no model of this name.",
    413: "The request is too large.",
    429: "Too many requests: wait a little.",
    500: "The server had an error while it processed the request.",
    503: "The model is overloaded: try again later.",
    529: "Overloaded",
}
"""The messages of HTTP errors."""


class Response(Struct, frozen=True):
    """An HTTP response. `actions` are the pieces of the body, pauses, and the end of the connection."""

    status: int
    headers: Mapping[str, str]
    actions: tuple[SendAction, ...] = ()


def respond(script: Responder, request: ReceivedRequest, is_strict: bool = False) -> Response | Hang | Reset:
    """The response of a script to a request; a script that raises gives an HTTP error 400, which is not retried.

    With `is_strict`, a request that the provider would reject gets its error, and the script is not called.
    """
    if not request.head:
        return _error(request, Status(400, "The body is empty, or not a JSON object."))
    if is_strict and (rejection := find_rejection(request)):
        return _error(request, Status(rejection.status, rejection.message), rejection.fields)
    try:
        return _response(request, as_step(script(request)))
    except Exception as error:  # noqa: BLE001  # a user's script may raise anything, and its reply hold anything
        return _error(request, _failed(error))


def _response(request: ReceivedRequest, step: Step) -> Response | Hang | Reset:
    match step:
        case Reply():
            return _reply(request, step)
        case Mislabelled():
            return _reply(request, step.reply, step.content_type)
        case Status():
            return _error(request, step)
        case HTMLPage():
            return Response(step.status, {"content-type": "text/html; charset=utf-8"}, (step.html.encode(),))
        case Redirect():
            return Response(step.status, {"location": step.location})
        case Raw():
            return Response(step.status, {"content-type": step.content_type, **step.headers}, (step.body,))
        case Hang() | Reset():
            return step
        case _:
            assert_never(step)


def _reply(request: ReceivedRequest, reply: Reply, content_type: str = "") -> Response:
    played = play(reply, request)
    if request.is_streaming:
        headers = {"content-type": content_type or played.content_type, "cache-control": "no-cache"}
        return Response(200, headers, tuple(played.stream()))
    status, body = (whole := played.whole()).status, whole.body
    headers = {"content-type": content_type or "application/json", "content-length": str(len(body)), **whole.headers}
    waits = [part for part in reply.parts if isinstance(part, Wait)]
    if any(isinstance(part, Drop) for part in reply.parts):
        return Response(status, headers, (*waits, body[: len(body) // 2], Drop()))
    return Response(status, headers, (*waits, body))


def _error(request: ReceivedRequest, fault: Status, fields: Mapping[str, Any] = MappingProxyType({})) -> Response:
    """An HTTP error in the provider's format; `fields` are added next to the message."""
    message = fault.message or _MESSAGES.get(fault.status, "Something went wrong.")
    head = ResponseHead(retry_after=fault.retry_after)
    encoded = encode_error(find_response_frames(request.wire), fault.status, message, head=head)
    body = msgspec.json.decode(encoded.body)
    error = body.get("error")
    (error if isinstance(error, dict) else body).update(fields)
    headers = {"content-type": "application/json", **encoded.headers}
    return Response(fault.status, headers, (msgspec.json.encode(body),))


def _failed(error: Exception) -> Status:
    return Status(400, f"the script failed: {type(error).__name__}: {error}")


def recut(actions: Iterable[SendAction], cutting: Cutting) -> Iterator[SendAction]:
    """The actions, with each run of bytes cut as `cutting` says."""
    if cutting is None:
        yield from actions
        return
    run = bytearray()
    for action in actions:
        if isinstance(action, bytes):
            run += action
        else:
            yield from cuts(bytes(run), cutting)
            yield action
            run.clear()
    yield from cuts(bytes(run), cutting)

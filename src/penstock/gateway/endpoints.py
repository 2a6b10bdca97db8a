"""The endpoints of a gateway beside the answers of models: lists of models, token counts, and what was healed."""

from __future__ import annotations

from typing import Any

from penstock.asgi.request import RejectedRequest
from penstock.asgi.response import respond, respond_json
from penstock.errors import UsageError
from penstock.gateway.context import Call, GatewayContext
from penstock.gateway.estimate import estimate_input
from penstock.gateway.routing import model_names
from penstock.history.client_request import decode_request
from penstock.wires import find_response_encoder

MAX_LISTED = 100
"""How many requests a list has."""
_NO_TIME = "1970-01-01T00:00:00Z"


async def list_models(context: GatewayContext, call: Call) -> None:
    """`GET /v1/models`: the models, in a form that all clients of this path read."""
    rows = [
        {"id": name, "object": "model", "created": 0, "owned_by": "penstock", "type": "model", "display_name": name,
         "created_at": _NO_TIME}
        for name in await _names(context)
    ]  # fmt: skip
    ends = {"first_id": rows[0]["id"] if rows else None, "last_id": rows[-1]["id"] if rows else None}
    await respond_json(call.request, call.send, {"object": "list", "data": rows, "has_more": False, **ends})


async def list_named_models(context: GatewayContext, call: Call) -> None:
    """`GET /v1beta/models` and `GET /api/tags`: the same in the forms of other protocols."""
    is_tags = call.request.path.endswith("tags")
    rows = [{"name": name, "model": name} if is_tags else {"name": f"models/{name}"} for name in await _names(context)]
    await respond_json(call.request, call.send, {"models": rows})


async def _names(context: GatewayContext) -> list[str]:
    settings = context.source.current
    return [*dict.fromkeys([*model_names(settings), *await context.models.names(settings)])]


async def count_tokens(wire: str, context: GatewayContext, call: Call) -> None:
    """Count the tokens of a request: an estimate, which the header `x-penstock-estimated` marks."""
    try:
        request = decode_request(_object(await call.request.json()), wire)
    except (UsageError, RejectedRequest) as error:
        status = error.status if isinstance(error, RejectedRequest) else 400
        encoded = find_response_encoder(wire).encode_error(status, str(error))
        await respond(call.request, call.send, encoded.status, encoded.body)
        return
    tokens = estimate_input(request.messages, request.settings.tools)
    await respond_json(call.request, call.send, {"input_tokens": tokens}, headers={"x-penstock-estimated": "true"})


def _object(body: Any) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise UsageError("the body must be a JSON object")
    return body


async def show_healed(context: GatewayContext, call: Call) -> None:
    """`GET /healed/{id}`: what was healed in the response to a request."""
    response = context.healed.find(call.parts["id"])
    if response is None:
        raise RejectedRequest(404, "unknown_request", "this request is not known, or no longer")
    await respond_json(call.request, call.send, response)


async def list_healed(context: GatewayContext, call: Call) -> None:
    """`GET /healed`: the last requests, the newest first."""
    await respond_json(call.request, call.send, {"requests": context.healed.last(MAX_LISTED)})


async def show_metrics(context: GatewayContext, call: Call) -> None:
    """`GET /metrics`: counters and gauges for Prometheus."""
    await respond(call.request, call.send, 200, context.metrics.text(), "text/plain; version=0.0.4")


async def show_health(context: GatewayContext, call: Call) -> None:
    """`GET /healthz`: whether the gateway answers."""
    await respond_json(call.request, call.send, {"status": "ok"})

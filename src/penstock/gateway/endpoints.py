"""The endpoints of a gateway beside the answers of models: lists of models, and what was healed."""

from __future__ import annotations

from penstock.asgi.request import RejectedRequest
from penstock.asgi.response import respond, respond_json
from penstock.gateway.context import Call, GatewayContext
from penstock.gateway.routing import model_names

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

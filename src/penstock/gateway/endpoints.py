"""The other endpoints of a gateway: lists of models, and reports of healing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.asgi.metrics import CONTENT_TYPE
from penstock.asgi.request import RejectedRequest
from penstock.asgi.response import respond, respond_json
from penstock.gateway.context import Call, GatewayContext
from penstock.gateway.routing import model_names
from penstock.gateway.servers.model_windows import model_windows
from penstock.gateway.upstream_models import ModelList, listed_names
from penstock.wires.ollama.other_endpoints import NO_TIME, listed_model

ListForm = Callable[[Mapping[str, int | None]], dict[str, Any]]
"""Writes a list of models, by their names with their context windows, in the form of a protocol."""
MAX_LISTED = 100
"""How many requests a list has."""


async def list_models(form: ListForm, context: GatewayContext, call: Call) -> None:
    """A list of the models in the form of a protocol."""
    client_key = context.client_key(call.request)
    names, lists = await all_names(context, client_key)
    windows = await call.request.unless_gone(model_windows(context, names, lists, client_key))
    await respond_json(call.request, call.send, form(windows))


def with_paths(models: Mapping[str, int | None]) -> dict[str, Any]:
    """A list of models by their paths."""
    return {
        "models": [{"name": f"models/{name}", **_windows(size, "inputTokenLimit")} for name, size in models.items()]
    }


def with_tags(models: Mapping[str, int | None]) -> dict[str, Any]:
    """A list of models by their tags."""
    return {"models": [listed_model(name, size) for name, size in models.items()]}


def with_ids(models: Mapping[str, int | None]) -> dict[str, Any]:
    """A list of models by their ids, for the clients of both protocols that have `/v1/models`.

    There is no common name for the window: clients look for these.
    """
    rows = [
        {"id": name, "object": "model", "created": 0, "owned_by": "penstock", "type": "model", "display_name": name,
         "created_at": NO_TIME, **_windows(size, "max_model_len", "context_length", "max_input_tokens")}
        for name, size in models.items()
    ]  # fmt: skip
    names = [*models]
    ends = {"first_id": names[0] if names else None, "last_id": names[-1] if names else None}
    return {"object": "list", "data": rows, "has_more": False, **ends}


def _windows(size: int | None, *fields: str) -> dict[str, int]:
    return {} if size is None else dict.fromkeys(fields, size)


async def all_names(context: GatewayContext, client_key: str) -> tuple[list[str], Mapping[str, ModelList]]:
    """The names of all known models, and their lists; raises if there are none because no upstream answers."""
    settings = context.source.current
    lists = await context.models.lists(settings, client_key)
    names = [*dict.fromkeys([*model_names(settings), *listed_names(lists)])]
    failures = [f"{name}: {models.failure}" for name, models in lists.items() if models.failure]
    if failures and not names:
        raise RejectedRequest(502, "", f"no upstream lists its models ({'; '.join(failures)})")
    return names, lists


async def show_healed(context: GatewayContext, call: Call) -> None:
    """`GET /healed/{id}`: what was healed in the response to a request."""
    response = context.healed.find(call.parts["id"])
    if response is None:
        raise RejectedRequest(404, "unknown_request", "this request is not known, or no longer")
    await respond_json(call.request, call.send, response)


async def list_healed(context: GatewayContext, call: Call) -> None:
    """`GET /healed`: the last requests, the newest first, and what is wrong with the file of the settings."""
    report = {"requests": context.healed.last(MAX_LISTED), "settings_problem": context.source.problem}
    await respond_json(call.request, call.send, report)


async def show_metrics(context: GatewayContext, call: Call) -> None:
    """`GET /metrics`: counters and gauges for Prometheus."""
    await respond(call.request, call.send, 200, context.metrics.text(), CONTENT_TYPE)


async def show_page(context: GatewayContext, call: Call) -> None:
    """`GET /`: redirects to the page of the inspector."""
    place = f"{call.request.scope.get('root_path', '')}/inspect"
    await respond(call.request, call.send, 307, b"", headers={"location": place})


async def show_health(context: GatewayContext, call: Call) -> None:
    """`GET /healthz`: whether the gateway answers."""
    await respond_json(call.request, call.send, {"status": "ok"})


async def show_readiness(context: GatewayContext, call: Call) -> None:
    """`GET /readyz`: whether the gateway may get requests: it is not about to stop."""
    await context.readiness.respond(call.request, call.send)

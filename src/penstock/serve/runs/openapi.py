"""The OpenAPI description of our own protocol, from the structs of its bodies, replies and events.

The chat and model protocols have descriptions of their own, by those who define them.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import Struct

from penstock.calls.sources import SourceKind
from penstock.events import USAGE_COUNTS, Error
from penstock.log.store import RunPhase
from penstock.run.events import ApprovalRequest, Done, Nested, RunStart, Said, ToolEnd
from penstock.serve.public_events import PUBLIC_FIELDS
from penstock.serve.runs import bodies, replies


class Media(Struct, frozen=True):
    """An image or a file in a result."""

    type: str
    url: str
    media_type: str


class Result(Struct, frozen=True, omit_defaults=True):
    """The result of a tool, as the model reads it."""

    text: str
    is_error: bool
    media: list[Media] = []


class PublicSource(Struct, frozen=True):
    """What contains an argument value: a message of the user, a tool result, a file, an earlier answer or call."""

    kind: SourceKind
    name: str


TokenCounts = msgspec.defstruct(
    "TokenCounts",
    [*((name, int) for name in USAGE_COUNTS), ("cost", float | None)],
    namespace={"__doc__": "The tokens of a run, and what they cost in US dollars."},
    frozen=True,
    tag_field="type",
    tag="usage",
)


class Status(Struct, frozen=True):
    """The server answers."""

    status: str


_MORE: Mapping[type, list[tuple[Any, ...]]] = {
    ToolEnd: [("call_id", str), ("name", str), ("result", Result)],
    ApprovalRequest: [("shown", str), ("arguments", dict[str, Any]), ("sources", dict[str, list[PublicSource]], {})],
    Said: [("text", str)],
    Error: [("message", str)],
    Nested: [("event", dict[str, Any])],
    RunStart: [("prompt", str, "")],
    Done: [("usage", TokenCounts), ("why", str, "")],
}
"""The added fields of public events; the last item is the default of an optional field."""


class Operation(Struct, frozen=True, kw_only=True):
    """One request of the protocol."""

    reply: Any
    body: type | None = None
    is_body_optional: bool = False
    status: int = 200
    query: Mapping[str, Any] = {}
    headers: Mapping[str, Any] = {}
    media_type: str = "application/json"


_CURSOR = {"type": "string", "pattern": "^[0-9]{1,18}(-[0-9a-f]{1,8})?$"}
_KEY = {"Idempotency-Key": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]([ -~]*[!-~])?$"}}
_SELECTION = {"state": {"enum": [*get_args(RunPhase)]}, "thread": {"type": "string"}, "agent": {"type": "string"}}
OPERATIONS: Mapping[tuple[str, str], Operation] = {
    ("POST", "/runs"): Operation(body=bodies.StartBody, reply=replies.StartedRun, status=201, headers=_KEY),
    ("GET", "/runs"): Operation(reply=replies.RunList, query=_SELECTION),
    ("GET", "/runs/{id}"): Operation(reply=replies.RunState),
    ("GET", "/runs/{id}/messages"): Operation(reply=replies.RunMessages),
    ("GET", "/runs/{id}/events"): Operation(reply=str, query={"after": _CURSOR}, media_type="text/event-stream"),
    ("POST", "/runs/{id}/cancel"): Operation(body=bodies.CancelBody, reply=replies.Accepted, is_body_optional=True),
    ("POST", "/runs/{id}/decide"): Operation(body=bodies.DecideBody, reply=replies.Accepted),
    ("POST", "/runs/{id}/provide"): Operation(body=bodies.ProvideBody, reply=replies.Accepted),
    ("POST", "/runs/{id}/say"): Operation(body=bodies.SayBody, reply=replies.Accepted),
    ("POST", "/runs/{id}/fork"): Operation(body=bodies.ForkBody, reply=replies.StartedRun, status=201, headers=_KEY),
    ("GET", "/threads/{id}"): Operation(reply=replies.ThreadState),
    ("GET", "/v1/models"): Operation(reply=replies.ModelList),
    ("POST", "/session"): Operation(reply=Status),
    ("DELETE", "/session"): Operation(reply=Status),
    ("GET", "/healthz"): Operation(reply=Status),
    ("GET", "/readyz"): Operation(reply=Status),
    ("GET", "/metrics"): Operation(reply=str, media_type="text/plain"),
    ("GET", "/openapi.json"): Operation(reply=dict[str, Any]),
}
"""The requests of our own protocol."""


@cache
def event_types() -> Mapping[str, type[Struct]]:
    """The public form of each event, as a struct, by its type."""
    types: dict[str, type[Struct]] = {}
    for kind, names in PUBLIC_FIELDS.items():
        more = _MORE.get(kind, [])
        hints = get_type_hints(kind)
        own: list[tuple[Any, ...]] = [(name, hints[name]) for name in names if name not in {each[0] for each in more}]
        required = [field for field in (*own, *more) if len(field) == 2]
        fields = [*required, *(field for field in more if len(field) == 3), ("at", float, 0.0)]
        tag: str = kind.type  # type: ignore[attr-defined]
        types[tag] = msgspec.defstruct(f"{kind.__name__}Event", fields, tag_field="type", tag=tag,
                                       namespace={"__doc__": _first(kind)})  # fmt: skip
    return types


@cache
def description(endpoints: tuple[tuple[str, str, str], ...]) -> dict[str, Any]:
    """The description; `endpoints` are the methods and paths of the app, with the docstrings of their functions."""
    words = {(method, path): _summary(text) for method, path, text in endpoints}
    types = [
        each for operation in OPERATIONS.values() for each in (operation.body, operation.reply) if each is not None
    ]
    structs = [each for each in types if isinstance(each, type) and issubclass(each, Struct)]
    every: list[Any] = [*dict.fromkeys([*structs, replies.ErrorReply, *event_types().values()])]
    schemas, components = msgspec.json.schema_components(every, ref_template="#/components/schemas/{name}")
    by_type = dict(zip(every, schemas, strict=True))
    paths: dict[str, Any] = {}
    for (method, path), operation in OPERATIONS.items():
        paths.setdefault(path, {})[method.lower()] = _operation(path, operation, by_type, words[method, path])
    events = [by_type[each] for each in event_types().values()]
    components["Event"] = {"anyOf": events, "description": "The JSON in the `data` of a frame of a stream of events."}
    return {
        "openapi": "3.1.0",
        "info": {"title": "Penstock", "version": _version(), "description": "Runs of agents over HTTP."},
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": _SECURITY},
        "security": [{}, {"token": []}, {"session": []}],
    }  # fmt: skip


def _operation(path: str, operation: Operation, by_type: Mapping[type, Any], summary: str) -> dict[str, Any]:
    error = {"description": "An error", "content": {"application/json": {"schema": by_type[replies.ErrorReply]}}}
    schema = by_type.get(operation.reply, {"type": "string"} if operation.reply is str else {"type": "object"})
    content = {operation.media_type: {"schema": schema}}
    described: dict[str, Any] = {
        "summary": summary,
        "parameters": _parameters(path, operation),
        "responses": {
            str(operation.status): {"description": "Success", "content": content},
            "4XX": error,
            "5XX": error,
        },
    }
    if operation.body is not None:
        body = {"application/json": {"schema": by_type[operation.body]}}
        described["requestBody"] = {"required": not operation.is_body_optional, "content": body}
    return described


def _parameters(path: str, operation: Operation) -> list[dict[str, Any]]:
    places = {"query": operation.query, "header": operation.headers}
    others = [
        {"name": name, "in": place, "schema": schema} for place, each in places.items() for name, schema in each.items()
    ]
    if "{id}" not in path:
        return others
    schema = {"type": "string", "minLength": 1, "maxLength": bodies.MAX_ID}
    return [{"name": "id", "in": "path", "required": True, "schema": schema}, *others]


_SECURITY: dict[str, Any] = {
    "token": {"type": "http", "scheme": "bearer"},
    "session": {"type": "apiKey", "in": "cookie", "name": "penstock_session"},
}


def _summary(docstring: str) -> str:
    """The summary of an endpoint: its docstring without the request line."""
    text = docstring.partition("`: ")[2] or docstring
    return text.strip().partition("\n")[0]


def _first(kind: type) -> str:
    """The first line of a docstring."""
    return (kind.__doc__ or "").strip().partition("\n")[0]


def _version() -> str:
    try:
        return version("penstock-llm")
    except PackageNotFoundError:
        return "0"

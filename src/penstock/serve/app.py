"""The ASGI app that serves agents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any, cast, get_args

from penstock.agent.agent import Agent
from penstock.asgi.access import Access, Authenticate
from penstock.asgi.app import ASGIApp
from penstock.asgi.limits import ServerLimits
from penstock.asgi.metrics import CONTENT_TYPE, Metrics
from penstock.asgi.page import Page
from penstock.asgi.readiness import Readiness
from penstock.asgi.request import HTTPRequest, RejectedRequest
from penstock.asgi.response import respond, respond_json
from penstock.asgi.routes import Route, Routes
from penstock.asgi.sending import Sender
from penstock.errors import UsageError
from penstock.inspector.endpoints import InspectorEndpoints
from penstock.inspector.inspections import Inspections
from penstock.log.in_memory import MemoryStore
from penstock.log.store import Store, StoreError, UnknownRunError
from penstock.loggers import get_logger
from penstock.serve.abandonment import Abandonment
from penstock.serve.ag_ui import api as ag_ui_api
from penstock.serve.ai_sdk import api as ai_sdk_api
from penstock.serve.ai_sdk.call_parts import Version
from penstock.serve.context import Call, Endpoint, ModelApprovals, ServeContext
from penstock.serve.feeds.feeds import Feeds
from penstock.serve.hosting import Host
from penstock.serve.models import api as models_api
from penstock.serve.models.retries import OpenResponses
from penstock.serve.operations.admin import COOKIE, PREFIX, Admin
from penstock.serve.operations.log_watch import LogWatch
from penstock.serve.operations.run_metrics import RunMetrics
from penstock.serve.public_events import EventFrames
from penstock.serve.runs import api as runs_api
from penstock.serve.runs.openapi import description
from penstock.serve.runs.shared_answers import SharedAnswers
from penstock.wires.openai_responses.served_socket import ServedSocket

logger = get_logger("penstock.serve")

SHUTDOWN_SECONDS = 10.0
"""The seconds that runs have to finish when the server stops; then they are released to another worker."""

PUBLIC_PATHS = ("/", "/healthz", "/readyz", "/inspect")
"""The paths that need no token. The pages among them are empty until the user has signed in."""


def app(
    agents: Agent[Any, Any] | Iterable[Agent[Any, Any]] | Mapping[str, Agent[Any, Any]],
    *,
    log: Store | None = None,
    token: str = "",
    auth: Authenticate | None = None,
    hosts: Collection[str] = (),
    origins: Collection[str] = (),
    proxies: Collection[str] = (),
    limits: ServerLimits | None = None,
    deps: Callable[[Any], Any] | None = None,
    ai_sdk: Version = 6,
    model_approvals: ModelApprovals = "decline",
    inspections: Inspections | None = None,
    shutdown_seconds: float = SHUTDOWN_SECONDS,
    abandon_after: float | None = None,
    admin_token: str = "",
) -> ServeApp:
    """An ASGI app that serves agents by their names. It can be mounted into other apps.

    - `log`: where runs are kept (`penstock.log.open`). Without it they are kept in memory, and end with the process.
    - `token`, `auth`: who may use the server; without both, only clients on its own machine. `auth(scope)` returns the
      tenant of a request, or None to refuse it; a tenant sees its own runs only.
    - `hosts`, `origins`: the host names of the server, and the origins of web pages that may use it.
    - `proxies`: the addresses of proxies whose `X-Forwarded-For` names the client.
    - `limits`: the caps and timeouts of the server.
    - `deps`: is called with the `meta` of a run, which has the `tenant`, and returns what tools get as `Context.deps`.
    - `ai_sdk`: the version of the AI SDK for clients that do not send the header `x-ai-sdk-version`. Version 7 reads
      what version 6 does, but not the other way round.
    - `model_approvals`: what happens to calls that need approval if the client uses an agent as a model, and cannot be
      asked: they are declined, approved, or wait for a decision from elsewhere.
    - `inspections`: are shown at `/inspect`, to everyone who may use the server; models feed them by `record=`.
    - `shutdown_seconds`: how long runs may take to end when the server stops.
    - `abandon_after`: cancels a run after it had no reader for this many seconds.
    - `admin_token`: opens `/admin`, the page of an operator, who sees the runs of all tenants; off without it.
    """
    if auth is not None and inspections is not None:
        raise UsageError(
            "inspections cannot be combined with auth: all tenants would see them; mount penstock.inspector.app"
        )
    store = MemoryStore() if log is None else log
    access = Access(token=token, auth=auth, hosts=tuple(hosts), origins=tuple(origins), proxies=tuple(proxies))
    limits = limits or ServerLimits()
    host = Host(store, _by_name(agents), limits, deps)
    frames = EventFrames(limits.event)
    feeds = Feeds(store, frames.frame, frames.reset)
    if ai_sdk not in get_args(Version):
        raise UsageError(f"ai_sdk must be 6 or 7, not {ai_sdk!r}")
    if model_approvals not in get_args(ModelApprovals):
        raise UsageError(f"model_approvals must be one of {', '.join(get_args(ModelApprovals))}")
    watch = LogWatch(store)
    context = ServeContext(
        host=host, feeds=feeds, messages=SharedAnswers(), responses=OpenResponses(host, limits.retry_seconds),
        access=access, limits=limits, metrics=_metrics(host, feeds), run_metrics=RunMetrics(store, host.runs, watch),
        watch=watch, readiness=Readiness(), ai_sdk=ai_sdk, model_approvals=model_approvals,
    )  # fmt: skip
    if abandon_after is not None:
        host.abandonment = Abandonment(host.runs, abandon_after, lambda: host.driven.ids, feeds.readers_of)
    inspected = [] if inspections is None else InspectorEndpoints(inspections, limits).mounted()
    admin = None
    if admin_token:
        if admin_token == token:
            raise UsageError("admin_token must differ from token: operators see and end the runs of everybody")
        admin = Admin(
            store, host.runs, Access(token=admin_token, hosts=access.hosts, proxies=access.proxies, cookie=COOKIE)
        )
    return ServeApp(context, Routes(*ROUTES.routes, *inspected), shutdown_seconds, inspections, admin)


class ServeApp(ASGIApp):
    """Agents as an ASGI app: see `app`."""

    public_paths = PUBLIC_PATHS
    websocket_paths = ("/v1/responses",)

    def __init__(
        self,
        context: ServeContext,
        routes: Routes[Endpoint],
        shutdown_seconds: float,
        inspections: Inspections | None = None,
        admin: Admin | None = None,
    ) -> None:
        super().__init__(context.access, context.limits, context.metrics, context.readiness)
        self.context = context
        self.routes = routes
        self._inspections = inspections
        self._admin = admin
        self._shutdown_seconds = shutdown_seconds
        self._is_open = False

    def open(self) -> None:
        """Start claiming runs."""
        if not self._is_open:
            self._is_open = True
            self.context.host.open()

    def drain(self) -> None:
        """Say that the server is about to stop, and claim no more runs. Requests are still answered."""
        super().drain()
        self.context.run_metrics.is_draining = True
        self.context.host.runs.stop_claiming()

    async def close(self) -> None:
        """End all streams, wait a while for runs to finish, and release the others to another worker."""
        self.context.feeds.close()
        if self._inspections is not None:
            self._inspections.close()
        await self.context.responses.close()
        await self.context.host.close(self._shutdown_seconds)

    def new_socket(self) -> ServedSocket:
        """The rules of a WebSocket, which remembers what its client may hold in memory."""
        return ServedSocket(self.limits.client_memory)

    async def admit(self, request: HTTPRequest) -> str:
        return "" if self._is_for_operators(request) else await super().admit(request)

    def _is_for_operators(self, request: HTTPRequest) -> bool:
        """Whether a path belongs to operators: `Admin` checks their token."""
        return self._admin is not None and f"{request.path}/".startswith(f"{PREFIX}/")

    async def route(self, request: HTTPRequest, send: Sender, tenant: str) -> None:
        if self._admin is not None and self._is_for_operators(request):
            await self._admin.route(request, send)
            return
        route, parts = self.routes.find(request)
        await route.endpoint(self.context, Call(request, send, tenant, parts))

    def rejection(self, request: HTTPRequest, error: Exception) -> RejectedRequest:
        match error:
            case UnknownRunError():
                return RejectedRequest(404, "unknown_run", "there is no such run")
            case StoreError():
                logger.error("request %s: the log of runs failed: %s", request.id, error)
                return RejectedRequest(503, "store_failed", "the log of runs cannot be reached", {"retry-after": "5"})
            case _:
                return super().rejection(request, error)

    async def reject(self, request: HTTPRequest, send: Sender, error: RejectedRequest) -> None:
        """Answer with an error, in the shape of the path's protocol."""
        encoded = models_api.encode_rejection(request.path, error, request.id)
        if encoded is None:
            await super().reject(request, send, error)
        else:
            await respond(request, send, encoded.status, encoded.body, headers={**error.headers, **encoded.headers})


@cache
def _page() -> Page:
    return Page(files("penstock.serve") / "page")


async def _show_page(context: ServeContext, call: Call) -> None:
    """`GET /`: a page to chat with the agents."""
    await _page().respond(call.request, call.send)


async def _health(context: ServeContext, call: Call) -> None:
    """`GET /healthz`: whether the server answers."""
    await respond_json(call.request, call.send, {"status": "ok"})


async def _metrics_text(context: ServeContext, call: Call) -> None:
    """`GET /metrics`: metrics of the server, of its runs and of the log, for Prometheus."""
    text = context.metrics.text() + await context.run_metrics.text()
    await respond(call.request, call.send, 200, text, CONTENT_TYPE)


async def _ready(context: ServeContext, call: Call) -> None:
    """`GET /readyz`: whether the server may get requests: it is not about to stop, and its log can be reached."""
    await context.readiness.respond(call.request, call.send, await context.watch.problem())


async def _describe(context: ServeContext, call: Call) -> None:
    """`GET /openapi.json`: this protocol, described in OpenAPI."""
    words = ((route.method, route.path, route.endpoint.__doc__ or "") for route in ROUTES.routes)
    await respond_json(call.request, call.send, description(tuple(words)))


async def _open_session(context: ServeContext, call: Call) -> None:
    """`POST /session`: a session cookie for a browser that sent the token."""
    cookie = {"set-cookie": context.access.session_cookie(call.request)} if context.access.token else {}
    await respond_json(call.request, call.send, {"status": "ok"}, headers=cookie)


async def _end_session(context: ServeContext, call: Call) -> None:
    """`DELETE /session`: end the session of a browser."""
    cookie = {"set-cookie": context.access.end_session(call.request)} if context.access.token else {}
    await respond_json(call.request, call.send, {"status": "ok"}, headers=cookie)


ROUTES: Routes[Endpoint] = Routes(
    Route("GET", "/", _show_page),
    Route("POST", "/runs", runs_api.start_run),
    Route("GET", "/runs", runs_api.list_runs),
    Route("GET", "/runs/{id}", runs_api.show_run),
    Route("GET", "/runs/{id}/messages", runs_api.show_messages),
    Route("GET", "/runs/{id}/events", runs_api.follow_run),
    Route("POST", "/runs/{id}/cancel", runs_api.cancel_run),
    Route("POST", "/runs/{id}/decide", runs_api.decide),
    Route("POST", "/runs/{id}/provide", runs_api.provide),
    Route("POST", "/runs/{id}/say", runs_api.say),
    Route("POST", "/runs/{id}/fork", runs_api.fork_run),
    Route("GET", "/threads/{id}", runs_api.show_thread),
    Route("POST", "/api/chat", ai_sdk_api.chat),
    Route("GET", "/api/chat/{id}", ai_sdk_api.messages),
    Route("GET", "/api/chat/{id}/stream", ai_sdk_api.resume),
    Route("POST", "/agui", ag_ui_api.run_agent),
    Route("GET", "/v1/models", models_api.list_models),
    *(Route("POST", path, models_api.endpoint(path)) for path in models_api.WIRES),
    Route("POST", "/session", _open_session),
    Route("DELETE", "/session", _end_session),
    Route("GET", "/healthz", _health),
    Route("GET", "/readyz", _ready),
    Route("GET", "/metrics", _metrics_text),
    Route("GET", "/openapi.json", _describe),
)
"""The paths of the app."""


def _by_name(
    agents: Agent[Any, Any] | Iterable[Agent[Any, Any]] | Mapping[str, Agent[Any, Any]],
) -> dict[str, Agent[Any, Any]]:
    """The agents by their names."""
    named: dict[str, Agent[Any, Any]]
    if isinstance(agents, Mapping):
        named = {**cast("Mapping[str, Agent[Any, Any]]", agents)}
    else:
        each = [agents] if isinstance(agents, Agent) else [*agents]
        if any(not agent.name for agent in each):
            raise UsageError("an agent that is served needs a name: add one, as in Agent(..., name='support')")
        named = {agent.name: agent for agent in each}
        if twice := next((name for name, count in Counter(agent.name for agent in each).items() if count > 1), ""):
            raise UsageError(f"two agents have the name {twice!r}: give each a name of its own")
    values: list[Any] = [*named.values()]
    if not values or not all(isinstance(agent, Agent) for agent in values):
        raise UsageError("pass an agent, a list of agents, or a dict of agents by name")
    return named


def _metrics(host: Host, feeds: Feeds) -> Metrics:
    metrics = Metrics("penstock_serve")
    metrics.gauge("runs", "Runs that this process drives", lambda: len(host.driven))
    metrics.gauge("stranded_runs", "Runs of agents that are not here", lambda: host.runs.unclaimed.stranded)
    metrics.gauge("parked_runs", "Parked runs of the log", lambda: host.runs.unclaimed.parked)
    metrics.gauge("readers", "Open streams of events", lambda: feeds.readers)
    return metrics

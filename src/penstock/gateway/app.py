"""The ASGI app of a gateway: clients of five protocols in front, any provider behind."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Iterable
from functools import partial
from typing import Any

from penstock.asgi.access import Access
from penstock.asgi.app import ASGIApp
from penstock.asgi.limits import ServerLimits
from penstock.asgi.metrics import Metrics
from penstock.asgi.readiness import Readiness
from penstock.asgi.request import HTTPRequest, RejectedRequest
from penstock.asgi.response import respond, respond_error
from penstock.asgi.routes import Route, Routes
from penstock.asgi.sending import Sender
from penstock.errors import UsageError
from penstock.gateway import endpoints
from penstock.gateway.answering import Answering
from penstock.gateway.calls.learned import LearnedCalls
from penstock.gateway.config.settings import (
    HEALING,
    NATIVE,
    NO_WATCH,
    GatewaySettings,
    Upstream,
    Watch,
    upstreams_by_name,
)
from penstock.gateway.config.settings_file import FileSettings, SettingsWatch
from penstock.gateway.config.upstream_names import read_upstream
from penstock.gateway.context import LIMITS, Call, Endpoint, FixedSettings, GatewayContext, SettingsSource
from penstock.gateway.counting import count_tokens
from penstock.gateway.facts import UpstreamFacts
from penstock.gateway.failures import shown_code
from penstock.gateway.fallbacks import Circuits
from penstock.gateway.healed import HealedResponses
from penstock.gateway.hosted.runners import WebTools
from penstock.gateway.memory import ResponseMemory
from penstock.gateway.passing import endpoints as passing
from penstock.gateway.upstream_keys import withheld_note
from penstock.gateway.upstream_models import UpstreamModels
from penstock.gateway.watch.prompt_cache import PromptCache
from penstock.healing.settings import Healing
from penstock.inspector.endpoints import InspectorEndpoints
from penstock.inspector.inspections import Inspections
from penstock.jsontext.shown_text import one_line
from penstock.loggers import get_logger
from penstock.wires import find_response_frames
from penstock.wires.openai_responses.served_socket import ServedSocket
from penstock.wires.shared.encode_response.response_bodies import encode_error
from penstock.wires.shared.encode_response.response_head import ResponseHead

logger = get_logger("penstock.gateway")

PUBLIC_PATHS = ("/", "/healthz", "/readyz", "/inspect")
"""The paths that need no key: the health check, and a page without data."""


def app(
    *upstreams: str | Upstream,
    settings: SettingsSource | GatewaySettings | None = None,
    model: str = "",
    calls: str = NATIVE,
    healing: Healing | None = None,
    watch: Watch | None = None,
    key: str = "",
    hosts: Collection[str] = (),
    origins: Collection[str] = (),
    proxies: Collection[str] = (),
    limits: ServerLimits | None = None,
    record: Any = None,
    inspections: Inspections | None = None,
) -> GatewayApp:
    """An ASGI app that stands between clients and model servers, and repairs what these send. It can be mounted.

        app = penstock.gateway.app("http://127.0.0.1:11434/v1")

    An upstream is a URL, `NAME=URL`, the name of a provider, or an `Upstream`; `settings` has several, with routes by
    model. `model` replaces the name of every model. `calls` says how calls are asked for: natively, as `raw` text, in a
    dialect, or natively first (`auto`). `watch` says what is done about agents that stop too early or run in circles.
    Clients must send the `key`; without one, only clients on this machine are answered. `hosts` are the names of the
    gateway, `origins` the pages of other hosts that may use it; `proxies` are the addresses of proxies whose
    `X-Forwarded-For` names the client. `record` is a file to which every exchange with an upstream is appended;
    `inspections` keep the last requests in memory, and show them at `/inspect`.
    """
    is_set = upstreams or model or calls != NATIVE or healing is not None or watch is not None
    if settings is not None and is_set:
        raise UsageError(
            "settings has the upstreams, the model, the calls, the healing and the watch: put them there, or leave out "
            "settings"
        )
    if settings is None:
        settings = GatewaySettings(
            upstreams=upstreams_by_name(_upstreams(upstreams)), model=model, calls=calls, healing=healing or HEALING,
            watch=watch or NO_WATCH,
        )  # fmt: skip
    metrics = _metrics()
    context = GatewayContext(
        source=FixedSettings(settings) if isinstance(settings, GatewaySettings) else settings,
        access=Access(token=key, hosts=tuple(hosts), origins=tuple(origins), proxies=tuple(proxies)),
        limits=limits or LIMITS,
        metrics=metrics, readiness=Readiness(),
        circuits=Circuits(), learned=LearnedCalls(), healed=HealedResponses(), memory=ResponseMemory(),
        models=UpstreamModels(), prompts=PromptCache(), facts=UpstreamFacts(), web_tools=WebTools(),
        record=record, inspections=inspections,
    )  # fmt: skip
    return GatewayApp(context)


class GatewayApp(ASGIApp):
    """A gateway as an ASGI app: see `app`."""

    public_paths = PUBLIC_PATHS
    websocket_paths = ("/v1/responses",)

    def __init__(self, context: GatewayContext) -> None:
        super().__init__(context.access, context.limits, context.metrics, context.readiness)
        context.metrics.gauge(
            "draining", "Whether this process is about to stop", lambda: float(context.readiness.is_draining)
        )
        self.context = context
        kept = context.inspections
        inspector: list[Route[Endpoint]] = []
        if kept is not None:
            inspector = [*InspectorEndpoints(kept, context.limits).mounted(), Route("GET", "/", endpoints.show_page)]
        self._routes: Routes[Endpoint] = Routes(*ROUTES.routes, *inspector)
        source = context.source
        self._watch = SettingsWatch(source, self._settings_changed) if isinstance(source, FileSettings) else None
        self._is_open = False
        self._withheld: set[str] = set()  # the warnings about keys that were logged

    def open(self) -> None:
        """Begin to watch the file of the settings, if there is one."""
        if self._watch is not None:
            self._watch.open()
        if not self._is_open:
            self._is_open = True
            self._warn_about_keys()

    def reload(self) -> None:
        """Read the file of the settings now, if there is one."""
        if isinstance(self.context.source, FileSettings):
            self.context.source.reload()
            self._settings_changed()

    def _settings_changed(self) -> None:
        if self.context.inspections is not None:
            problem = self.context.source.problem
            self.context.inspections.alert = problem and f"The settings before this change are still used: {problem}"
        self._warn_about_keys()

    def new_socket(self) -> ServedSocket:
        """The rules of a WebSocket, which remembers what its client may hold in memory."""
        return ServedSocket(self.limits.client_memory)

    def _warn_about_keys(self) -> None:
        """Log which upstreams get no key of clients, each once. With its own key, a gateway passes none on."""
        settings = self.context.source.current
        notes = [] if self.access.token else [withheld_note(settings, name) for name in settings.upstreams]
        for note in filter(None, notes):
            if note not in self._withheld:
                logger.warning("%s", note)
        self._withheld = {*notes}

    async def route(self, request: HTTPRequest, send: Sender, tenant: str) -> None:
        route, parts = self._routes.find(request)
        await route.endpoint(self.context, Call(request, send, parts))

    async def reject(self, request: HTTPRequest, send: Sender, error: RejectedRequest) -> None:
        """Answer with an error, in the shape of the protocol that the path belongs to."""
        logger.info(
            "%s %s status=%d | failed: %s", request.id, one_line(request.path), error.status, one_line(error.message),
            extra={"fields": {"request": request.id, "path": one_line(request.path), "status": error.status}},
        )  # fmt: skip
        wire = wire_of_path(request)
        if wire is None:
            await respond_error(request, send, error)
            return
        encoded = encode_error(
            find_response_frames(wire), error.status, error.message, shown_code(error), ResponseHead(id=request.id)
        )
        headers = {**error.headers, **encoded.headers}
        await respond(request, send, encoded.status, encoded.body, headers=headers)

    async def close(self) -> None:
        """Close the connections to upstreams."""
        from penstock.transport.http.async_pool import aclose_pools

        self.stop_feeds()
        if self._watch is not None:
            self._watch.close()
        self.context.facts.close()
        await self.context.web_tools.close()
        await aclose_pools()

    def stop_feeds(self) -> None:
        """End the feeds of the inspector: they never end by themselves."""
        if self.context.inspections is not None:
            self.context.inspections.close()


def _answer(wire: str, context: GatewayContext, call: Call) -> Awaitable[None]:
    return Answering(wire, context, call).answer()


async def _answer_in_path(wire: str, context: GatewayContext, call: Call) -> None:
    """Answer a request with the model and the method in its path: `model:method`."""
    name, _, method = "/".join(call.parts.values()).rpartition(":")
    if method == COUNT:
        await count_tokens(wire, context, call, name)
        return
    if method not in _METHODS:
        raise RejectedRequest(404, "not_found", f"unknown method {method!r}; use {', '.join([*_METHODS, COUNT])}")
    await Answering(wire, context, call).answer(name, is_streaming=_METHODS[method])


async def _list_models(context: GatewayContext, call: Call) -> None:
    """List the models in the protocol of the path."""
    await endpoints.list_models(_LISTS.get(wire_of_path(call.request) or "", endpoints.with_ids), context, call)


def wire_of_path(request: HTTPRequest) -> str | None:
    """The wire of a request, by its path; None for the gateway's own paths."""
    path = request.path
    if path.startswith("/v1/models") and ":" not in path:  # which three protocols have
        return next((wire for header, wire in _HEADERS.items() if header in request.headers), "openai-chat")
    return next((wire for start, wire in _STARTS.items() if path.startswith(start)), None)


_LISTS = {"gemini": endpoints.with_paths, "ollama": endpoints.with_tags}
_HEADERS = {"anthropic-version": "anthropic", "x-goog-api-key": "gemini"}
_STARTS = {
    "/v1/responses": "openai-responses", "/v1/messages": "anthropic", "/v1/models": "gemini", "/v1beta/": "gemini",
    "/v1alpha/": "gemini", "/api/": "ollama", "/v1/": "openai-chat",
}  # fmt: skip
_METHODS = {"generateContent": False, "streamGenerateContent": True}
VERSIONS = ("v1beta", "v1", "v1alpha")
"""The versions in the paths of Gemini; the newest clients use the second."""
COUNT = "countTokens"


def _versions(method: str, path: str, endpoint: Endpoint) -> list[Route[Endpoint]]:
    """A path below every version."""
    return [Route(method, f"/{version}{path}", endpoint) for version in VERSIONS]


ROUTES: Routes[Endpoint] = Routes(
    Route("POST", "/v1/chat/completions", partial(_answer, "openai-chat")),
    Route("POST", "/v1/responses", partial(_answer, "openai-responses")),
    Route("POST", "/v1/messages", partial(_answer, "anthropic")),
    Route("POST", "/v1/messages/count_tokens", partial(count_tokens, "anthropic")),
    *_versions("POST", "/models/{model}", partial(_answer_in_path, "gemini")),
    *_versions("POST", "/models/{owner}/{model}", partial(_answer_in_path, "gemini")),
    *_versions("POST", "/models/{host}/{owner}/{model}", partial(_answer_in_path, "gemini")),
    Route("POST", "/api/chat", partial(_answer, "ollama")),
    Route("POST", "/api/generate", passing.generate),
    Route("POST", "/api/embed", partial(passing.embed, "/api/embed")),
    Route("POST", "/api/embeddings", partial(passing.embed, "/api/embeddings")),
    Route("POST", "/api/show", passing.show),
    Route("GET", "/api/ps", passing.list_running),
    Route("GET", "/api/version", passing.show_version),
    Route("POST", "/v1/completions", partial(passing.pass_openai, "/completions")),
    Route("POST", "/v1/embeddings", partial(passing.pass_openai, "/embeddings")),
    *_versions("GET", "/models", _list_models),
    Route("GET", "/api/tags", _list_models),
    Route("GET", "/healed", endpoints.list_healed),
    Route("GET", "/healed/{id}", endpoints.show_healed),
    Route("GET", "/healthz", endpoints.show_health),
    Route("GET", "/readyz", endpoints.show_readiness),
    Route("GET", "/metrics", endpoints.show_metrics),
)
"""The paths of a gateway."""


def _upstreams(upstreams: Iterable[str | Upstream]) -> list[Upstream]:
    return [read_upstream(upstream) if isinstance(upstream, str) else upstream for upstream in upstreams]


def _metrics() -> Metrics:
    metrics = Metrics("penstock_gateway")
    metrics.counter("answers", "Responses by upstream, and whether there was a problem")
    metrics.counter("fallbacks", "Responses of an upstream that was not the first choice")
    metrics.counter("healed", "What was healed, by the number of the quirk")
    metrics.counter("tokens", "Tokens by upstream")
    metrics.counter("reads", "Network reads of streamed responses: passed on as plain text, or decoded by the stages")
    metrics.counter("text_lane_left", "Reads that were decoded although plain text flowed")
    metrics.counter("first_event_seconds", "Seconds until responses began, in all")
    return metrics

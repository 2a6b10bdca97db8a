"""The context that the endpoints of a gateway share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from msgspec import Struct

from penstock.asgi.access import Access, shown_key
from penstock.asgi.limits import MEGABYTE, ServerLimits
from penstock.asgi.metrics import Metrics
from penstock.asgi.readiness import Readiness
from penstock.asgi.request import HTTPRequest
from penstock.asgi.sending import Sender
from penstock.gateway.answer import Upstreams
from penstock.gateway.calls.learned import LearnedCalls
from penstock.gateway.config.settings import GatewaySettings
from penstock.gateway.facts import UpstreamFacts
from penstock.gateway.fallbacks import Circuits
from penstock.gateway.healed import HealedResponses
from penstock.gateway.hosted.runners import WebTools
from penstock.gateway.memory import ResponseMemory
from penstock.gateway.upstream_models import UpstreamModels
from penstock.gateway.watch.prompt_cache import PromptCache
from penstock.inspector.inspections import Inspections

LIMITS = ServerLimits(
    body=32 * MEGABYTE, depth=256, messages=20_000, tools=4_096, answer=1024 * MEGABYTE, body_seconds=60.0,
    keep_alive_seconds=10.0, connections=10_000,
)  # fmt: skip
"""The default limits of a gateway: agents send long histories and images."""


class SettingsSource(Protocol):
    """The source of the settings, which may change while the gateway runs; `problem` says why they did not."""

    @property
    def current(self) -> GatewaySettings: ...
    @property
    def problem(self) -> str: ...


class FixedSettings(Struct, frozen=True):
    """Settings that do not change."""

    current: GatewaySettings
    problem: str = ""


class GatewayContext(Struct, frozen=True, kw_only=True):
    """The settings, the rules and the memory of one gateway."""

    source: SettingsSource
    access: Access
    limits: ServerLimits
    metrics: Metrics
    readiness: Readiness
    circuits: Circuits
    learned: LearnedCalls
    healed: HealedResponses
    memory: ResponseMemory
    models: UpstreamModels
    prompts: PromptCache
    facts: UpstreamFacts
    web_tools: WebTools
    record: Any = None
    inspections: Inspections | None = None

    @property
    def upstreams(self) -> Upstreams:
        """What is known about upstreams."""
        return Upstreams(self.circuits, self.learned)

    def client_key(self, request: HTTPRequest) -> str:
        """The client's key for upstreams; empty if it is the key of this gateway."""
        return "" if self.access.token else shown_key(request)


class Call(Struct, frozen=True):
    """One request to an endpoint."""

    request: HTTPRequest
    send: Sender
    parts: Mapping[str, str]  # the parts of the path that vary


Endpoint = Callable[[GatewayContext, Call], Awaitable[None]]

"""Routing: the upstreams for a model, in order."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

from msgspec import Struct

from penstock.gateway.config.settings import (
    NATIVE,
    NO_WATCH,
    GatewaySettings,
    HostedTools,
    ModelRoute,
    Target,
    Upstream,
    Watch,
    WebTool,
)
from penstock.healing.settings import Healing


class Candidate(Struct, frozen=True):
    """An upstream that may answer a request, and the name of the model there.

    `calls` is the setting, or, where `is_auto`, what was chosen for it.
    """

    upstream: Upstream
    model: str
    healing: Healing
    hosted_tools: HostedTools = "drop"
    calls: str = NATIVE
    is_auto: bool = False
    watch: Watch = NO_WATCH
    context: int = 0
    web_tools: Mapping[str, WebTool] = {}


def find_candidates(settings: GatewaySettings, model: str) -> list[Candidate]:
    """The candidates for a model, in order.

    The first matching route counts. Without one, `upstream/model` names both, and any other name goes to the first
    upstream.
    """
    for route in settings.routes:
        if fnmatchcase(model, route.pattern):
            targets = (route.target, *route.fallbacks)
            return [_candidate(settings, target, model, route) for target in targets]
    upstream, separator, rest = model.partition("/")
    if separator and rest and upstream in settings.upstreams:
        return [_candidate(settings, Target(upstream, rest), model, settings)]
    first = next(iter(settings.upstreams))
    return [_candidate(settings, Target(first, settings.model), model, settings)]


def _candidate(settings: GatewaySettings, target: Target, model: str, rules: GatewaySettings | ModelRoute) -> Candidate:
    upstream = settings.upstreams[target.upstream]
    context = (rules.context if isinstance(rules, ModelRoute) else 0) or upstream.context
    return Candidate(
        upstream, target.model or model, rules.healing, rules.hosted_tools, rules.calls, watch=rules.watch,
        context=context, web_tools=settings.web_tools,
    )  # fmt: skip


def model_names(settings: GatewaySettings) -> list[str]:
    """The model names in the settings, without patterns."""
    routes = [route.pattern for route in settings.routes if not any(sign in route.pattern for sign in "*?[")]
    return [*dict.fromkeys([*routes, *([settings.model] if settings.model else [])])]

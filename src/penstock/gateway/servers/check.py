"""Checks the upstreams of a gateway before the first request: reads their facts, and says what is wrong."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from penstock.errors import MissingKeyError
from penstock.gateway.asking import wire_of
from penstock.gateway.config.settings import CLIENT_KEY, NATIVE, GatewaySettings, Upstream
from penstock.gateway.facts import UpstreamFacts, address_of, has_facts
from penstock.gateway.routing import Candidate, find_candidates
from penstock.gateway.upstream_keys import withheld_note
from penstock.gateway.upstream_models import UpstreamModels
from penstock.providers import find_key, find_provider
from penstock.servers.advice import Advice, advice_for
from penstock.servers.facts import ServerFacts
from penstock.wires import find_facts

SECONDS = 5.0
"""How long the facts of all models may take; the lists of models take at most three seconds before."""
MAX_CHECKED = 8
"""How many models of an upstream are checked, unless one is named."""


class CheckedModel(Struct, frozen=True, kw_only=True):
    """An upstream and a model, what the server reports, and what is wrong."""

    upstream: Upstream
    model: str
    facts: ServerFacts
    advice: Sequence[Advice]

    @property
    def has_failed(self) -> bool:
        """Whether the server could not be asked."""
        return bool(self.facts.failure)

    @property
    def problems(self) -> list[Advice]:
        return [one for one in self.advice if one.is_problem]


async def check_upstreams(settings: GatewaySettings, model: str = "") -> list[CheckedModel]:
    """The checks of a model, or of the models of all upstreams. No request goes to a model."""
    facts = UpstreamFacts()
    candidates = find_candidates(settings, model) if model else await _candidates(settings)
    try:
        checked = await asyncio.gather(*(_check(candidate, facts) for candidate in candidates))
        return [_with_key_note(settings, one) for one in checked]
    finally:
        facts.close()


def _with_key_note(settings: GatewaySettings, checked: CheckedModel) -> CheckedModel:
    """The check, and whether the upstream gets no key of clients because there are several."""
    note = withheld_note(settings, checked.upstream.name)
    return replace(checked, advice=[*checked.advice, Advice(what=f"{note}.", is_problem=False)]) if note else checked


async def _candidates(settings: GatewaySettings) -> list[Candidate]:
    """The models of the routes, then for upstreams without a route those that they list."""
    routed = [one for route in settings.routes for one in find_candidates(settings, route.pattern)]
    if settings.model:
        routed += find_candidates(settings, settings.model)
    named = {(one.upstream.name, one.model): one for one in routed if not set("*?[") & set(one.model)}
    names = {upstream for upstream, _ in named}
    lists = await UpstreamModels().lists(settings)
    for name, upstream in settings.upstreams.items():
        for model in () if name in names else lists[name].models[:MAX_CHECKED] or ("",):
            named[name, model] = Candidate(upstream, model, settings.healing, context=upstream.context)
    return [*named.values()]


async def _check(candidate: Candidate, servers: UpstreamFacts) -> CheckedModel:
    upstream = candidate.upstream
    if not has_facts(upstream):
        return CheckedModel(
            upstream=upstream, model=candidate.model, facts=ServerFacts(model=candidate.model), advice=[*_key(upstream)]
        )
    facts = await servers.of(candidate, "", SECONDS)
    return CheckedModel(upstream=upstream, model=candidate.model, facts=facts, advice=[*_advice(candidate, facts)])


def _advice(candidate: Candidate, facts: ServerFacts) -> list[Advice]:
    upstream = candidate.upstream
    if facts.failure:
        return [Advice(what=f"The server cannot be asked: {facts.failure}.", cure=_reach(upstream, facts.failure))]
    if not candidate.model:
        return [Advice(what="The server lists no models.", cure="Name one with --model.", is_problem=False)]
    sets_window = bool(find_facts(wire_of(upstream)).window_path)
    address = address_of(upstream, "").url.rstrip("/").removesuffix("/v1")
    advice = advice_for(
        facts, upstream.name, address, sets_window=sets_window, context=candidate.context,
        needs_tools=candidate.calls == NATIVE,
    )  # fmt: skip
    return [*advice]


def _reach(upstream: Upstream, failure: str) -> str:
    if "key" in failure:
        names = " or ".join(find_provider(upstream.provider)[1].keys)
        return f'Set its key: {names}, or key = "env:NAME" in gateway.toml.'
    return "Start it, or correct its URL."


def _key(upstream: Upstream) -> list[Advice]:
    """What is known about a provider on the Internet: whether there is a key for it."""
    note = Advice(what="A provider on the Internet: it is not asked for facts.", is_problem=False)
    if upstream.key == CLIENT_KEY or upstream.via is not None:
        return [note]
    try:
        if upstream.key:
            address_of(upstream, "")
        else:
            find_key(*find_provider(upstream.provider))
    except MissingKeyError as error:
        names = " or ".join(error.variables)
        what = (
            f"The gateway has no key for {upstream.name}{'; a client must send its own' if not upstream.key else ''}."
        )
        return [note, Advice(what=what, cure=f"Set {names} where the gateway runs.")]
    return [note]

"""The context windows of the models that a gateway lists: from the lists of the upstreams, else from their facts."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from penstock.gateway.asking import wire_of
from penstock.gateway.context import GatewayContext
from penstock.gateway.routing import Candidate, find_candidates
from penstock.gateway.servers.fitting import known_window
from penstock.gateway.upstream_models import ModelList
from penstock.servers.facts import ServerFacts

LIST_SECONDS = 1.0
"""How long a list of models waits for facts."""
MAX_ASKED = 32
"""For how many models of a list the facts are read, beside those whose list has them."""


async def model_windows(
    context: GatewayContext, names: Sequence[str], lists: Mapping[str, ModelList], client_key: str
) -> dict[str, int | None]:
    """The windows of models by their names in this gateway; None if they are unknown."""
    settings = context.source.current
    first = {name: find_candidates(settings, name)[0] for name in names}
    windows = {name: _listed(candidate, lists) for name, candidate in first.items()}
    by_upstream: dict[str, list[str]] = {}
    for name in [name for name, window in windows.items() if window is None][:MAX_ASKED]:
        by_upstream.setdefault(first[name].upstream.name, []).append(name)

    async def find(name: str) -> ServerFacts:
        known = await context.facts.of(first[name], client_key, LIST_SECONDS)
        windows[name] = known.window
        return known

    async def find_all(asked: list[str]) -> None:
        known = await find(asked[0])
        if known.server:  # any other server has no more to tell than its list
            await asyncio.gather(*map(find, asked[1:]))

    await asyncio.gather(*map(find_all, by_upstream.values()))
    return {name: window or first[name].context or None for name, window in windows.items()}


def _listed(candidate: Candidate, lists: Mapping[str, ModelList]) -> int | None:
    """The window that the list of an upstream has, within the configured one."""
    upstream = candidate.upstream
    listed = lists.get(upstream.name)
    window = None if listed is None else listed.windows.get(candidate.model)
    return None if window is None else known_window(candidate, wire_of(upstream), ServerFacts(window=window))

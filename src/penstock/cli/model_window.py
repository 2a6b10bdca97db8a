"""The context window of a model behind a gateway, for the settings of clients: read from its server, or the gateway."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.gateway.config.settings import GatewaySettings
    from penstock.servers.facts import ServerFacts

SECONDS = 3.0
"""How long the server may take to report its window."""


def facts_behind(settings: GatewaySettings, model: str) -> ServerFacts:
    """The facts of the server that answers requests for a model."""
    from penstock.gateway.facts import UpstreamFacts
    from penstock.gateway.routing import find_candidates

    return asyncio.run(UpstreamFacts().of(find_candidates(settings, model)[0], "", SECONDS))


def facts_of_gateway(url: str, key: str, model: str) -> ServerFacts:
    """The facts of a model, as a running gateway lists it."""
    from penstock.servers.asking import ServerAddress, server_facts

    address = ServerAddress(f"{url}/v1", {"authorization": f"Bearer {key}"})
    return asyncio.run(server_facts(address, model, SECONDS))

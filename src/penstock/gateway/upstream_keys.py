"""Keys of upstreams: which key a request gets, and which upstreams get no key of clients."""

from __future__ import annotations

import json
import os
import re

from penstock.errors import MissingKeyError
from penstock.gateway.config.settings import CLIENT_KEY, ENVIRONMENT, PROVIDER_KEY, GatewaySettings, Upstream
from penstock.providers import find_provider

_BARE = re.compile("[A-Za-z0-9_-]+")  # the names that TOML takes without quotes


def upstream_key(upstream: Upstream, client_key: str) -> str | None:
    """The key for an upstream; None leaves it to the environment variables of the provider."""
    if upstream.key == CLIENT_KEY:
        return client_key
    if upstream.key == PROVIDER_KEY:
        return None
    if upstream.key:
        name = upstream.key.removeprefix(ENVIRONMENT)
        if not (key := os.environ.get(name, "")):
            raise MissingKeyError(upstream.name, (name,))
        return key
    return None if has_variable(upstream) or not client_key else client_key


def has_variable(upstream: Upstream) -> bool:
    """Whether a variable of the provider has a key for an upstream."""
    return any(os.environ.get(name, "").strip() for name in find_provider(upstream.provider)[1].keys)


def uses_client_key(upstream: Upstream, client_key: str) -> bool:
    """Whether the upstream gets the client's key, so that key errors are the client's."""
    if not client_key or upstream.key not in ("", CLIENT_KEY):
        return False
    return upstream_key(upstream, client_key) == client_key


def withheld_note(settings: GatewaySettings, name: str) -> str:
    """Why an upstream of several gets no key, with the line to add; empty if it gets one."""
    upstream = settings.upstreams[name]
    if name not in settings.withheld or upstream.via is not None or has_variable(upstream):
        return ""
    table = name if _BARE.fullmatch(name) else json.dumps(name)
    return (
        f'{name} gets no key of clients, because there are several upstreams: add key = "client" to '
        f'[upstreams.{table}] to pass it on, or key = "provider" to keep it so'
    )

"""The models that upstreams have: asked for when a client asks, and kept for a moment."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from penstock.errors import PenstockError
from penstock.gateway.settings import GatewaySettings, Upstream
from penstock.providers import complete_url, find_base_url, find_provider, join_url

KEPT_SECONDS = 30.0
WAIT_SECONDS = 3.0
MAX_LIST = 4 * 1024 * 1024
"""How many bytes of a list of models are read."""


class UpstreamModels:
    """The names of the models of all upstreams that need no key to say them."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[float, list[str]]] = {}

    async def names(self, settings: GatewaySettings) -> list[str]:
        """The models of the first upstream by their names, those of others as `upstream/model`."""
        lists = await asyncio.gather(*(self._of(upstream) for upstream in settings.upstreams.values()))
        names: list[str] = []
        for number, (upstream, models) in enumerate(zip(settings.upstreams, lists, strict=True)):
            names += models if not number else [f"{upstream}/{model}" for model in models]
        return names

    async def _of(self, upstream: Upstream) -> list[str]:
        provider = find_provider(upstream.provider)[1]
        if provider.needs_key or upstream.via is not None:
            return []
        until, models = self._kept.get(upstream.name, (0.0, []))
        if time.monotonic() < until:
            return models
        try:
            url = complete_url(provider, upstream.url) if upstream.url else find_base_url(upstream.name, provider)
            async with asyncio.timeout(WAIT_SECONDS):
                models = _read(await _get(join_url(url, "/models")))
        except (PenstockError, OSError, TimeoutError, ValueError):
            models = []
        self._kept[upstream.name] = time.monotonic() + KEPT_SECONDS, models
        return models


async def _get(url: str) -> bytes:
    import aiohttp

    try:
        async with aiohttp.ClientSession() as session, session.get(url, allow_redirects=False) as response:
            data = await response.content.read(MAX_LIST)
            return data if response.status == 200 else b"{}"
    except aiohttp.ClientError as error:
        raise OSError(str(error)) from None


def _read(data: bytes) -> list[str]:
    import msgspec

    value: Any = msgspec.json.decode(data)
    rows = value.get("data") if isinstance(value, dict) else None
    ids = [row.get("id") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    return [id for id in ids if isinstance(id, str)]

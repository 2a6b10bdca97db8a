"""The models that upstreams have: asked for when a client asks, and kept for a moment."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from penstock.errors import PenstockError
from penstock.gateway.settings import GatewaySettings, Upstream
from penstock.providers import complete_url, find_base_url, find_provider, join_url

if TYPE_CHECKING:
    import aiohttp

logger = logging.getLogger("penstock.gateway")

KEPT_SECONDS = 30.0
FAILURE_SECONDS = 3.0
"""How long a failure is kept: whoever starts a server looks for its models at once."""
WAIT_SECONDS = 3.0
MAX_LIST = 4 * 1024 * 1024
"""How many bytes of a list of models are read."""
_NO_LIST = (404, 405, 501)  # of a server that has no list of models


class ModelList(Struct, frozen=True):
    """The models of an upstream, until a time; `failure` says why they are not known."""

    until: float
    models: tuple[str, ...] = ()
    failure: str = ""


class UpstreamModels:
    """The names of the models of all upstreams that need no key to say them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._kept: dict[str, ModelList] = {}

    async def lists(self, settings: GatewaySettings) -> dict[str, ModelList]:
        """The models by the names of the upstreams. One that does not answer is logged, and has a failure."""
        upstreams = settings.upstreams.values()
        found = await asyncio.gather(*(self._of(upstream) for upstream in upstreams))
        return {upstream.name: models for upstream, models in zip(upstreams, found, strict=True)}

    async def _of(self, upstream: Upstream) -> ModelList:
        provider = find_provider(upstream.provider)[1]
        if provider.needs_key or upstream.via is not None:
            return ModelList(0.0)
        kept = self._kept.get(upstream.name)
        if kept is not None and self.clock() < kept.until:
            return kept
        try:
            url = complete_url(provider, upstream.url) if upstream.url else find_base_url(upstream.name, provider)
            async with asyncio.timeout(WAIT_SECONDS):
                models = _read(await _get(join_url(url, "/models")))
            kept = ModelList(self.clock() + KEPT_SECONDS, models)
        except (PenstockError, OSError, TimeoutError, ValueError) as error:
            failure = str(error) or f"no answer within {WAIT_SECONDS:g} seconds"
            logger.warning("the models of %s cannot be listed: %s", upstream.name, failure)
            kept = ModelList(self.clock() + FAILURE_SECONDS, failure=failure)
        self._kept[upstream.name] = kept
        return kept


def listed_names(lists: Mapping[str, ModelList]) -> list[str]:
    """The models of the first upstream by their names, those of others as `upstream/model`."""
    names: list[str] = []
    for number, (upstream, found) in enumerate(lists.items()):
        names += found.models if not number else [f"{upstream}/{model}" for model in found.models]
    return names


async def _get(url: str) -> bytes:
    import aiohttp

    try:
        async with aiohttp.ClientSession() as session, session.get(url, allow_redirects=False) as response:
            if response.status == 200:
                return await _whole(response.content)
            if response.status in _NO_LIST:
                return b'{"data": []}'
            raise OSError(f"it answered with the status {response.status}")
    except aiohttp.ClientError as error:
        raise OSError(str(error)) from None


async def _whole(content: aiohttp.StreamReader) -> bytes:
    """All of a body, which may come in pieces."""
    data = b""
    async for piece in content.iter_any():
        data += piece
        if len(data) > MAX_LIST:
            raise ValueError(f"its list is larger than {MAX_LIST} bytes")
    return data


def _read(data: bytes) -> tuple[str, ...]:
    value: Any = msgspec.json.decode(data)
    rows = value.get("data") if isinstance(value, dict) else None
    if not isinstance(rows, list):
        raise ValueError("it sent no list of models")
    ids = [row.get("id") for row in rows if isinstance(row, dict)]
    return tuple(id for id in ids if isinstance(id, str))

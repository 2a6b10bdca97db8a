"""The models of upstreams: listed on demand, and cached briefly."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from penstock.asgi.access import key_digest
from penstock.errors import PenstockError
from penstock.gateway.asking import wire_of
from penstock.gateway.config.settings import GatewaySettings, Upstream
from penstock.gateway.facts import address_of
from penstock.jsontext.shown_text import one_line
from penstock.loggers import get_logger
from penstock.providers import find_provider, join_url
from penstock.servers.asking import whole_body
from penstock.servers.reading import listed_window
from penstock.transport.http.failures import client_words
from penstock.wires import find_facts

if TYPE_CHECKING:
    pass

logger = get_logger("penstock.gateway")

KEPT_SECONDS = 30.0
FAILURE_SECONDS = 3.0
"""How long a failure is cached: short, because a server may just be starting."""
WAIT_SECONDS = 3.0
MAX_LIST = 4 * 1024 * 1024
"""How many bytes of a list of models are read."""
MAX_LISTS = 100
"""How many lists are kept: one per upstream and key."""
_NO_LIST = (404, 405, 501)  # the statuses of a server without a list of models


class ModelList(Struct, frozen=True):
    """The models of an upstream, valid until a time; `failure` says why they are unknown.

    `windows` has the context windows that the list itself names.
    """

    until: float
    models: tuple[str, ...] = ()
    failure: str = ""
    windows: Mapping[str, int] = {}


class UpstreamModels:
    """The model names of all upstreams whose provider needs no key; a server may need one nevertheless."""

    def __init__(self) -> None:
        self.clock = time.monotonic
        self._kept: OrderedDict[tuple[str, str, str], ModelList] = OrderedDict()  # by upstream, URL and client key

    async def lists(self, settings: GatewaySettings, client_key: str = "") -> dict[str, ModelList]:
        """The models by upstream. An upstream without an answer is logged, and has a failure."""
        upstreams = settings.upstreams.values()
        lists = await asyncio.gather(*(self._of(upstream, client_key) for upstream in upstreams))
        return {upstream.name: models for upstream, models in zip(upstreams, lists, strict=True)}

    async def _of(self, upstream: Upstream, client_key: str) -> ModelList:
        if find_provider(upstream.provider)[1].needs_key or upstream.via is not None:
            return ModelList(0.0)
        place = upstream.name, upstream.url, key_digest(client_key)
        models = self._kept.pop(place, None)
        if models is None or self.clock() >= models.until:
            models = await self._request(upstream, client_key)
        self._kept[place] = models
        while len(self._kept) > MAX_LISTS:
            self._kept.popitem(last=False)
        return models

    async def _request(self, upstream: Upstream, client_key: str) -> ModelList:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                address = address_of(upstream, client_key)
                url = join_url(address.url, _path(upstream))
                models, windows = _read(await _get(upstream.name, url, address.headers))
        except (PenstockError, OSError, TimeoutError, ValueError) as error:
            failure = str(error) or f"no answer within {WAIT_SECONDS:g} seconds"
            logger.warning("the models of %s cannot be listed: %s", upstream.name, one_line(failure))
            return ModelList(self.clock() + FAILURE_SECONDS, failure=failure)
        return ModelList(self.clock() + KEPT_SECONDS, models, windows=windows)


def _path(upstream: Upstream) -> str:
    """The path of the list below the base URL."""
    paths = find_facts(wire_of(upstream)).passed_paths
    return f"{paths.root if paths is not None else ''}/models"


def listed_names(lists: Mapping[str, ModelList]) -> list[str]:
    """The models of the first upstream by name, the models of others as `upstream/model`."""
    names: list[str] = []
    for number, (upstream, listed) in enumerate(lists.items()):
        names += listed.models if not number else [f"{upstream}/{model}" for model in listed.models]
    return names


async def _get(name: str, url: str, headers: Mapping[str, str]) -> bytes:
    import aiohttp

    try:
        async with (
            aiohttp.ClientSession() as session,
            session.get(url, headers=headers, allow_redirects=False) as response,
        ):
            if response.status == 200:
                return await whole_body(response.content, MAX_LIST, "list")
            if response.status in _NO_LIST:
                return b'{"data": []}'
            raise OSError(f"it answered with the status {response.status}")
    except aiohttp.ClientError as error:
        raise OSError(client_words(error, url, name)) from None


def _read(data: bytes) -> tuple[tuple[str, ...], dict[str, int]]:
    """The ids of the models, and the windows of those that have one."""
    value: Any = msgspec.json.decode(data)
    rows = value.get("data") if isinstance(value, dict) else None
    if not isinstance(rows, list):
        raise ValueError("it sent no list of models")
    named = {row["id"]: row for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str)}
    windows = {id: window for id, row in named.items() if (window := listed_window(row))}
    return tuple(named), windows

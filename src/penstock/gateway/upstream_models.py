"""The models of upstreams: listed on demand, and cached briefly."""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping

from msgspec import Struct

from penstock.asgi.access import key_digest
from penstock.errors import PenstockError
from penstock.gateway.config.settings import GatewaySettings, Upstream
from penstock.gateway.facts import address_of
from penstock.jsontext.shown_text import one_line
from penstock.loggers import get_logger
from penstock.providers import find_provider
from penstock.servers.asking import ask_server
from penstock.servers.reading import ModelRows, list_models

logger = get_logger("penstock.gateway")

KEPT_SECONDS = 30.0
FAILURE_SECONDS = 3.0
"""How long a failure is cached: short, because a server may just be starting."""
WAIT_SECONDS = 3.0
MAX_LISTS = 100
"""How many lists are kept: one per upstream and key."""


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
                models = await ask_server(address_of(upstream, client_key), list_models())
        except PenstockError as error:
            models = ModelRows(failure=str(error))
        except TimeoutError:
            models = ModelRows(failure=f"no answer within {WAIT_SECONDS:g} seconds")
        if models.failure:
            logger.warning("the models of %s cannot be listed: %s", upstream.name, one_line(models.failure))
            return ModelList(self.clock() + FAILURE_SECONDS, failure=models.failure)
        windows = {id: window for id, window in models.windows.items() if window}
        return ModelList(self.clock() + KEPT_SECONDS, (*models.windows,), windows=windows)


def listed_names(lists: Mapping[str, ModelList]) -> list[str]:
    """The models of the first upstream by name, the models of others as `upstream/model`."""
    names: list[str] = []
    for number, (upstream, listed) in enumerate(lists.items()):
        names += listed.models if not number else [f"{upstream}/{model}" for model in listed.models]
    return names

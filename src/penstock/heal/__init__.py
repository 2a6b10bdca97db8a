"""Healing under other people's SDKs: transports of httpx2 and httpx, and a middleware of aiohttp."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal

from penstock.heal.exchange import Healer
from penstock.heal.response import HealReport, OnHealed
from penstock.healing.settings import Healing

if TYPE_CHECKING:
    from penstock.heal.sdk_clients import Attached

__all__ = ["AsyncClient", "Client", "HealReport", "aiohttp_middleware", "attach", "transport"]

Library = Literal["httpx2", "httpx"]


def Client(  # noqa: N802  # it is used as the class of the library
    *, library: Library = "httpx2", healing: Healing | None = None, on_healed: OnHealed | None = None, **options: Any
) -> Any:
    """A client of httpx2 or httpx that heals; `options` are those of the library's own client."""
    return _client("Client", library, Healer(healing, on_healed), options)


def AsyncClient(  # noqa: N802
    *, library: Library = "httpx2", healing: Healing | None = None, on_healed: OnHealed | None = None, **options: Any
) -> Any:
    """An async client of httpx2 or httpx that heals; `options` are those of the library's own client."""
    return _client("AsyncClient", library, Healer(healing, on_healed), options)


def _client(kind: str, library: Library, healer: Healer, options: dict[str, Any]) -> Any:
    from penstock.heal.httpx_transport import attach_client

    client = getattr(import_module(library), kind)(**options)
    attach_client(client, healer)
    return client


def transport(inner: Any, *, healing: Healing | None = None, on_healed: OnHealed | None = None) -> Any:
    """A transport that heals the responses of another one, of httpx2 or httpx, sync or async."""
    from penstock.heal.httpx_transport import transport as healing_transport

    return healing_transport(inner, Healer(healing, on_healed))


def aiohttp_middleware(*, healing: Healing | None = None, on_healed: OnHealed | None = None) -> Any:
    """A middleware for `aiohttp.ClientSession(middlewares=…)` that heals responses."""
    from penstock.heal.aiohttp_reader import middleware

    return middleware(Healer(healing, on_healed))


def attach(client: Attached, *, healing: Healing | None = None, on_healed: OnHealed | None = None) -> Attached:
    """Let an existing client heal: an SDK's, or a model of a framework. Returns the same object.

    It takes the sync and async clients of openai, anthropic, google-genai, ollama and mistralai, clients of httpx2 and
    httpx, sessions of aiohttp, the models of LangChain, pydantic-ai and openai-agents, and the module litellm.
    """
    from penstock.heal.sdk_clients import attach as attach_to

    return attach_to(client, Healer(healing, on_healed))

"""Lets existing clients heal: finds the HTTP clients inside the objects of SDKs and frameworks.

The table says where they are. `docs/couplings.md` lists the private names.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any, TypeVar

from penstock.errors import UsageError, type_name
from penstock.heal.exchange import Healer
from penstock.heal.httpx_transport import attach_client, library_of

Attached = TypeVar("Attached")

INSIDE = (
    "_client",  # openai, anthropic, ollama, and the models of openai-agents and LangChain
    "_async_client",  # LangChain
    "root_client",  # LangChain
    "root_async_client",  # LangChain
    "client",  # pydantic-ai
    "_api_client",  # google-genai
    "_httpx_client",  # google-genai
    "_async_httpx_client",  # google-genai
    "sdk_configuration",  # mistralai
    "async_client",  # mistralai
    "wrapped",  # models of pydantic-ai around others
)
"""The attributes in which an object has its HTTP clients, or an object that has them."""
DEPTH = 5
"""How deep the clients are in an object."""


def attach(client: Attached, healer: Healer) -> Attached:
    """Let a client heal."""
    if isinstance(client, ModuleType) and hasattr(client, "client_session"):
        _attach_to_module(client, healer)
        return client
    found = [*_clients(client, set(), DEPTH)]
    if not found:
        raise UsageError(
            f"cannot attach to {type_name(client)}: it has no HTTP client; pass one of penstock.heal to it"
        )
    for one in found:
        if library_of(one, "Client", "AsyncClient") is not None:
            attach_client(one, healer)
        else:
            _attach_to_session(one, healer)
    return client


def _clients(value: Any, seen: set[int], depth: int) -> Iterator[Any]:
    """The HTTP clients inside a value."""
    if value is None or id(value) in seen or not depth:
        return
    seen.add(id(value))
    if library_of(value, "Client", "AsyncClient") is not None or _is_session(value):
        yield value
        return
    for name in INSIDE:
        yield from _clients(getattr(value, name, None), seen, depth - 1)
    if isinstance(arguments := getattr(value, "_async_client_session_request_args", None), dict):  # google-genai
        yield _RequestArguments(arguments)


class _RequestArguments:
    """The arguments with which google-genai makes each request of a session of aiohttp."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self._arguments = arguments

    @property
    def middlewares(self) -> tuple[Any, ...]:
        return tuple(self._arguments.get("middlewares") or ())

    @middlewares.setter
    def middlewares(self, middlewares: tuple[Any, ...]) -> None:
        self._arguments["middlewares"] = middlewares


def _is_session(value: Any) -> bool:
    import sys

    aiohttp = sys.modules.get("aiohttp")
    return aiohttp is not None and isinstance(value, aiohttp.ClientSession)


def _attach_to_session(session: Any, healer: Healer) -> None:
    from penstock.heal.aiohttp_reader import middleware

    if isinstance(session, _RequestArguments):
        session.middlewares = (*session.middlewares, middleware(healer))
    else:
        session._middlewares = (*session._middlewares, middleware(healer))


def _attach_to_module(module: Any, healer: Healer) -> None:
    """litellm: the clients of all its requests."""
    import httpx

    for name, kind in (("client_session", httpx.Client), ("aclient_session", httpx.AsyncClient)):
        if getattr(module, name) is None:
            setattr(module, name, kind(timeout=None))
        attach_client(getattr(module, name), healer)

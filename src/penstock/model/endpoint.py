"""The endpoint of a model: its provider's base URL, API key and headers."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b
from typing import Any

from msgspec import Struct

from penstock.errors import MissingKeyError, UsageError
from penstock.providers import Provider, find_base_url, find_key, join_url
from penstock.redaction import without_secrets
from penstock.transport.commands import Credentials, HTTPRequest
from penstock.transport.shared_limits import KeyLimit

_SALT = os.urandom(16)
"""Makes digests of keys useless outside of this process."""

_AUTH_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
"""Headers that authenticate a request without a key."""


APIKey = str | Callable[[], str | Awaitable[str]]
"""An API key, or a function that returns it, for keys that expire; it may be async."""


class Endpoint(Struct, frozen=True, kw_only=True):
    """A provider's address and credentials.

    An empty `url` and a missing `api_key` are looked up in the environment when a request is made. A played endpoint (a
    script or a recording) needs neither.
    """

    name: str
    provider: Provider
    url: str
    api_key: APIKey | None
    headers: Mapping[str, str]
    is_played: bool

    @property
    def base_url(self) -> str:
        """The base URL; raises a `UsageError` if none is set."""
        return self.url or find_base_url(self.name, self.provider)

    def find_key(self) -> str:
        """The API key; empty if the provider needs none, or if a function returns it."""
        if callable(self.api_key):
            return ""
        if self.api_key is None and not self.is_played:
            key = find_key(self.name, self.provider)
        else:
            key = (self.api_key or "").strip()
            if not key and self._needs_key:
                raise MissingKeyError(self.name, self.provider.keys)
        return self._checked(key)

    def _checked(self, key: str) -> str:
        if not (key.isascii() and key.isprintable()):
            raise UsageError(
                f"the API key for {self.name} has characters that keys cannot have; check that it was copied whole"
            )
        return key

    @property
    def _needs_key(self) -> bool:
        is_authenticated = any(name.lower() in _AUTH_HEADERS for name in self.headers)
        return self.provider.needs_key and not self.is_played and not is_authenticated

    def http_request(self, path: str, content: tuple[bytes, ...], key: str) -> HTTPRequest:
        """A request to a path below the base URL, authenticated with the key."""
        url = join_url(self.base_url, path)
        headers = {"content-type": "application/json", "accept-encoding": "identity", **self.provider.headers}
        if key:
            headers |= self._credentials(key)
        return HTTPRequest(url, headers | {name.lower(): value for name, value in self.headers.items()}, content)

    def limit(self, request: HTTPRequest, model: str) -> KeyLimit | None:
        """The rate limit that requests to this model with this key share; None for a script or a recording."""
        if self.is_played:
            return None
        secrets = [request.headers[name] for name in _AUTH_HEADERS if name in request.headers]
        owner = f"{id(self.api_key)}" if callable(self.api_key) else ""
        identity = "\n".join([self.base_url, model, owner, *secrets])
        return KeyLimit(blake2b(identity.encode(), key=_SALT).digest())

    def credentials(self, request: HTTPRequest, key: str) -> Credentials | None:
        """The credentials that are made when the request is sent; None if its headers authenticate it."""
        if self.is_played:
            return None
        if callable(self.api_key):
            return Credentials(self.api_key, self._called_key)
        if self.provider.auth == "aws" and not key:
            from penstock.transport.aws_signature import signature

            return Credentials(lambda: signature(request.url, request.body), dict)
        return None

    def _called_key(self, key: Any) -> dict[str, str]:
        """The headers for the key that the caller's function returned."""
        if not isinstance(key, str):
            raise UsageError(f"the function api_key must return a string, not {type(key).__name__}")
        if not key.strip() and self._needs_key:
            raise MissingKeyError(self.name, self.provider.keys)
        return self._credentials(self._checked(key.strip())) if key.strip() else {}

    def _credentials(self, key: str) -> dict[str, str]:
        match self.provider.auth:
            case "bearer" | "aws":
                return {"authorization": f"Bearer {key}"}
            case header:
                return {header: key}

    def __repr__(self) -> str:
        return f"Endpoint({self.name!r}, {without_secrets(self.url)!r})"

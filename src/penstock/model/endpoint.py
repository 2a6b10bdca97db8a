"""Where a model is reached: its provider's base URL, API key and headers."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from penstock.errors import MissingKeyError, UsageError
from penstock.providers import Provider, find_base_url, find_key, join_url
from penstock.redaction import without_secrets
from penstock.transport.commands import HTTPRequest

_AUTH_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key")
"""Headers that authenticate a request without a key."""


class Endpoint(Struct, frozen=True, kw_only=True):
    """A provider's address and credentials.

    An empty `url` and a missing `api_key` are looked up in the environment when a request is made. A played endpoint (a
    script or a recording) needs neither.
    """

    name: str
    provider: Provider
    url: str
    api_key: str | None
    headers: Mapping[str, str]
    is_played: bool

    @property
    def base_url(self) -> str:
        """The base URL; raises a `UsageError` if none is set."""
        return self.url or find_base_url(self.name, self.provider)

    def find_key(self) -> str:
        """The API key; empty if the provider needs none."""
        if self.api_key is None and not self.is_played:
            key = find_key(self.name, self.provider)
        else:
            key = (self.api_key or "").strip()
            if not key and self._needs_key:
                raise MissingKeyError(self.name, self.provider.keys)
        if not (key.isascii() and key.isprintable()):
            raise UsageError(
                f"the API key for {self.name} has characters that keys cannot have; check that it was copied whole"
            )
        return key

    @property
    def _needs_key(self) -> bool:
        is_authenticated = any(name.lower() in _AUTH_HEADERS for name in self.headers)
        return self.provider.needs_key and not self.is_played and not is_authenticated

    def http_request(self, path: str, body: bytes, key: str) -> HTTPRequest:
        """A request to a path below the base URL, authenticated with the key."""
        url = join_url(self.base_url, path)
        headers = {"content-type": "application/json", "accept-encoding": "identity", **self.provider.headers}
        if self.provider.auth == "aws" and not key and not self.is_played:
            from penstock.transport.aws_signature import signature

            headers |= signature(url, body)
        elif key:
            headers |= self._credentials(key)
        return HTTPRequest(url, headers | {name.lower(): value for name, value in self.headers.items()}, body)

    def _credentials(self, key: str) -> dict[str, str]:
        match self.provider.auth:
            case "bearer" | "aws":
                return {"authorization": f"Bearer {key}"}
            case header:
                return {header: key}

    def __repr__(self) -> str:
        return f"Endpoint({self.name!r}, {without_secrets(self.url)!r})"

"""Redaction: which fields hold secrets, and how secrets are kept out of errors, reprs and recordings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any
from urllib.parse import parse_qsl, urlsplit

MIN_SECRET = 8
"""Shorter values are not masked: people write "none" or "test" where a key is required."""
_NAMES = re.compile(r"auth|cookie|token|key|secret|signature|credential|password", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether a header or a query parameter of this name holds a secret."""
    return _NAMES.search(name) is not None


def without_secrets(url: str) -> str:
    """A URL without its password and without query parameters that hold secrets."""
    address, question, query = re.sub(r"//[^/@]*@", "//***@", url).partition("?")
    kept = [pair for pair in query.split("&") if not is_secret(pair.partition("=")[0])]
    return address + (question if kept else "") + "&".join(kept)


class Mask:
    """Masks the secrets of a request in other data."""

    def __init__(self, headers: Mapping[str, str], url: str = "") -> None:
        query = parse_qsl(urlsplit(url).query)
        values = [value for name, value in (*headers.items(), *query) if is_secret(name)]
        bare = [value.split()[-1] for value in values if value.split()]  # without "Bearer"
        self._secrets = [secret.encode() for secret in {*values, *bare} if len(secret) >= MIN_SECRET]
        self._secrets.sort(key=len, reverse=True)

    def data(self, data: bytes, *, keeps_length: bool = False) -> bytes:
        """The bytes with each secret replaced by three stars, or by as many as it has bytes."""
        for secret in self._secrets:
            data = data.replace(secret, b"*" * (len(secret) if keeps_length else 3))
        return data

    def value(self, value: Any) -> Any:
        """A JSON value with the secrets masked."""
        match value:
            case str():
                return self.data(value.encode()).decode()
            case list():
                return [self.value(item) for item in value]
            case dict():
                return {key: self.value(item) for key, item in value.items()}
        return value

    def pieces(self, pieces: Sequence[bytes]) -> Iterator[bytes]:
        """The pieces of one text with the secrets masked, also where one was split in two."""
        sizes = [len(piece) for piece in pieces]
        body = self.data(b"".join(pieces), keeps_length=True)
        return (body[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True))

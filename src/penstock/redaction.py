"""What nobody is to be told: which fields hold secrets, and how these are kept out of errors, reprs and recordings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any
from urllib.parse import parse_qsl, urlsplit

MIN_SECRET = 8
"""What is shorter is no key: people write "none" or "test" where one is asked for, and such words may be told."""
_NAMES = re.compile(r"auth|cookie|token|key|secret|signature|credential|password", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether a header, or a field of a query, holds what nobody is to be told, by its name."""
    return _NAMES.search(name) is not None


def without_secrets(url: str) -> str:
    """A URL without the password and the keys that it may carry."""
    address, question, query = re.sub(r"//[^/@]*@", "//***@", url).partition("?")
    kept = [pair for pair in query.split("&") if not is_secret(pair.partition("=")[0])]
    return address + (question if kept else "") + "&".join(kept)


class Mask:
    """Covers the secrets of a request wherever they come back."""

    def __init__(self, headers: Mapping[str, str], url: str = "") -> None:
        query = parse_qsl(urlsplit(url).query)
        told = [value for name, value in (*headers.items(), *query) if is_secret(name)]
        bare = [value.split()[-1] for value in told if value.split()]  # also without the word before it
        self._secrets = [secret.encode() for secret in {*told, *bare} if len(secret) >= MIN_SECRET]
        self._secrets.sort(key=len, reverse=True)

    def data(self, data: bytes, *, is_as_long: bool = False) -> bytes:
        """These bytes without the secrets, each of them three stars, or as many as it is long."""
        for secret in self._secrets:
            data = data.replace(secret, b"*" * (len(secret) if is_as_long else 3))
        return data

    def value(self, value: Any) -> Any:
        """A JSON value without the secrets."""
        match value:
            case str():
                return self.data(value.encode()).decode()
            case list():
                return [self.value(item) for item in value]
            case dict():
                return {key: self.value(item) for key, item in value.items()}
        return value

    def pieces(self, pieces: Sequence[bytes]) -> Iterator[bytes]:
        """Pieces of one text without the secrets, also where one was cut in two."""
        sizes = [len(piece) for piece in pieces]
        body = self.data(b"".join(pieces), is_as_long=True)
        return (body[end - size : end] for size, end in zip(sizes, accumulate(sizes), strict=True))

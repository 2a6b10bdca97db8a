"""Parses upstreams of the command line: a URL, `NAME=URL`, or the name of a provider."""

from __future__ import annotations

import re
from difflib import get_close_matches
from urllib.parse import urlsplit

from penstock.errors import UsageError
from penstock.gateway.config.settings import Upstream
from penstock.providers import ALIASES, ANY_SERVER, PROVIDERS, TEMPLATE_SERVER, complete_url, find_provider

_WORD = re.compile(r"[\w-]+")
"""A word without scheme, port, path or dot: as a host, it would get a default port that nobody chose."""


def read_upstream(text: str) -> Upstream:
    """The upstream of `URL`, `NAME=URL`, or the name of a provider.

    A name that is a provider's also selects its protocol and rules.
    """
    name, separator, url = text.partition("=")
    if not separator or "/" in name:
        name, url = "", text
    if not name and _is_provider(text):
        return Upstream(name=text, provider=find_provider(text)[0])
    if _WORD.fullmatch(url) and url != "localhost":
        raise UsageError(f"{url!r} is not a URL such as http://127.0.0.1:8080/v1{_suggestion(url)}")
    provider = find_provider(name)[0] if _is_provider(name) else _provider_of(url)
    complete_url(find_provider(provider)[1], url)  # raises if it is not a URL
    return Upstream(name=name or _name_of(url), provider=provider, url=url)


def _suggestion(word: str) -> str:
    """The suggestion for a probably misspelt provider name, as the end of a message."""
    close = get_close_matches(word, [*PROVIDERS, *ALIASES], 1)
    return f"; did you mean the provider {close[0]!r}?" if close else ""


def _is_provider(name: str) -> bool:
    return name in PROVIDERS or name in ALIASES


def _provider_of(url: str) -> str:
    """The provider whose rules apply to a server: a plain HTTP address is probably local."""
    return ANY_SERVER if url.startswith("https://") else TEMPLATE_SERVER


def _name_of(url: str) -> str:
    """A name for a server: its host and port."""
    netloc = urlsplit(url if "://" in url else f"//{url}").netloc
    if not netloc:
        raise UsageError(f"{url!r} is neither a URL nor the name of a provider")
    return netloc.rpartition("@")[2]

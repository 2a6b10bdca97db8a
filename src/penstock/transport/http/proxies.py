"""The proxy of a request: from `HTTPS_PROXY`, `ALL_PROXY` and so on, for sync and async code alike."""

from __future__ import annotations

import os
from functools import lru_cache
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, getproxies_environment, proxy_bypass

from penstock.errors import UsageError
from penstock.redaction import without_secrets

_SOCKS = {"socks": "socks5h", "socks5": "socks5", "socks5h": "socks5h"}
"""The schemes of SOCKS proxies, and the scheme that says who resolves names: with `socks5h`, the proxy."""
_SOCKS_PACKAGES = ("socksio", "aiohttp_socks")
_NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
_VARIABLES = (*_NAMES, *map(str.upper, _NAMES), "REQUEST_METHOD")
"""The variables that the proxy depends on; in a CGI script, `HTTP_PROXY` is a header of the request."""
_ENCODED = tuple(map(os.fsencode, _VARIABLES))


def environment_proxy(url: str) -> str | None:
    """The proxy for a URL from the environment, if any; a `UsageError` if it is not supported."""
    parts = urlsplit(url)
    if getproxies is getproxies_environment:  # else the settings of the system count too, which may change
        return _known_proxy(parts.scheme, parts.netloc, _variables())
    return _find_proxy(parts.scheme, parts.netloc)


def _variables() -> tuple[Any, ...]:
    """The undecoded values of the variables, for comparison only: decoding them takes longer than everything else."""
    encoded = getattr(os.environ, "_data", None)
    if isinstance(encoded, dict) and os.name == "posix":
        return tuple(map(encoded.get, _ENCODED))
    return tuple(map(os.environ.get, _VARIABLES))


@lru_cache(maxsize=100)  # reading all variables of the environment takes too long for each request
def _known_proxy(scheme: str, netloc: str, variables: tuple[Any, ...]) -> str | None:
    """The proxy for an origin. `variables` are only a part of the key of the cache."""
    return _find_proxy(scheme, netloc)


def _find_proxy(scheme: str, netloc: str) -> str | None:
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or proxy_bypass(netloc):
        return None
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    scheme, _, address = proxy.partition("://")
    scheme = scheme.lower()
    if not _has_host(proxy):
        raise UsageError(f"the proxy {without_secrets(proxy)} of the environment is not a URL")
    if scheme in ("http", "https"):
        return f"{scheme}://{address}"
    if scheme not in _SOCKS:
        raise UsageError(
            f"the proxy {without_secrets(proxy)} of the environment is not supported; use http, https or socks5"
        )
    if not all(find_spec(package) for package in _SOCKS_PACKAGES):
        raise UsageError(
            f"the SOCKS proxy {without_secrets(proxy)} of the environment needs two more packages: "
            "pip install 'penstock-llm[socks]'"
        )
    return f"{_SOCKS[scheme]}://{address}"


def _has_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def is_socks(proxy: str | None) -> bool:
    """Whether this is a SOCKS proxy."""
    return proxy is not None and proxy.startswith("socks")

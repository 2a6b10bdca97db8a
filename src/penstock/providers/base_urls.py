"""Base URLs: from the environment, completed, and joined with a path."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

from msgspec.structs import replace

from penstock.errors import UsageError
from penstock.providers.provider import Provider
from penstock.redaction import without_secrets


def on_wire(provider: Provider, wire: str) -> Provider:
    """The provider with the base URL that it has for a wire."""
    if not (url := provider.wire_urls.get(wire)):
        return provider
    version = _VERSION.search(url)
    return replace(provider, base_url=url, version=version[0] if version else "")


def first_set(variables: tuple[str, ...], environment: Mapping[str, str]) -> str:
    """The value of the first of these variables that has one."""
    return next((value for variable in variables if (value := environment.get(variable, "").strip())), "")


def find_base_url(name: str, provider: Provider, environment: Mapping[str, str] = os.environ) -> str:
    """The base URL of a provider: from the environment, or its own."""
    if url := first_set(provider.urls, environment):
        return complete_url(provider, url)
    if not provider.base_url:
        raise UsageError(f"{name} has no default base URL; pass Model(..., base_url=...) or set {provider.urls[0]}")
    url = _filled(name, provider.base_url, environment).rstrip("/")
    _refuse_user_info(url.partition("://")[2].partition("/")[0])
    return url


def complete_url(provider: Provider, base_url: str) -> str:
    """A base URL with the parts that people leave out: the scheme, the usual port, the version."""
    url = base_url.strip()
    try:
        parts = urlsplit(url) if "://" in url else _with_scheme(provider, urlsplit(f"//{url}"))
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and not parts.fragment
    except ValueError:
        parts, is_valid = urlsplit(""), False
    if not is_valid:
        raise UsageError(f"{without_secrets(url)!r} is not a base URL; use one such as http://localhost:8000/v1")
    _refuse_user_info(parts.netloc)
    path = parts.path.rstrip("/")
    lacks_version = not path or (provider.is_added and not _VERSION.search(path))
    return parts._replace(path=path + provider.version if lacks_version else path).geturl()


def join_url(base_url: str, path: str) -> str:
    """The URL of a path below a base URL; the parameters of both are kept, and the path has precedence."""
    address, _, query = base_url.partition("?")
    path, _, own = path.partition("?")
    names = {pair.partition("=")[0] for pair in own.split("&")}
    pairs = [own, *(pair for pair in query.split("&") if pair.partition("=")[0] not in names)]
    parameters = "&".join(filter(None, pairs))
    return address.rstrip("/") + path + ("?" if parameters else "") + parameters


def _refuse_user_info(netloc: str) -> None:
    """Raise for a URL with a user name or password: logs would show it, and HTTP clients differ in what they send."""
    if "@" in netloc:
        host = netloc.rpartition("@")[2]
        raise UsageError(
            f"the base URL of {host} contains a user name or password; pass Model(..., api_key=...) or "
            'headers={"authorization": "Basic …"} instead'
        )


_VERSION = re.compile(r"/v\d+\w*$")


def _with_scheme(provider: Provider, parts: SplitResult) -> SplitResult:
    """The URL with a scheme (http for a server that seems to be local), a host and a port."""
    usual = urlsplit(provider.base_url)
    is_local = usual.scheme == "http" or bool(parts.port) or not re.search(r"\.[a-z]", parts.hostname or "")
    host = f"localhost{parts.netloc}" if parts.port and not parts.hostname else parts.netloc
    port = f":{usual.port}" if usual.port and not parts.port else ""
    return parts._replace(scheme="http" if is_local else "https", netloc=host + port)


def _filled(name: str, template: str, environment: Mapping[str, str]) -> str:
    """The URL with the variables of the environment filled in."""
    values = {**environment, "AWS_REGION": environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION", "")}
    try:
        filled = template.format_map({key: value.rstrip("/") for key, value in values.items() if value})
    except KeyError as missing:
        raise UsageError(
            f"{name} needs a base URL: set {missing.args[0]} in the environment, or pass Model(..., base_url=...)"
        ) from None
    return filled.replace("//global-aiplatform", "//aiplatform")  # the global address of Vertex has no region

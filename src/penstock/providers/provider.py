"""A provider: what is known about it, and the quirks that many have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from msgspec import Struct

Auth = Literal["bearer", "x-api-key", "api-key", "x-goog-api-key", "aws"]


class Provider(Struct, frozen=True, kw_only=True):
    """A provider: its wire, its base URL, and how requests are authenticated.

    `base_url` may contain `{VARIABLE}`s of the environment. `other_wires` are available too, with `Model(..., wire=)`;
    `wire_urls` are their base URLs, if they have others.
    `keys` and `urls` are the environment variables for the API key and another base URL, the usual one first. `version`
    is the path for a base URL without one; where it `is_added`, it is added to other paths too, as the vendor's own
    client does. `has_native_calls`: tool calls are returned even if the server was started without a parser for them.
    `unparsed`: the fields with which a server returns the text of a model as it is, beside the tool choice `none`.
    """

    wire: str
    other_wires: tuple[str, ...] = ()
    base_url: str = ""
    wire_urls: Mapping[str, str] = {}
    keys: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    auth: Auth = "bearer"
    headers: Mapping[str, str] = {}
    quirks: frozenset[str] = frozenset()
    needs_key: bool = True
    version: str = ""
    is_added: bool = False
    has_native_calls: bool = True
    unparsed: Mapping[str, Any] | None = None
    about: str = ""


PLAIN = frozenset({"refusal-as-text", "no-custom-tools"})
COMPATIBLE = PLAIN | {"max-tokens", "format-or-tools"}
"""The quirks of nearly every provider that is compatible with Chat Completions: see `wires/openai_chat`."""
LOCAL = (COMPATIBLE - {"format-or-tools"}) | {"echo-reasoning", "system-only-first", "grammar-format"}
"""The quirks of servers that render the messages with the chat template of a model."""


def local(port: int, *urls: str, keys: tuple[str, ...], quirks: frozenset[str], **facts: Any) -> Provider:
    """A server on the user's machine that speaks Chat Completions; the key is optional."""
    url = f"http://localhost:{port}/v1"
    return Provider(
        wire="openai-chat", base_url=url, urls=urls, keys=keys, quirks=quirks, needs_key=False, version="/v1", **facts
    )  # fmt: skip

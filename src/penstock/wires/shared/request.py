"""What is asked of a model, in no provider's words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from msgspec import Struct

from penstock.declarations import ToolDeclaration
from penstock.messages import Message


class Request(Struct, frozen=True, kw_only=True):
    """One request to a model.

    `tool_choice` is "auto", "none", "required" or a tool's name; empty, it is left to the provider. `options` are the
    settings that most providers have, under the names of `OPTIONS`; `extra` is merged into the body as it stands, for
    what only one provider has.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[ToolDeclaration, ...] = ()
    tool_choice: str = ""
    is_parallel: bool | None = None
    options: Mapping[str, Any] = {}
    extra: Mapping[str, Any] = {}
    is_streaming: bool = True


OPTIONS = (
    "max_tokens", "temperature", "top_p", "top_k", "stop", "seed", "presence_penalty", "frequency_penalty", "reasoning",
)  # fmt: skip
"""The settings that each provider has a word for; `reasoning` is an effort ("low", "medium", "high") or a budget."""


class EncodedRequest(Struct, frozen=True):
    """A request in a provider's words: where it goes, below the base URL, and the JSON that it is."""

    path: str
    body: dict[str, Any]


Encode = Callable[[Request, frozenset[str]], EncodedRequest]
"""Encodes a request; the set holds the quirks of the provider that it goes to."""

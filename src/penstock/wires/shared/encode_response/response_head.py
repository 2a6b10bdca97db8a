"""What a response says about itself besides its content, and the forms in which a response leaves a server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from penstock.events import Error


class ToolPath(Struct, frozen=True):
    """The name of a tool inside a namespace of tools, as the client declared it."""

    namespace: str
    name: str


class ResponseHead(Struct, frozen=True, kw_only=True):
    """The id, model and time of a response, and what of its request decides how it is written.

    Encoders have neither a clock nor random numbers: the caller chooses `id` (letters and digits; the wire adds its
    prefix) and `created` (seconds since 1970). `has_usage` is False if a stream must not contain token counts. The
    arguments of `custom_tools` are free text; `unwrapped_tools` are custom tools that the model calls as functions with
    an argument `input`. `namespaces` maps flat tool names to the client's own. `echo` are fields of the request that
    the response repeats. With `keeps_raw_reasons`, the `raw_reason` of an end is a word of this protocol, and written.
    With `translates_errors`, the codes of errors may be those of another protocol, and are written in this one's.
    With `has_old_calls`, the client knows only the form that calls had in an older version of the protocol.
    `retry_after` is the delay, in seconds, after which a client may send a request again that ended with an error.
    """

    id: str = "0"
    model: str = ""
    created: int = 0
    has_usage: bool = True
    custom_tools: frozenset[str] = frozenset()
    unwrapped_tools: frozenset[str] = frozenset()
    namespaces: Mapping[str, ToolPath] = {}
    echo: Mapping[str, Any] = {}
    keeps_raw_reasons: bool = False
    has_old_calls: bool = False
    translates_errors: bool = False
    retry_after: float | None = None


class EncodedResponse(Struct, frozen=True):
    """A response that is not streamed: its HTTP status, its JSON body, and headers that the protocol needs.

    `error` is what the body says, if it is an error.
    """

    status: int
    body: bytes
    headers: Mapping[str, str] = {}
    error: Error | None = None

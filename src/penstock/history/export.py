"""Exports messages as the history fields of a request body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import UsageError
from penstock.history.read import Reading, read
from penstock.history.shapes import history_fields
from penstock.messages import Message
from penstock.providers import ProviderName, find_provider
from penstock.wires import WireName, find_encoder, find_facts, wire_name
from penstock.wires.shared.decode_request.fields import too_deep
from penstock.wires.shared.request import Encode, Request

HISTORY = (
    "system", "systemInstruction", "system_instruction", "instructions", "messages", "contents", "input", "container",
    "continuationToken", "continuation_token",
)  # fmt: skip
"""The history fields of request bodies, also those that refer to a history stored at the provider."""


def export_messages(
    messages: Any, wire: WireName, model: str = "", provider: ProviderName | None = None
) -> dict[str, Any]:
    """The fields of a request body that hold this history, in the form of the wire.

    The messages may be in any shape that `as_messages` reads. `model` and `provider` matter where they need a form that
    is unusual on the wire.
    """
    known = wire_name(wire)
    quirks = find_provider(provider)[1].quirks if provider else frozenset[str]()
    encode, reading = find_encoder(known), read(messages)
    request = Request(
        model=model, messages=tuple(reading.messages), is_streaming=False, extra=find_facts(known).export_extra
    )
    try:
        body = encode(request, quirks).body
    except (UsageError, RecursionError) as error:
        raise _first_refused(reading, encode, quirks) or error from None
    return {field: body[field] for field in HISTORY if field in body}


def with_history(body: Mapping[str, Any], history: dict[str, Any]) -> dict[str, Any]:
    """The body of a request with another history, which replaces all history fields of the body.

    If `body` is not a request, a single message for example, the result is the history alone.
    """
    fields = history_fields(body)
    kept = {key: body[key] for key in body if fields and (key in history or key not in fields)}
    return kept | history


def _first_refused(reading: Reading, encode: Encode, quirks: frozenset[str]) -> UsageError | None:
    """The error for the first part that cannot be encoded, with its place."""
    for message, places in zip(reading.messages, reading.places, strict=True):
        for part, place in zip(message.parts, places.parts, strict=True):
            try:
                encode(Request(model="", messages=(Message(message.role, (part,)),)), quirks)
            except UsageError as error:
                return UsageError(f"{place}: {str(error).removeprefix('messages[0]: ')}")
            except RecursionError:  # while the text of a block is extracted, for example
                return too_deep(place)
    return None

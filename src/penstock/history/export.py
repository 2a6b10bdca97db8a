"""Messages as the history of a request in a provider's words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.errors import UnknownWireError, UsageError
from penstock.history.read import Reading, read
from penstock.history.shapes import history_fields
from penstock.messages import Message
from penstock.providers import ProviderName, find_provider
from penstock.wires import ALIASES, WIRES, WireName, find_encoder
from penstock.wires.shared.fields import too_deep
from penstock.wires.shared.request import Encode, Request

HISTORY = (
    "system", "systemInstruction", "instructions", "messages", "contents", "input", "container", "continuationToken",
)  # fmt: skip
"""The fields of a body in which providers have what was said, and what they themselves keep of it."""


def export_messages(
    messages: Any, wire: WireName, model: str = "", provider: ProviderName | None = None
) -> dict[str, Any]:
    """The fields of a request body that hold this history, as the wire wants them.

    The messages may be in any shape that `as_messages` reads. `model` and `provider` matter where they take the history
    otherwise than is usual on the wire.
    """
    known = ALIASES.get(wire, wire)
    if known not in WIRES:
        raise UnknownWireError(wire, (*WIRES, *ALIASES))
    quirks = find_provider(provider)[1].quirks if provider else frozenset[str]()
    # What the provider keeps goes by its id: whether it keeps the next answer too is not for the history to say.
    extra = {"store": True} if known == "openai-responses" else {}
    encode, reading = find_encoder(known), read(messages)
    request = Request(model=model, messages=tuple(reading.messages), is_streaming=False, extra=extra)
    try:
        body = encode(request, quirks).body
    except (UsageError, RecursionError) as error:
        raise _first_refused(reading, encode, quirks) or error from None
    return {field: body[field] for field in HISTORY if field in body}


def with_history(body: Mapping[str, Any], history: dict[str, Any]) -> dict[str, Any]:
    """The body of a request with another history; nothing is left of its own, in whatever fields that was.

    Of what is no request, a message alone say, the history is all.
    """
    fields = history_fields(body)
    kept = {key: body[key] for key in body if fields and (key in history or key not in fields)}
    return kept | history


def _first_refused(reading: Reading, encode: Encode, quirks: frozenset[str]) -> UsageError | None:
    """Why the first part that cannot be written cannot, with where it stood in what was given."""
    for message, places in zip(reading.messages, reading.places, strict=True):
        for part, place in zip(message.parts, places.parts, strict=True):
            try:
                encode(Request(model="", messages=(Message(message.role, (part,)),)), quirks)
            except UsageError as error:
                return UsageError(f"{place}: {str(error).removeprefix('messages[0]: ')}")
            except RecursionError:  # a block whose words are to be told, say
                return too_deep(place)
    return None

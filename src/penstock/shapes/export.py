"""Messages as the history of a request in a provider's words."""

from __future__ import annotations

from typing import Any

from penstock.errors import UnknownWireError
from penstock.providers import find_provider
from penstock.requests import Request, find_encoder
from penstock.shapes.history import as_messages
from penstock.wires import ALIASES, WIRES

HISTORY = (
    "system", "systemInstruction", "instructions", "messages", "contents", "input", "container", "continuationToken",
)  # fmt: skip
"""The fields of a body in which providers have what was said, and what they themselves keep of it."""


def export_messages(messages: Any, wire: str, model: str = "", provider: str | None = None) -> dict[str, Any]:
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
    request = Request(model=model, messages=tuple(as_messages(messages)), is_streaming=False, extra=extra)
    body = find_encoder(known)(request, quirks).body
    return {field: body[field] for field in HISTORY if field in body}

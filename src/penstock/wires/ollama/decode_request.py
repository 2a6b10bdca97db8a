"""What Ollama's messages have that Chat Completions has not: pictures beside the text, and calls without ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.wires.shared.fields import Json, base64_text, data_url, refused

WIRE = "ollama"

_STARTS = {"iVBOR": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}
"""How the pictures of each type begin, in base64."""


def is_call(call: Json) -> bool:
    """Whether it is a call as Ollama writes it: its arguments are an object, and it may have no id."""
    function: Any = call.get("function")
    return isinstance(function, Mapping) and isinstance(function.get("arguments"), Mapping)


def is_message(message: Json) -> bool:
    """Whether a message is one that only Ollama has."""
    given: Any = message.get("tool_calls")
    calls: Any = given if isinstance(given, list) else ()
    is_unnamed = any(isinstance(call, Mapping) and not call.get("id") and is_call(call) for call in calls)
    return is_unnamed or any(isinstance(message.get(key), kind) for key, kind in _FIELDS.items())


_FIELDS: dict[str, type] = {"images": list, "thinking": str, "tool_name": str}


def images(message: Json, place: str) -> Iterator[tuple[str, Json]]:
    """The pictures of a message, as the parts that others would have; the name of a file is not read."""
    pictures: Any = message.get("images") or []
    if not isinstance(pictures, list | tuple):
        raise refused(f"{place}.images", f"is a {type(pictures).__name__}: give a list")
    for number, picture in enumerate(pictures):
        at = f"{place}.images[{number}]"
        given: Any = picture.get("value") if isinstance(picture, Mapping) else picture
        if not isinstance(given, str | bytes):
            raise refused(at, f"is a {type(given).__name__}: give base64 text or bytes")
        data = base64_text(given)
        kind = next((kind for start, kind in _STARTS.items() if data.startswith(start)), "image/png")
        yield at, {"type": "image_url", "image_url": {"url": data_url(kind, data)}}

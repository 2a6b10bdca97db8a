"""Reads what Ollama alone writes in messages: images beside the text, and calls without ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from penstock.wires.ollama.facts import FACTS
from penstock.wires.shared.decode_request.fields import Json, base64_text, data_url, unreadable
from penstock.wires.shared.decode_request.message_reader import MessageReader
from penstock.wires.shared.decode_request.request_settings import NO_PROBABILITIES, Fields, RequestSettings, read_tools
from penstock.wires.shared.request import OutputFormat

WIRE = FACTS.wire

_STARTS = {"iVBOR": "image/png", "/9j/": "image/jpeg", "R0lGOD": "image/gif", "UklGR": "image/webp"}
"""The beginnings of image data in base64, by their type."""
_FIELDS: dict[str, type] = {"images": list, "thinking": str, "tool_name": str}


def _has_object(call: Json) -> bool:
    """Whether the arguments of a call are an object, and not JSON text."""
    function: Any = call.get("function")
    return isinstance(function, Mapping) and isinstance(function.get("arguments"), Mapping)


class OllamaReader(MessageReader):
    """The images of Ollama's messages."""

    wire = WIRE

    def is_typical(self, message: Json) -> bool:
        listed: Any = message.get("tool_calls")
        calls: Any = listed if isinstance(listed, list) else ()
        has_unnumbered = any(isinstance(call, Mapping) and not call.get("id") and _has_object(call) for call in calls)
        return has_unnumbered or any(isinstance(message.get(key), kind) for key, kind in _FIELDS.items())

    def parts_beside(self, message: Json, place: str) -> Iterator[tuple[str, Json]]:
        """The images, as the parts that Chat Completions would have; file names are not opened."""
        images: Any = message.get("images") or []
        if not isinstance(images, list | tuple):
            raise unreadable(f"{place}.images", f"expected a list, got {type(images).__name__}")
        for number, image in enumerate(images):
            part_place = f"{place}.images[{number}]"
            value: Any = image.get("value") if isinstance(image, Mapping) else image
            if not isinstance(value, str | bytes):
                raise unreadable(part_place, f"expected base64 text or bytes, got {type(value).__name__}")
            data = base64_text(value)
            kind = next((kind for start, kind in _STARTS.items() if data.startswith(start)), "image/png")
            yield part_place, {"type": "image_url", "image_url": {"url": data_url(kind, data)}}


READER = OllamaReader()


# Settings.

_OPTIONS = {
    "num_predict": "max_tokens", "temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "stop": "stop",
    "seed": "seed", "presence_penalty": "presence_penalty", "frequency_penalty": "frequency_penalty",
}  # fmt: skip


def read_settings(body: Mapping[str, Any], model: str = "", is_streaming: bool | None = None) -> RequestSettings:
    """The settings of a request body."""
    fields = Fields(body)
    fields.rest.pop("messages", None)
    named = model or fields.required_text("model", "the name of a model")
    fields.rest.pop("model", None)
    tools = read_tools(fields.objects("tools"))
    inner = fields.inner("options")
    options = inner.options(_OPTIONS) | _read_reasoning(fields)
    fields.put_back("options", inner)
    stream = fields.flag("stream")
    return RequestSettings(
        model=named,
        tools=tools,
        is_streaming=(stream is not False) if is_streaming is None else is_streaming,
        options={key: value for key, value in options.items() if (key, value) != ("max_tokens", -1)},
        output=_output(fields),
        dropped=fields.leave_out("logprobs", "top_logprobs", why=NO_PROBABILITIES),
        extra=fields.rest,
        partial=frozenset(fields.partial),
    )


def _read_reasoning(fields: Fields) -> dict[str, Any]:
    match fields.rest.get("think"):
        case None:
            return {}
        case bool(is_on):
            del fields.rest["think"]
            return {"reasoning": is_on}
        case str():
            level = fields.effort("think")
            return {"reasoning": level} if level else {}
        case _:
            raise unreadable("think", "must be true, false or a level")


def _output(fields: Fields) -> OutputFormat | None:
    match fields.rest.pop("format", None):
        case None | "":
            return None
        case "json":
            return OutputFormat()
        case dict(schema):
            return OutputFormat(schema)
        case _:
            raise unreadable("format", 'must be "json" or a JSON Schema')

"""Reads fields of vendors' messages: values of the expected type, or an error that says where they are."""

from __future__ import annotations

import base64
import json
import mimetypes
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from penstock.errors import UsageError
from penstock.framing.sdk_objects import as_mapping
from penstock.jsontext.scan import MAX_DEPTH
from penstock.jsontext.surrogates import join_all_surrogates

Json = Mapping[str, Any]

ABOUT = frozenset({
    "annotations", "artifact", "cache_control", "cachePoint", "caller", "created_at", "created_by", "id", "index",
    "metadata", "model", "name", "namespace", "partialArgs", "phase", "prefix", "scheduling", "status", "timestamp",
    "toolset_name", "type", "willContinue",
})  # fmt: skip
"""Fields that are about a message, a call or a result, and hold none of its content."""

MAX_LEVELS = MAX_DEPTH + 8
"""How deep a message may be nested: as deep as the arguments of a call, which are some levels down."""

WHAT_TO_SEND = (
    "send messages with a role and a content, or a whole request body (of a response body, send the message in it)"
)


def unreadable(place: str, why: str) -> UsageError:
    """The error for something that cannot be read, and its place."""
    return UsageError(f"{place}: {why}")


def clean_value(value: Any, place: str) -> Any:
    """A value from outside, with surrogate pairs joined; raises if it is nested too deeply.

    A lone surrogate can be written as JSON but not sent (QUIRKS 50). Code that follows may recurse.
    """
    level = [value]
    for _ in range(MAX_LEVELS):
        level = [inner for outer in level for inner in _within(outer)]
        if not level:
            return join_all_surrogates(value)
    raise too_deep(place)


def _within(value: Any) -> Iterable[Any]:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list | tuple) else ()


def too_deep(place: str) -> UsageError:
    """The error for a value that is nested too deeply."""
    return unreadable(place, f"is nested too deeply; arguments may have {MAX_DEPTH} levels, other values fewer")


def read_object(value: Any, place: str) -> Json:
    """The fields of a dict, or of an SDK object."""
    fields = as_mapping(value)
    if fields is None:
        raise unreadable(place, f"expected a dict, got {type(value).__name__}")
    return fields if fields is value else clean_value(fields, place)  # type: ignore[no-any-return]


def read_objects(values: Any, place: str) -> Iterator[tuple[str, Json]]:
    """The dicts of a list, each with its place."""
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping):
        raise unreadable(place, f"expected a list, got {type(values).__name__}")
    for number, value in enumerate(values):
        yield f"{place}[{number}]", read_object(value, f"{place}[{number}]")


def read_parts(content: Any, place: str) -> Iterator[tuple[str, Json]]:
    """The parts of a content, each with its place; the content, and each part, may be a string."""
    match content:
        case None | "":
            pass
        case str():
            yield place, {"type": "text", "text": content}
        case Iterable() if not isinstance(content, Mapping | bytes):
            for number, part in enumerate(content):
                part_place = f"{place}[{number}]"
                yield (
                    part_place,
                    {"type": "text", "text": part} if isinstance(part, str) else read_object(part, part_place),
                )
        case _:
            raise unreadable(place, f"expected a string or a list of parts, got {type(content).__name__}")


def read_text(fields: Json, key: str, place: str) -> str:
    """A field that is text; empty if it is missing, which `check` reports and `repair` can repair."""
    value = fields.get(key)
    if value is not None and not isinstance(value, str):
        raise unreadable(f"{place}.{key}", f"expected a string, got {type(value).__name__}")
    return value or ""


def describe_part(part: Json) -> str:
    """A part in an error message."""
    return f"a part of the type {part['type']!r}" if part.get("type") else f"a part with {', '.join(map(str, part))}"


def other_fields(fields: Json, known: Iterable[str]) -> dict[str, Any]:
    """The fields that are not known, without empty ones."""
    return {key: value for key, value in fields.items() if key not in known and value not in (None, [], {})}


def nested(key: str, fields: Json) -> dict[str, Any]:
    """The fields under a key, if there are any."""
    return {key: dict(fields)} if fields else {}


def refuse_other_fields(fields: Json, known: Iterable[str], place: str) -> None:
    """Raise if there are fields that have no place in our messages or requests."""
    if others := other_fields(fields, known):
        raise unreadable(place, f"has fields that cannot be kept ({', '.join(map(repr, others))}); remove them")


def refuse_unread(fields: Json, known: Iterable[str], place: str, content: str) -> None:
    """Raise if an object without content has unknown fields: the content is probably in one of them."""
    if others := [name for name in other_fields(fields, known) if name not in ABOUT]:
        names = ", ".join(map(repr, others))
        raise unreadable(place, f"has no {content!r}, and {names} is not read; put it into {content!r}")


def to_json(value: Any) -> Any:
    """A value as JSON has it: the fields of SDK objects, and bytes as base64."""
    match value:
        case Enum():
            return to_json(value.value)
        case str() | int() | float() | None:
            return value
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case Mapping():
            return dict(zip(map(str, value), map(to_json, value.values()), strict=True))
        case Sequence():
            return [*map(to_json, value)]
        case _:
            fields = as_mapping(value)
            return str(value) if fields is None else to_json(fields)


def json_text(arguments: Any, place: str) -> str:
    """The arguments of a call as JSON text; text stays as it is."""
    if isinstance(arguments, str):
        return arguments
    try:
        return json.dumps({} if arguments is None else arguments, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise unreadable(place, f"its arguments cannot be written as JSON: {error}") from None


# Images and files.


def base64_text(data: str | bytes) -> str:
    """Data as base64 text; text is base64 already."""
    return data if isinstance(data, str) else base64.b64encode(data).decode()


def data_url(media_type: str, data: str | bytes) -> str:
    """The URL that holds the data."""
    return f"data:{media_type};base64,{base64_text(data)}"


def type_of_url(url: str, default: str) -> str:
    """The media type that a data URL states, or that the ending of a URL suggests."""
    if url.startswith("data:"):
        return url[len("data:") :].partition(",")[0].partition(";")[0] or default
    return mimetypes.guess_type(url.partition("?")[0])[0] or default

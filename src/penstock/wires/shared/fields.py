"""What the readers of all shapes share: where things stand, and what stands there."""

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

MAX_LEVELS = MAX_DEPTH + 8
"""How deep what is read may be nested: as deep as the arguments of a call, which stand some levels down."""

ADVICE = (
    "give a message with a role and a content, a list of such, or a request with its messages, contents or input; "
    "of an answer, the message that is in it"
)
"""What to give, to those who gave something that is no message."""


def refused(place: str, why: str) -> UsageError:
    return UsageError(f"{place}: {why}")


def sound(value: Any, place: str) -> Any:
    """A value that came from elsewhere, without halves of characters; one that is nested too deeply is refused.

    Such halves can be written as JSON but not sent (QUIRKS 50). Everything after this may recurse.
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
    return refused(place, f"is nested too deeply: give arguments of at most {MAX_DEPTH} levels, and all else flatter")


def mapping(value: Any, place: str) -> Json:
    """The fields of a dict, which was seen to be sound with what it stands in, or of an object."""
    found = as_mapping(value)
    if found is None:
        raise refused(place, f"is a {type(value).__name__}: give a dict")
    return found if found is value else sound(found, place)  # type: ignore[no-any-return]


def mappings(values: Any, place: str) -> Iterator[tuple[str, Json]]:
    """The dicts of a list, each with its place."""
    if not isinstance(values, Iterable) or isinstance(values, str | bytes | Mapping):
        raise refused(place, f"is a {type(values).__name__}: give a list")
    for number, value in enumerate(values):
        yield f"{place}[{number}]", mapping(value, f"{place}[{number}]")


def contents(content: Any, place: str) -> Iterator[tuple[str, Json]]:
    """The parts of a content, whatever it is: text, or a list of parts, which may be text too."""
    match content:
        case None | "":
            pass
        case str():
            yield place, {"type": "text", "text": content}
        case Iterable() if not isinstance(content, Mapping | bytes):
            for number, part in enumerate(content):
                at = f"{place}[{number}]"
                yield at, {"type": "text", "text": part} if isinstance(part, str) else mapping(part, at)
        case _:
            raise refused(place, f"is a {type(content).__name__}: give a string or a list of parts")


def string(fields: Json, key: str, place: str) -> str:
    """A field that is text; it is empty if it is not there, for that can be found and mended in a history."""
    value = fields.get(key)
    if value is not None and not isinstance(value, str):
        raise refused(f"{place}.{key}", f"is a {type(value).__name__}: give a string")
    return value or ""


def kind_of(part: Json) -> str:
    return f"a part of the type {part['type']!r}" if part.get("type") else f"a part with {', '.join(map(str, part))}"


def rest(fields: Json, known: Iterable[str]) -> dict[str, Any]:
    """The fields that are not among the known ones, as far as they say something."""
    return {key: value for key, value in fields.items() if key not in known and value not in (None, [], {})}


def nested(key: str, fields: Json) -> dict[str, Any]:
    """The fields under a key, if there are any."""
    return {key: dict(fields)} if fields else {}


def nothing_else(fields: Json, known: Iterable[str], place: str) -> None:
    """Refuse fields for which neither we nor our requests have a place."""
    if others := rest(fields, known):
        raise refused(place, f"there is no place for {', '.join(map(repr, others))}: leave it out")


def plain(value: Any) -> Any:
    """A value as JSON has it: of the SDKs' objects their fields, and bytes as base64."""
    match value:
        case Enum():
            return plain(value.value)
        case str() | int() | float() | None:
            return value
        case bytes() | bytearray():
            return base64.b64encode(value).decode()
        case Mapping():
            return dict(zip(map(str, value), map(plain, value.values()), strict=True))
        case Sequence():
            return [*map(plain, value)]
        case _:
            found = as_mapping(value)
            return str(value) if found is None else plain(found)


def json_text(arguments: Any, at: str) -> str:
    if isinstance(arguments, str):
        return arguments
    try:
        return json.dumps({} if arguments is None else arguments, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise refused(at, f"the arguments are not JSON: {error}") from None


# Pictures and files.


def base64_text(data: str | bytes) -> str:
    return data if isinstance(data, str) else base64.b64encode(data).decode()


def data_url(media_type: str, data: str | bytes) -> str:
    return f"data:{media_type};base64,{base64_text(data)}"


def stated_type(url: str, usual: str) -> str:
    """The type that a URL states or shows."""
    if url.startswith("data:"):
        return url[len("data:") :].partition(",")[0].partition(";")[0] or usual
    return mimetypes.guess_type(url.partition("?")[0])[0] or usual

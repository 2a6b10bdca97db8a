"""What a tool returned, or raised, as what the model reads of it.

Whatever comes out of a tool can be told: what is not JSON becomes a text that people can read, what is too long is cut
in the middle. Nothing here raises.
"""

from __future__ import annotations

import io
import json
import math
import os
import sys
from collections.abc import Iterable, Mapping, Sequence, Set, ValuesView
from enum import Enum
from typing import Any

import msgspec
from msgspec import Struct

from penstock.errors import ArgumentsError, ToolError
from penstock.events import Text
from penstock.jsontext.surrogates import join_surrogates
from penstock.messages import File, Image, ToolResult, file, image

MAX_RESULT = 256 * 1024
"""How many characters of text a result may have; of a longer one, the middle is left out."""

MAX_PARTS = 1000
"""A longer list is told as JSON, whatever is in it: no model reads so many pictures."""
MAX_MEDIA = 32 * 1024 * 1024
"""How many bytes a picture or a file may have; of a larger one, the model is told that it is too large."""

MAX_NESTING = 100
"""How deep the objects of a result may be nested; below, there is an ellipsis."""

NOTHING = "null"
"""What a model reads of None: that there is nothing, which may be an answer ("no such user") as well as none."""

ResultPart = Text | Image | File

_NOTE = 60  # characters that the note about what was left out may take
_IMAGES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
_WRITABLE = ("1", "L", "LA", "P", "RGB", "RGBA")  # the kinds of pictures that PNG knows


class ToolOutput(Struct, frozen=True):
    """What a tool may return to keep apart what the model reads (`content`) and what the program keeps (`data`)."""

    content: Any
    data: Any = None
    is_error: bool = False


class Outcome(Struct, frozen=True):
    """How a tool came out: what the model reads, what the program keeps, and whether it failed."""

    content: tuple[ResultPart, ...]
    data: Any = None
    is_error: bool = False

    @property
    def text(self) -> str:
        """The text of what the model reads."""
        return "".join(part.text for part in self.content if isinstance(part, Text))


def as_outcome(value: Any) -> Outcome:
    """What a returned value means."""
    try:
        match value:
            case Outcome():
                return value
            case ToolOutput():
                return Outcome(_content(value.content), value.data, value.is_error)
            case ToolResult():
                return Outcome(_content(value.content), value, value.is_error)
            case _:
                return Outcome(_content(value), value)
    except Exception as error:  # noqa: BLE001  # even to ask an object what it is may run a user's code
        return Outcome((Text(0, _unshowable(value, error)),), value)


def nearest_json(value: Any) -> Any:
    """The JSON that comes closest to a value."""
    try:
        return _plain(value, ())
    except Exception as error:  # noqa: BLE001  # the methods of a value are a user's code
        return _unshowable(value, error)


def failure(error: BaseException) -> Outcome:
    """What a raised error means: the words of a `ToolError`, and of any other its name and message."""
    return Outcome(_cut([Text(0, "\n".join(_words(error)))]), is_error=True)


def _words(error: BaseException) -> Iterable[str]:
    match error:
        case BaseExceptionGroup():
            for inner in error.exceptions:
                yield from _words(inner)
        case ToolError() | ArgumentsError() if said := _said(error):
            yield said
        case _:
            said = _said(error)
            yield f"{type(error).__name__}: {said}" if said else type(error).__name__


# The parts.


def _content(value: Any) -> tuple[ResultPart, ...]:
    return _cut(list(_parts(value)))


def _parts(value: Any) -> Iterable[ResultPart]:
    """The parts that a value is: a list with pictures in it is told piece by piece."""
    if isinstance(value, list | tuple) and len(value) <= MAX_PARTS:
        found = [_part(item) for item in value]
        if any(part is not None for part in found):
            for item, part in zip(value, found, strict=True):
                yield part or Text(0, _written(item))
            return
    yield _part(value) or Text(0, _written(value))


def _part(value: Any) -> ResultPart | None:
    """The part that a value is, if it is more than text."""
    match value:
        case Text() | Image() | File():
            return value
        case bytes() | bytearray() | memoryview():
            return _media(bytes(value))
        case _:
            return _picture(value)


def _media(data: bytes) -> Image | File | None:
    kind = next((kind for magic, kind in _IMAGES.items() if data.startswith(magic)), "")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "image/webp"
    if len(data) > MAX_MEDIA:
        return None
    if data.startswith(b"%PDF-"):
        return file(data, "application/pdf", "document.pdf")
    return image(data, kind) if kind else None


def _picture(value: Any) -> Image | File | None:
    """A picture of PIL's, if that is in use at all."""
    pillow: Any = sys.modules.get("PIL.Image")
    if pillow is None or not isinstance(value, pillow.Image):
        return None
    buffer = io.BytesIO()
    try:
        shown: Any = value if value.mode in _WRITABLE else value.convert("RGB")
        shown.save(buffer, format="PNG")
    except Exception:  # noqa: BLE001  # what a picture does when it is loaded is its own affair
        return None
    return _media(buffer.getvalue())


def _cut(parts: Sequence[ResultPart]) -> tuple[ResultPart, ...]:
    """The parts, whole characters all, and not more text than fits."""
    lengths = [len(part.text) for part in parts if isinstance(part, Text)]
    limit = MAX_RESULT if sum(lengths) <= MAX_RESULT else MAX_RESULT // len(lengths)
    return tuple(Text(part.block, _shortened(part.text, limit)) if isinstance(part, Text) else part for part in parts)


def _shortened(text: str, limit: int) -> str:
    if len(text) <= limit:
        return join_surrogates(text)
    kept = max(limit - _NOTE, 0)
    note = f"\n… {len(text) - kept} characters left out …\n"
    return join_surrogates(text[: kept - kept // 2] + note + text[len(text) - kept // 2 :])


# Values as text.


def _written(value: Any) -> str:
    """A value as text: a string as it is, anything else as JSON."""
    try:
        match value:
            case Enum():
                return _written(value.value)
            case str():
                return str.__str__(value)
            case None:
                return NOTHING
            case _:
                return _json(value)
    except Exception as error:  # noqa: BLE001  # the methods of a value are a user's code
        return _unshowable(value, error)


def _unshowable(value: Any, error: Exception) -> str:
    return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"


def _json(value: Any) -> str:
    try:
        return _dumped(value)
    except (TypeError, ValueError, RecursionError):  # it is not JSON
        closest = _plain(value, ())
    return closest if isinstance(closest, str) else _dumped(closest)


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _plain(value: Any, above: tuple[int, ...]) -> Any:
    """The JSON that comes closest to a value; `above` are the objects that it stands in."""
    match value:
        case None | bool():
            return value
        case Enum():
            return _plain(value.value, above)
        case str():
            return join_surrogates(str.__str__(value))
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else _not_a_number(value)
        case bytes() | bytearray() | memoryview():
            return _decoded(bytes(value))
    if id(value) in above:
        return f"<this {type(value).__name__} again>"
    if len(above) >= MAX_NESTING:
        return "…"
    return _opened(value, (*above, id(value)))


def _opened(value: Any, above: tuple[int, ...]) -> Any:
    """The JSON of an object, by what it holds."""
    match value:
        case Mapping():
            return {_key(key, above): _plain(item, above) for key, item in value.items()}
        case Set():
            return [_plain(item, above) for item in _ordered(value)]
        case Sequence() | ValuesView():
            return [_plain(item, above) for item in value]
        case os.PathLike():
            return _plain(os.fspath(value), above)
        case type():
            return value.__qualname__
        case object(model_dump=dump) if callable(dump):  # a model of pydantic's
            return _plain(dump(mode="json", warnings=False), above)
        case object(tolist=items) if callable(items):  # an array of NumPy's, or one number of it
            return _plain(items(), above)
    if (fields := _fields(value)) is not None:
        return {name: _plain(getattr(value, name, None), above) for name in fields}
    return _leaf(value)


def _fields(value: Any) -> Iterable[str] | None:
    """The names of what an object is made of: one with fields, or one that has no words of its own."""
    match value:
        case object(__dataclass_fields__=fields) | object(__struct_fields__=fields):
            return list(fields)
        case object(__attrs_attrs__=fields):
            return [field.name for field in fields]
        case object(__dict__=dict(fields)) if _is_silent(value):
            return [name for name in fields if not name.startswith("_")] or None
        case _:
            return None


def _is_silent(value: Any) -> bool:
    kind: Any = type(value)
    return kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__


def _leaf(value: Any) -> Any:
    """Dates, UUIDs, decimals; and whatever else there is, in its own words."""
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError):
        return f"<{type(value).__name__}>" if _is_silent(value) else _said(value)


def _said(value: Any) -> str:
    """What an object says of itself, if it can."""
    try:
        return str(value)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # a `__str__` is a user's code
        return f"<{type(value).__name__} whose __str__ raised {type(error).__name__}>"


def _key(key: Any, above: tuple[int, ...]) -> str:
    nearest_json = _plain(key, above)
    return nearest_json if isinstance(nearest_json, str) else _dumped(nearest_json)


def _ordered(items: Iterable[Any]) -> list[Any]:
    """The items of a set: in order, so that the same set always reads the same."""
    try:
        return sorted(items)
    except TypeError:
        return list(items)


def _not_a_number(value: float) -> str:
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return f"<{len(data)} bytes that are not text>"

"""Converts what a tool returned or raised to the content of a result.

Every value can be converted: what is not JSON becomes readable text, what is too long is truncated in the middle.
Nothing here raises.
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
"""The characters of text in a result; a longer text is truncated in the middle."""

MAX_PARTS = 1000
"""The items up to which a list with images becomes separate parts; a longer list becomes JSON."""

MAX_MEDIA = 32 * 1024 * 1024
"""The bytes of an image or a file; a larger one is replaced by a note."""

MAX_NESTING = 100
"""The levels of nested objects in a result; deeper ones are replaced by an ellipsis."""

NOTHING = "null"
"""The text for None, which may be a result in itself ("no such user")."""

ResultPart = Text | Image | File

_NOTE = 60  # characters reserved for the note about the omitted text
_IMAGES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
_PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA")


class ToolOutput(Struct, frozen=True):
    """A return value of a tool that separates what the model reads (`content`) from what the program keeps (`data`)."""

    content: Any
    data: Any = None
    is_error: bool = False


class Outcome(Struct, frozen=True):
    """The result of a tool: what the model reads, what the program keeps, and whether the tool failed."""

    content: tuple[ResultPart, ...]
    data: Any = None
    is_error: bool = False

    @property
    def text(self) -> str:
        """The text of the content."""
        return "".join(part.text for part in self.content if isinstance(part, Text))


def as_outcome(value: Any) -> Outcome:
    """Converts the return value of a tool."""
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
    except Exception as error:  # noqa: BLE001  # even inspecting an object may run user code
        return Outcome((Text(0, _placeholder(value, error)),), value)


def nearest_json(value: Any) -> Any:
    """The nearest JSON equivalent of a value."""
    try:
        return _nearest(value, ())
    except Exception as error:  # noqa: BLE001  # the methods of a value are user code
        return _placeholder(value, error)


def failure(error: BaseException) -> Outcome:
    """Converts an exception: a `ToolError` to its message, any other to its name and message."""
    return Outcome(_truncate([Text(0, "\n".join(_messages(error)))]), is_error=True)


def _messages(error: BaseException) -> Iterable[str]:
    match error:
        case BaseExceptionGroup():
            for inner in error.exceptions:
                yield from _messages(inner)
        case ToolError() | ArgumentsError() if message := _str(error):
            yield message
        case _:
            message = _str(error)
            yield f"{type(error).__name__}: {message}" if message else type(error).__name__


# The parts.


def _content(value: Any) -> tuple[ResultPart, ...]:
    return _truncate(list(_parts(value)))


def _parts(value: Any) -> Iterable[ResultPart]:
    """The parts of a value; a list that contains images becomes one part per item."""
    if isinstance(value, list | tuple) and len(value) <= MAX_PARTS:
        parts = [_part(item) for item in value]
        if any(part is not None for part in parts):
            for item, part in zip(value, parts, strict=True):
                yield part or Text(0, _as_text(item))
            return
    yield _part(value) or Text(0, _as_text(value))


def _part(value: Any) -> ResultPart | None:
    """The part for a value that is one already, or binary data; None for any other."""
    match value:
        case Text() | Image() | File():
            return value
        case bytes() | bytearray() | memoryview():
            return _media(bytes(value))
        case _:
            return _pil_image(value)


def _media(data: bytes) -> Image | File | None:
    kind = next((kind for magic, kind in _IMAGES.items() if data.startswith(magic)), "")
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        kind = "image/webp"
    if len(data) > MAX_MEDIA:
        return None
    if data.startswith(b"%PDF-"):
        return file(data, "application/pdf", "document.pdf")
    return image(data, kind) if kind else None


def _pil_image(value: Any) -> Image | File | None:
    """An image of PIL, if that is imported at all."""
    pillow: Any = sys.modules.get("PIL.Image")
    if pillow is None or not isinstance(value, pillow.Image):
        return None
    buffer = io.BytesIO()
    try:
        converted: Any = value if value.mode in _PNG_MODES else value.convert("RGB")
        converted.save(buffer, format="PNG")
    except Exception:  # noqa: BLE001  # loading an image may fail in any way
        return None
    return _media(buffer.getvalue())


def _truncate(parts: Sequence[ResultPart]) -> tuple[ResultPart, ...]:
    """The parts with at most `MAX_RESULT` characters of text, and with surrogates joined."""
    lengths = [len(part.text) for part in parts if isinstance(part, Text)]
    limit = MAX_RESULT if sum(lengths) <= MAX_RESULT else MAX_RESULT // len(lengths)
    return tuple(Text(part.block, _shortened(part.text, limit)) if isinstance(part, Text) else part for part in parts)


def _shortened(text: str, limit: int) -> str:
    if len(text) <= limit:
        return join_surrogates(text)
    kept = max(limit - _NOTE, 0)
    note = f"\n… {len(text) - kept} characters omitted …\n"
    return join_surrogates(text[: kept - kept // 2] + note + text[len(text) - kept // 2 :])


# Values as text.


def _as_text(value: Any) -> str:
    """A string unchanged, any other value as JSON."""
    try:
        match value:
            case Enum():
                return _as_text(value.value)
            case str():
                return str.__str__(value)
            case None:
                return NOTHING
            case _:
                return _json(value)
    except Exception as error:  # noqa: BLE001  # the methods of a value are user code
        return _placeholder(value, error)


def _placeholder(value: Any, error: Exception) -> str:
    return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"


def _json(value: Any) -> str:
    try:
        return _dumped(value)
    except (TypeError, ValueError, RecursionError):  # not JSON
        nearest = _nearest(value, ())
    return nearest if isinstance(nearest, str) else _dumped(nearest)


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _nearest(value: Any, above: tuple[int, ...]) -> Any:
    """The nearest JSON equivalent of a value; `above` are the ids of the objects that contain it."""
    match value:
        case None | bool():
            return value
        case Enum():
            return _nearest(value.value, above)
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
    return _nearest_container(value, (*above, id(value)))


def _nearest_container(value: Any, above: tuple[int, ...]) -> Any:
    """The nearest JSON equivalent of a container or an object."""
    match value:
        case Mapping():
            return {_key(key, above): _nearest(item, above) for key, item in value.items()}
        case Set():
            return [_nearest(item, above) for item in _ordered(value)]
        case Sequence() | ValuesView():
            return [_nearest(item, above) for item in value]
        case os.PathLike():
            return _nearest(os.fspath(value), above)
        case type():
            return value.__qualname__
        case object(model_dump=dump) if callable(dump):  # a pydantic model
            return _nearest(dump(mode="json", warnings=False), above)
        case object(tolist=items) if callable(items):  # a NumPy array or scalar
            return _nearest(items(), above)
    if (fields := _fields(value)) is not None:
        return {name: _nearest(getattr(value, name, None), above) for name in fields}
    return _leaf(value)


def _fields(value: Any) -> Iterable[str] | None:
    """The field names of a dataclass, struct or attrs object, or of an object without its own `__str__`."""
    match value:
        case object(__dataclass_fields__=fields) | object(__struct_fields__=fields):
            return list(fields)
        case object(__attrs_attrs__=fields):
            return [field.name for field in fields]
        case object(__dict__=dict(fields)) if _has_default_str(value):
            return [name for name in fields if not name.startswith("_")] or None
        case _:
            return None


def _has_default_str(value: Any) -> bool:
    kind: Any = type(value)
    return kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__


def _leaf(value: Any) -> Any:
    """Dates, UUIDs and decimals as msgspec writes them; anything else as its `str()`."""
    try:
        return msgspec.to_builtins(value)
    except (TypeError, ValueError):
        return f"<{type(value).__name__}>" if _has_default_str(value) else _str(value)


def _str(value: Any) -> str:
    """`str(value)`, or a placeholder if that raises."""
    try:
        return str(value)
    except (Exception, SystemExit) as error:  # noqa: BLE001  # `__str__` is user code
        return f"<{type(value).__name__} whose __str__ raised {type(error).__name__}>"


def _key(key: Any, above: tuple[int, ...]) -> str:
    nearest = _nearest(key, above)
    return nearest if isinstance(nearest, str) else _dumped(nearest)


def _ordered(items: Iterable[Any]) -> list[Any]:
    """The items of a set, sorted if possible, so that equal sets have equal text."""
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

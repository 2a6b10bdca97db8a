"""Tool results: what a tool returned or raised, as content that a model reads.

Text that is too long is truncated in the middle. A value that contains an object without a JSON form is an error, which
names the class of the object. Nothing here raises.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, ClassVar, Literal

from msgspec import Struct

from penstock.content import File, Image, file, image, states_by_kind
from penstock.errors import ArgumentsError, ToolError, UsageError
from penstock.events import Event, Opaque, Text
from penstock.jsontext.error_text import whole_message
from penstock.jsontext.nearest import NoJSONFormError, compact_json, placeholder, text_of
from penstock.jsontext.surrogates import join_surrogates

MAX_RESULT = 256 * 1024
"""The characters of text in a result; a longer text is truncated in the middle."""

MAX_PARTS = 1000
"""The items up to which a list with images becomes separate parts; a longer list becomes JSON."""

MAX_MEDIA = 32 * 1024 * 1024
"""The bytes of an image or a file; a larger one is replaced by a note."""

NOTHING = "null"
"""The text for None, which may be a result in itself ("no such user")."""

ResultPart = Text | Image | File

_NOTE = 60  # characters reserved for the note about the omitted text
_IMAGES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
_PNG_MODES = ("1", "L", "LA", "P", "RGB", "RGBA")
_ADVICE = "return text, a dict, a list, or an object with declared fields, such as a dataclass or a pydantic model"


class ToolResult(Event, frozen=True, tag="tool_result"):
    """The result of a tool call, for the model to read; `messages.result` makes one of any value."""

    call_id: str
    name: str
    content: tuple[Text | Image | File, ...] = ()
    is_error: bool = False
    state: tuple[Opaque, ...] = ()
    type: ClassVar[Literal["tool_result"]] = "tool_result"

    def __post_init__(self) -> None:
        content: Any = self.content
        if not isinstance(content, tuple) or not all(isinstance(part, Text | Image | File) for part in content):
            raise UsageError(
                f"the content of a result must be a tuple of texts, images and files, not {content!r:.80}; "
                f"messages.result converts any value"
            )

    def state_of(self, wire: str) -> dict[str, Any]:
        """The vendor state of this wire, by its kind."""
        return states_by_kind(self.state, wire)

    @property
    def text(self) -> str:
        """The text of the content."""
        return "".join(part.text for part in self.content if isinstance(part, Text))


class ToolOutput(Struct, frozen=True):
    """A return value of a tool that separates what the model reads (`content`) from what the program keeps (`data`)."""

    content: Any
    data: Any = None
    is_error: bool = False


class Outcome(Struct, frozen=True):
    """The result of a tool: what the model reads, what the program keeps, and whether the tool failed.

    `state` is what a hook keeps with the result in the history.
    """

    content: tuple[ResultPart, ...]
    data: Any = None
    is_error: bool = False
    state: tuple[Opaque, ...] = ()

    @property
    def text(self) -> str:
        """The text of the content."""
        return "".join(part.text for part in self.content if isinstance(part, Text))


def error_outcome(text: str) -> Outcome:
    """An outcome that tells the model what went wrong."""
    return Outcome((Text(0, text),), is_error=True)


def as_outcome(value: Any) -> Outcome:
    """Converts the return value of a tool."""
    try:
        match value:
            case Outcome():
                return value
            case ToolOutput():
                return Outcome(_content(value.content), value.data, value.is_error)
            case ToolResult():
                return Outcome(_truncate(value.content), value, value.is_error)
            case _:
                return Outcome(_content(value), value)
    except NoJSONFormError as error:
        text = f"The tool returned an object of type {error.kind}, which cannot be sent to the model; {_ADVICE}."
        return Outcome((Text(0, text),), value.data if isinstance(value, ToolOutput) else value, is_error=True)
    except Exception as error:  # noqa: BLE001  # even inspecting an object may run user code
        return Outcome((Text(0, placeholder(value, error)),), value)


def failure(error: BaseException) -> Outcome:
    """Converts an exception: a `ToolError` to its message, any other to its name and message."""
    return Outcome(_truncate([Text(0, "\n".join(_messages(error)))]), is_error=True)


def _messages(error: BaseException) -> Iterable[str]:
    match error:
        case BaseExceptionGroup():
            for inner in error.exceptions:
                yield from _messages(inner)
        case ToolError() | ArgumentsError() if message := text_of(error):
            yield message
        case _:
            yield whole_message(error)


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
                return compact_json(value)
    except NoJSONFormError:
        raise
    except Exception as error:  # noqa: BLE001  # the methods of a value are user code
        return placeholder(value, error)

"""Messages: one form of a history for every provider.

A history is a list of `Message`s. The parts of an assistant message are the events of the response (`Text`,
`Reasoning`, `ToolCall`, …), so that a response becomes a message as it is. Vendor state is an `Opaque` on the part with
the same block. Images, files and tool results occur only in messages of users and tools; they have no block and hold
their vendor state themselves.
"""

from __future__ import annotations

import base64
import mimetypes
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import msgspec
from msgspec import Struct, field

from penstock.errors import UsageError
from penstock.events import Event, Opaque, Reasoning, Refusal, Text, ToolCall, ToolCallInvalid

T = TypeVar("T")
Role = Literal["system", "user", "assistant", "tool"]

PART_FIELDS = "fields"
"""The kind of vendor state that holds the fields of a part that ours does not have, `cache_control` for example."""
MESSAGE_FIELDS = "message"
"""The kind of vendor state that holds the fields of a message that ours does not have."""
RESULT_CONTENT = "content"
"""The kind of vendor state that holds the content of a result, if ours cannot hold all of it."""
WHOLE_BLOCK = "block"
"""The kind of vendor state that holds a whole block of the vendor; our part is its text for other vendors.

If a block becomes several parts, the state is on the first, and the others have such a state without data.
"""


class Media(Event, frozen=True):
    """An image or a file, by its URL: on the web, or a data URL (`data:image/png;base64,…`)."""

    url: str
    media_type: str = ""
    name: str = ""
    state: tuple[Opaque, ...] = ()

    def state_of(self, wire: str) -> dict[str, Any]:
        """The vendor state of this wire, by its kind."""
        return _by_kind(self.state, wire)

    @property
    def is_inline(self) -> bool:
        """Whether the URL is a data URL."""
        return self.url.startswith("data:")

    @property
    def base64(self) -> str:
        """The data as base64 text."""
        head, _, data = self.url.partition(",")
        if not self.is_inline or not head.endswith(";base64"):
            raise UsageError(f"{self!r} has no base64 data; download it and pass its bytes")
        return data

    @property
    def data(self) -> bytes:
        """The data."""
        return base64.b64decode(self.base64)

    def __repr__(self) -> str:
        url = self.url if len(self.url) <= 60 else f"{self.url[:40]}… ({len(self.url)} characters)"
        return f"{type(self).__name__}({url!r})"


class Image(Media, frozen=True, tag="image"):
    """An image."""

    type: ClassVar[Literal["image"]] = "image"


class File(Media, frozen=True, tag="file"):
    """A file that is not an image: a PDF, an audio recording."""

    type: ClassVar[Literal["file"]] = "file"


class ToolResult(Event, frozen=True, tag="tool_result"):
    """The result of a tool call, for the model to read."""

    call_id: str
    name: str
    content: tuple[Text | Image | File, ...] = ()
    is_error: bool = False
    state: tuple[Opaque, ...] = ()
    type: ClassVar[Literal["tool_result"]] = "tool_result"

    def state_of(self, wire: str) -> dict[str, Any]:
        """The vendor state of this wire, by its kind."""
        return _by_kind(self.state, wire)

    @property
    def text(self) -> str:
        """The text of the content."""
        return "".join(part.text for part in self.content if isinstance(part, Text))


Part = Text | Reasoning | Refusal | ToolCall | ToolCallInvalid | Opaque | Image | File | ToolResult


class Message(Struct, frozen=True, omit_defaults=True, dict=True):  # the dict is for cached properties
    """One message of a history.

    `is_example`: the message shows the model how to use its tools, so calls in it are not quotations when the model
    writes the same.
    """

    role: Role
    parts: tuple[Part, ...] = field(default_factory=lambda: ())  # any other default would be left out of the JSON
    is_example: bool = False

    @property
    def text(self) -> str:
        """The visible text."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The whole calls, in order."""
        return [part for part in self.parts if isinstance(part, ToolCall)]

    @property
    def results(self) -> list[ToolResult]:
        """The results, in order."""
        return [part for part in self.parts if isinstance(part, ToolResult)]

    def state_of(self, block: int, wire: str) -> dict[str, Any]:
        """The vendor state of this wire on the part with this block, by its kind."""
        return _by_kind(self._states.get(block, ()), wire)

    @cached_property
    def _states(self) -> dict[int, list[Opaque]]:
        """The vendor state by block: encoders look it up for each part."""
        states: dict[int, list[Opaque]] = {}
        for part in self.parts:
            if isinstance(part, Opaque):
                states.setdefault(part.block, []).append(part)
        return states


History = list[Message]
"""A conversation: what a run returns, and what the next one takes as its `messages`."""

Content = str | Part
"""What the functions below make messages of."""


def system(*content: Content) -> Message:
    """A system message."""
    return Message("system", _with_blocks(content))


def user(*content: Content) -> Message:
    """A user message."""
    return Message("user", _with_blocks(content))


def assistant(*content: Content) -> Message:
    """An assistant message."""
    return Message("assistant", _with_blocks(content))


def example(message: Message) -> Message:
    """The message, marked as an example: the model may write the calls in it as its own."""
    return msgspec.structs.replace(message, is_example=True)


def tool_results(*results: ToolResult) -> Message:
    """The message with the results of one turn, which must be in the order of the calls."""
    return Message("tool", results)


def result(call: ToolCall | ToolCallInvalid, *content: str | Image | File, is_error: bool = False) -> ToolResult:
    """The result of a call."""
    parts = tuple(Text(0, part) if isinstance(part, str) else part for part in content)
    return ToolResult(call.id, call.name, parts, is_error)


def image(source: str | bytes | Path, media_type: str = "") -> Image:
    """An image from a URL, a file path, or bytes."""
    return Image(*_locate(source, media_type or "image/png"))


def file(source: str | bytes | Path, media_type: str = "", name: str = "") -> File:
    """A file from a URL, a file path, or bytes."""
    url, kind, file_name = _locate(source, media_type or "application/octet-stream")
    return File(url, kind, name or file_name)


def _locate(source: str | bytes | Path, media_type: str) -> tuple[str, str, str]:
    """The URL, the media type and the file name of a source."""
    match source:
        case str() if source.startswith(("http://", "https://", "gs://", "s3://", "file-", "data:")):
            declared = source[5:].partition(";")[0] if source.startswith("data:") else mimetypes.guess_type(source)[0]
            return source, declared or media_type, ""
        case bytes():
            return _data_url(source, media_type), media_type, ""
        case _:
            path = Path(source)
            kind = mimetypes.guess_type(path.name)[0] or media_type
            return _data_url(path.read_bytes(), kind), kind, path.name


def _data_url(data: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def _with_blocks(content: Sequence[Content]) -> tuple[Part, ...]:
    """The parts; each string becomes a text with a block of its own."""
    used = {part.block for part in content if not isinstance(part, str | Media | ToolResult)}
    free = (block for block in range(len(content) + len(used)) if block not in used)
    return tuple(Text(next(free), part) if isinstance(part, str) else part for part in content)


def _by_kind(states: Iterable[Opaque], wire: str) -> dict[str, Any]:
    """The state of a wire by its kind; fields that are not an object are left out, as stored histories may hold any."""
    return {
        state.kind: state.data
        for state in states
        if state.wire == wire and (state.kind != PART_FIELDS or isinstance(state.data, dict))
    }


def join_messages(first: Message, *others: Message) -> Message:
    """One message of several of one role; later blocks are renumbered, so that vendor state stays on its part.

    It is an example only if all are: the text of the others still counts when quotations are looked for.
    """
    parts, free = [*first.parts], last_block(first) + 1
    for other in others:
        parts += [
            part if isinstance(part, Media | ToolResult) else msgspec.structs.replace(part, block=part.block + free)
            for part in other.parts
        ]
        free += last_block(other) + 1
    return Message(first.role, tuple(parts), all(message.is_example for message in (first, *others)))


def last_block(message: Message) -> int:
    """The highest block of a message; -1 if it has none."""
    return max((part.block for part in message.parts if not isinstance(part, Media | ToolResult)), default=-1)


# Histories as JSON.

VERSION = 1
"""The version of the stored form; it changes when an older reader would misread it."""
MARK = "penstock_history"
"""The field of a stored history that holds its version."""

_encoder = msgspec.json.Encoder()
_AT = re.compile(r"^(.*) - at `\$(.*)`$", re.DOTALL)


def encode_messages(messages: Iterable[Message]) -> bytes:
    """A history as JSON."""
    history = list(messages)
    for at, message in enumerate(history):
        if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance]  # a caller's may be anything
            raise UsageError(
                f"messages[{at}] is a {type(message).__name__}, not a Message; convert it with as_messages"
            )
    return _encoder.encode({MARK: VERSION, "messages": history})


def decode_messages(data: bytes | str) -> list[Message]:
    """The history that this version of `encode_messages` wrote, or an older one."""
    try:
        stored: Any = msgspec.json.decode(data)
    except msgspec.MsgspecError as error:
        raise UsageError(f"this is not a history: {error}") from None
    return restore_history(stored)


def restore_history(stored: Any) -> list[Message]:
    """The history in a JSON value; the oldest form is only the list of messages."""
    if not isinstance(stored, list):
        version: Any = stored.get(MARK) if isinstance(stored, dict) else None
        if not isinstance(version, int) or version < 1:
            raise UsageError(f"this is not a history: it has no {MARK!r} number, as encode_messages writes it")
        if version > VERSION:
            raise UsageError(
                f"this history has format {version}, and this version reads up to {VERSION}; update penstock"
            )
        _refuse_unknown_fields(stored, (MARK, "messages"), "this history")
        stored = stored.get("messages")
    return restore_value(stored, "messages", list[Message])


def restore_value(value: Any, place: str, type: type[T]) -> T:
    """The messages in a JSON value, which is at `place`."""
    try:
        restored = msgspec.convert(value, type)
    except msgspec.ValidationError as error:
        match = _AT.match(str(error))
        why, path = (match[1], match[2]) if match else (str(error), "")
        raise UsageError(f"{place}{path}: {why}; this version cannot read such a message") from None
    _refuse_lost_fields(value, restored, place)
    return restored


def _refuse_lost_fields(value: Any, restored: Any, place: str) -> None:
    """Raise if a message or a part has no place for a field: it would not be stored again."""
    match restored:
        case Struct():
            fields = restored.__struct_fields__
            _refuse_unknown_fields(value, (*fields, restored.__struct_config__.tag_field), place)
            for name in fields:
                _refuse_lost_fields(value.get(name), getattr(restored, name), f"{place}.{name}")
        case list() | tuple():
            for at, (stored, inner) in enumerate(zip(value or (), restored, strict=True)):
                _refuse_lost_fields(stored, inner, f"{place}[{at}]")
        case _:
            pass


def _refuse_unknown_fields(fields: Mapping[str, Any], known: Iterable[str | None], place: str) -> None:
    if unknown := [name for name in fields if name not in known]:
        names = ", ".join(map(repr, unknown))
        raise UsageError(f"{place}: unknown fields {names}; remove them, or update penstock")

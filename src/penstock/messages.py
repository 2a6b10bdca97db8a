"""What was said: one history for every provider.

A history is a list of `Message`s. Their parts are the events of the answers themselves (`Text`, `Reasoning`, `ToolCall`
...), so that an answer becomes a message as it stands, with the vendor's state on the very part it came with (an
`Opaque` belongs to the part that has its block); and what only people and tools say: images, files, results, which have
no block and hold their state themselves.
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
from msgspec import Struct

from penstock.errors import UsageError
from penstock.events import Event, Opaque, Reasoning, Refusal, Text, ToolCall, ToolCallInvalid

T = TypeVar("T")
Role = Literal["system", "user", "assistant", "tool"]

FIELDS = "fields"
"""The kind of state that is the fields which a vendor's part had beside what our part says: `cache_control`, say."""
MESSAGE = "message"
"""The kind of state that is the fields which a vendor's message had beside what ours says."""
CONTENT = "content"
"""The kind of state that is a result's content as it stood, where it said more than ours."""
WHOLE = "block"
"""The kind of state that is a vendor's whole block, where our part is what others can be told of it.

If a block is several parts of ours, it is on the first, and the others have this state without data.
"""


class Media(Event, frozen=True):
    """Something that is not text, at a `url`: on the web, or in the URL itself (`data:image/png;base64,…`)."""

    url: str
    media_type: str = ""
    name: str = ""
    state: tuple[Opaque, ...] = ()

    def state_of(self, wire: str) -> dict[str, Any]:
        """The vendor's state, by its kind, if it is this wire's."""
        return _by_kind(self.state, wire)

    @property
    def is_inline(self) -> bool:
        """Whether the data is in the URL itself."""
        return self.url.startswith("data:")

    @property
    def base64(self) -> str:
        """The data, as base64 text."""
        head, _, data = self.url.partition(",")
        if not self.is_inline or not head.endswith(";base64"):
            raise UsageError(f"{self!r} holds no base64 data: download it, or give its bytes")
        return data

    @property
    def data(self) -> bytes:
        """The data itself."""
        return base64.b64decode(self.base64)

    def __repr__(self) -> str:
        shown = self.url if len(self.url) <= 60 else f"{self.url[:40]}… ({len(self.url)} characters)"
        return f"{type(self).__name__}({shown!r})"


class Image(Media, frozen=True, tag="image"):
    """A picture."""

    type: ClassVar[Literal["image"]] = "image"


class File(Media, frozen=True, tag="file"):
    """A file that is no picture: a PDF, a recording."""

    type: ClassVar[Literal["file"]] = "file"


class ToolResult(Event, frozen=True, tag="tool_result"):
    """What a tool gave back, for the model to read."""

    call_id: str
    name: str
    content: tuple[Text | Image | File, ...] = ()
    is_error: bool = False
    state: tuple[Opaque, ...] = ()
    type: ClassVar[Literal["tool_result"]] = "tool_result"

    def state_of(self, wire: str) -> dict[str, Any]:
        """The vendor's state, by its kind, if it is this wire's."""
        return _by_kind(self.state, wire)

    @property
    def text(self) -> str:
        """The text of it."""
        return "".join(part.text for part in self.content if isinstance(part, Text))


Part = Text | Reasoning | Refusal | ToolCall | ToolCallInvalid | Opaque | Image | File | ToolResult


class Message(Struct, frozen=True, dict=True):  # a dict for what is worked out once
    """One message of a history."""

    role: Role
    parts: tuple[Part, ...] = ()

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
        """The vendor's state of a part, by its kind, if it is this wire's."""
        return _by_kind(self._states.get(block, ()), wire)

    @cached_property
    def _states(self) -> dict[int, list[Opaque]]:
        """The states by their blocks: who writes a message asks for those of each part."""
        states: dict[int, list[Opaque]] = {}
        for part in self.parts:
            if isinstance(part, Opaque):
                states.setdefault(part.block, []).append(part)
        return states


History = list[Message]
"""A conversation: what a run returns, and what the next one takes as its `messages`."""

Content = str | Part
"""What a message can be made of."""


def system(*content: Content) -> Message:
    """What the model is told before all else."""
    return Message("system", _numbered(content))


def user(*content: Content) -> Message:
    """What a person says."""
    return Message("user", _numbered(content))


def assistant(*content: Content) -> Message:
    """What the model said."""
    return Message("assistant", _numbered(content))


def tool_results(*results: ToolResult) -> Message:
    """What the tools of one turn gave back: all of it in one message, in the order of the calls."""
    return Message("tool", results)


def result(call: ToolCall | ToolCallInvalid, *content: str | Image | File, is_error: bool = False) -> ToolResult:
    """What a call gave back."""
    parts = tuple(Text(0, part) if isinstance(part, str) else part for part in content)
    return ToolResult(call.id, call.name, parts, is_error)


def image(source: str | bytes | Path, media_type: str = "") -> Image:
    """A picture, from a URL, a file's path, or its bytes."""
    return Image(*_located(source, media_type or "image/png"))


def file(source: str | bytes | Path, media_type: str = "", name: str = "") -> File:
    """A file, from a URL, a path, or its bytes."""
    url, kind, found = _located(source, media_type or "application/octet-stream")
    return File(url, kind, name or found)


def _located(source: str | bytes | Path, media_type: str) -> tuple[str, str, str]:
    match source:
        case str() if source.startswith(("http://", "https://", "gs://", "s3://", "file-", "data:")):
            declared = source[5:].partition(";")[0] if source.startswith("data:") else mimetypes.guess_type(source)[0]
            return source, declared or media_type, ""
        case bytes():
            return _inline(source, media_type), media_type, ""
        case _:
            path = Path(source)
            kind = mimetypes.guess_type(path.name)[0] or media_type
            return _inline(path.read_bytes(), kind), kind, path.name


def _inline(data: bytes, media_type: str) -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def _numbered(content: Sequence[Content]) -> tuple[Part, ...]:
    """The parts; text that is given as such gets a block of its own."""
    used = {part.block for part in content if not isinstance(part, str | Media | ToolResult)}
    free = (block for block in range(len(content) + len(used)) if block not in used)
    return tuple(Text(next(free), part) if isinstance(part, str) else part for part in content)


def _by_kind(states: Iterable[Opaque], wire: str) -> dict[str, Any]:
    """The states of a wire; what was stored may be anything, and fields that are no object are none."""
    return {
        state.kind: state.data
        for state in states
        if state.wire == wire and (state.kind != FIELDS or isinstance(state.data, dict))
    }


# A history as JSON.

VERSION = 1
"""Of the form in which a history is stored; it changes when an older reader would misread it."""
MARK = "penstock_history"
"""The field that tells a stored history from anybody else's JSON, and in which version it is."""


def joined(first: Message, *others: Message) -> Message:
    """Messages of one role as one; the blocks of the later ones are numbered on, so that states stay on their parts."""
    parts, free = [*first.parts], last_block(first) + 1
    for other in others:
        parts += [
            part if isinstance(part, Media | ToolResult) else msgspec.structs.replace(part, block=part.block + free)
            for part in other.parts
        ]
        free += last_block(other) + 1
    return Message(first.role, tuple(parts))


def last_block(message: Message) -> int:
    """The highest number of a block in it; -1 if it has none."""
    return max((part.block for part in message.parts if not isinstance(part, Media | ToolResult)), default=-1)


_encoder = msgspec.json.Encoder()
_AT = re.compile(r"^(.*) - at `\$(.*)`$", re.DOTALL)


def encode_messages(messages: Iterable[Message]) -> bytes:
    """A history as JSON."""
    history = list(messages)
    for at, message in enumerate(history):
        if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance]  # a caller's may be anything
            found = f"messages[{at}] is an object of type {type(message).__name__}"
            raise UsageError(f"{found}, and no Message: as_messages makes messages of what people hold")
    return _encoder.encode({MARK: VERSION, "messages": history})


def decode_messages(data: bytes | str) -> list[Message]:
    """The history that `encode_messages` wrote, in this version or before."""
    try:
        stored: Any = msgspec.json.decode(data)
    except msgspec.MsgspecError as error:
        raise UsageError(f"this is no history: {error}") from None
    return restore(stored)


def restore(stored: Any) -> list[Message]:
    """The history that a value of JSON is; at first it was the list alone."""
    if not isinstance(stored, list):
        version: Any = stored.get(MARK) if isinstance(stored, dict) else None
        if not isinstance(version, int) or version < 1:
            raise UsageError(f"this is no history: it needs {MARK!r}, a number, as encode_messages writes it")
        if version > VERSION:
            raise UsageError(
                f"this history was stored by a later version ({version}; this one reads {VERSION}): update penstock"
            )
        _nothing_unknown(stored, (MARK, "messages"), "this history")
        stored = stored.get("messages")
    return restored(stored, "messages", list[Message])


def restored(value: Any, place: str, type: type[T]) -> T:
    """A message, or several, of a value of JSON; `place` is where it stands."""
    try:
        found = msgspec.convert(value, type)
    except msgspec.ValidationError as error:
        pointed = _AT.match(str(error))
        why, path = (pointed[1], pointed[2]) if pointed else (str(error), "")
        raise UsageError(f"{place}{path}: {why}: this is no message that this version knows") from None
    _nothing_lost(value, found, place)
    return found


def _nothing_lost(value: Any, found: Any, place: str) -> None:
    """Refuse fields that a message, or a part, has no place for: they would not be stored again."""
    match found:
        case Struct():
            fields = found.__struct_fields__
            _nothing_unknown(value, (*fields, found.__struct_config__.tag_field), place)
            for name in fields:
                _nothing_lost(value.get(name), getattr(found, name), f"{place}.{name}")
        case list() | tuple():
            for at, (given, inner) in enumerate(zip(value or (), found, strict=True)):
                _nothing_lost(given, inner, f"{place}[{at}]")
        case _:
            pass


def _nothing_unknown(fields: Mapping[str, Any], known: Iterable[str | None], place: str) -> None:
    if unknown := [name for name in fields if name not in known]:
        names = ", ".join(map(repr, unknown))
        raise UsageError(f"{place}: {names} is of no version that is known here: leave it out, or update penstock")

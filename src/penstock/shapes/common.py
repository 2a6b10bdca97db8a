"""What the readers of all shapes share: where things stand, the parts of a message, the calls of a history."""

from __future__ import annotations

import base64
import json
import mimetypes
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.answer.arguments import judge, strict_object
from penstock.errors import UsageError
from penstock.events import CallKind, Opaque, Reasoning, Refusal, Text, ToolCall, ToolCallInvalid
from penstock.messages import CONTENT, FIELDS, File, Image, Message, Part, Role, ToolResult
from penstock.objects import as_mapping

Json = Mapping[str, Any]


class Joined(Struct, frozen=True):
    """A message that is one with the one before it, if that is such a one of the same role: an item of a turn."""

    message: Message


class Calls:
    """The calls of a history so far: who answers which, where that is told by the tool's name and the order alone."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._open: list[str] = []

    def add(self, id: str, name: str) -> None:
        """A call was made."""
        self._names[id] = name
        self._open.append(id)

    def made_up(self, name: str) -> str:
        """An id for a call that has none, which no call before it has."""
        made, times = f"call_{name}", 1
        while made in self._names:
            times += 1
            made = f"call_{name}_{times}"
        return made

    def matching(self, name: str) -> str:
        """The id of the first call of this tool, or of any if there is no name, that waits for its result."""
        return next((id for id in self._open if not name or self._names[id] == name), "") or self.made_up(name)

    def answered(self, id: str) -> str:
        """The name of the tool whose result has come."""
        if id in self._open:
            self._open.remove(id)
        return self._names.get(id, "")


class Parts:
    """The parts of a message in the making; what is said gets a block of its own."""

    def __init__(self, wire: str, calls: Calls) -> None:
        self.wire = wire
        self._calls = calls
        self._parts: list[Part] = []
        self._blocks = 0

    def message(self, role: Role) -> Message:
        return Message(role, tuple(self._parts))

    def __len__(self) -> int:
        return len(self._parts)

    def text(self, text: str, fields: Json | None = None, wire: str = "") -> int:
        return self._said(Text(self._next(), text), fields, wire)

    def refusal(self, text: str, fields: Json | None = None) -> int:
        return self._said(Refusal(self._next(), text), fields)

    def reasoning(self, text: str) -> int:
        """A thought; one that is not shown is only the block that its state is on."""
        block = self._next()
        if text:
            self._parts.append(Reasoning(block, text))
        return block

    def media(self, media: Image | File, fields: Json | None = None, wire: str = "") -> None:
        state = (Opaque(0, wire or self.wire, FIELDS, plain(fields)),) if fields else ()
        self._parts.append(replace(media, state=state))

    def call(self, id: str, name: str, arguments: Any, at: str, kind: CallKind = "function") -> int:
        """A call, whose arguments may be JSON text, an object, or what else a model made of them."""
        self._calls.add(id, name)
        block, raw = self._next(), json_text(arguments, at)
        given = {"input": raw} if kind == "custom" else strict_object(raw)
        if given is not None:
            self._parts.append(ToolCall(id, name, given, raw, kind=kind, block=block))
        else:
            why, explained, meant = judge(raw, None)
            self._parts.append(ToolCallInvalid(block, id, name, raw, why, explained, meant))
        return block

    def state(self, block: int, kind: str, data: Any, wire: str = "") -> None:
        """State on a part, if there is any."""
        if data:
            self._parts.append(Opaque(block, wire or self.wire, kind, plain(data)))

    def whole(self, kind: str, data: Any, wire: str = "") -> int:
        """What only its vendor understands, kept as it stands."""
        block = self._next()
        self._parts.append(Opaque(block, wire or self.wire, kind, plain(data)))
        return block

    def _said(self, part: Text | Refusal, fields: Json | None, wire: str = "") -> int:
        self._parts.append(part)
        self.state(part.block, FIELDS, fields, wire)
        return part.block

    def _next(self) -> int:
        self._blocks += 1
        return self._blocks - 1


def result(
    call_id: str, shown: Parts, calls: Calls, *, name: str = "", is_error: bool = False, fields: Json, content: Any
) -> ToolResult:
    """A result of what is shown; what of its content has no word of ours stays as it stood."""
    parts = shown.message("user").parts
    told = tuple(
        Text(0, part.text) if isinstance(part, Text) else replace(part, state=())
        for part in parts
        if isinstance(part, Text | Image | File)
    )
    is_more = any(isinstance(part, Opaque) or (isinstance(part, Image | File) and part.state) for part in parts)
    state = [Opaque(0, shown.wire, FIELDS, plain(fields))] if fields else []
    state += [Opaque(0, shown.wire, CONTENT, plain(content))] if is_more else []
    known = calls.answered(call_id)
    return ToolResult(call_id, name or known, told, is_error, tuple(state))


# Where things stand, and what stands there.


def refused(place: str, why: str) -> UsageError:
    return UsageError(f"{place}: {why}")


def mapping(value: Any, place: str) -> Json:
    found = as_mapping(value)
    if found is None:
        raise refused(place, f"is a {type(value).__name__}: give a dict")
    return found


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
    value = fields.get(key)
    if not isinstance(value, str) or not value:
        raise refused(place, f"needs {key!r}, a string")
    return value


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
            return {str(key): plain(inner) for key, inner in value.items()}
        case Sequence():
            return [plain(inner) for inner in value]
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

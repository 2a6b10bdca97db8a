"""What people already hold, as messages: strings, turns, and the dicts and objects of OpenAI's and Anthropic's SDKs.

The shapes may be mixed in one list. What has no place in a message is refused, with where it stands: nothing is dropped
in silence.
"""

from __future__ import annotations

import base64
import json
import mimetypes
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from penstock.answer.arguments import judge, strict_object
from penstock.errors import UsageError
from penstock.events import CallKind, Opaque, Reasoning, Refusal, Text, ToolCall, ToolCallInvalid
from penstock.messages import File, Image, Message, Part, ToolResult, system, tool_results, user
from penstock.objects import as_mapping
from penstock.turn import Turn

Json = Mapping[str, Any]
Shown = str | Image | File

# The blocks that Anthropic's wire keeps whole, and the fields of a call that it keeps beside it.
_STATE_BLOCKS = ("redacted_thinking", "compaction", "container_upload", "fallback", "mcp_tool_listing")
_STATE_ENDINGS = ("_tool_use", "_tool_result")
_CALL_STATES = ("caller", "toolset_name")


def as_messages(what: Any) -> list[Message]:
    """The messages that these are: one of a kind that is known (a string is the user's), or a list of such."""
    if isinstance(what, Sequence | Iterator) and not isinstance(what, str | bytes):
        given = [(f"messages[{at}]", item) for at, item in enumerate(what)]
    else:
        given = [("message", what)]
    names: dict[str, str] = {}
    messages: list[Message] = []
    for place, item in given:
        for message in _read(item, place, names):
            names |= {part.id: part.name for part in message.parts if isinstance(part, ToolCall | ToolCallInvalid)}
            if message.role == "tool" and messages and messages[-1].role == "tool":
                messages[-1] = tool_results(*messages[-1].results, *message.results)
            else:
                messages.append(message)
    return messages


def _read(item: Any, place: str, names: Mapping[str, str]) -> Iterator[Message]:
    """The messages that one item is; `names` are those of the tools that were called so far, by the calls' ids."""
    match item:
        case Message():
            yield item
        case Turn():
            yield Message("assistant", item.parts)
        case str():
            yield user(item)
        case _:
            message = as_mapping(item)
            if message is None:
                raise _refused(place, f"is of the type {type(item).__name__}: give a string, a dict or a Message")
            yield from _shaped(message, place, names)


def _shaped(message: Json, place: str, names: Mapping[str, str]) -> Iterator[Message]:
    match message.get("role"):
        case "system" | "developer":
            yield system(*_system(message, place))
        case "user":
            yield from _user(message, place, names)
        case "assistant":
            yield Message("assistant", tuple(_Answer(message, place).read()))
        case "tool":
            call_id = _string(message, "tool_call_id", place)
            yield tool_results(_result(call_id, message, place, names))
        case "function":  # the older way: one call at a time, without an id
            call_id = _legacy_id(_string(message, "name", place))
            yield tool_results(_result(call_id, message, place, names))
        case None:
            raise _refused(place, f"has no role, only: {', '.join(map(str, message)) or 'nothing'}")
        case role:
            raise _refused(place, f"has the role {role!r}: give system, developer, user, assistant or tool")


# What people and tools say.


def _system(message: Json, place: str) -> Iterator[str]:
    for at, part in _parts(message, place):
        match part:
            case {"type": "text" | "input_text", "text": str(text)}:
                yield text
            case _:
                raise _refused(at, f"{_kind(part)} has no place in a message of the system: give text")


def _user(message: Json, place: str, names: Mapping[str, str]) -> Iterator[Message]:
    """What the user said; results among it, where Anthropic puts them, are a message of their own."""
    said: list[Shown] = []
    results: list[ToolResult] = []
    for at, part in _parts(message, place):
        if part.get("type") == "tool_result":
            results.append(_result(_string(part, "tool_use_id", at), part, at, names))
        else:
            said.append(_shown(part, at))
    if results:
        yield tool_results(*results)
    if said or not results:
        yield user(*said)


def _result(call_id: str, result: Json, place: str, names: Mapping[str, str]) -> ToolResult:
    shown = (_shown(part, at) for at, part in _parts(result, place))
    content = tuple(Text(0, part) if isinstance(part, str) else part for part in shown)
    name = str(result.get("name") or names.get(call_id, ""))
    return ToolResult(call_id, name, content, bool(result.get("is_error")))


def _shown(part: Json, at: str) -> Shown:
    """A part that a model is shown."""
    match part:
        case {"type": "text" | "input_text" | "output_text", "text": str(text)}:
            return text
        case {"type": "image_url" | "input_image", "image_url": {"url": str(url)} | str(url)}:
            return Image(url, _stated_type(url, "image/png"))
        case {"type": "input_image", "file_id": str(id)}:
            return Image(id)
        case {"type": "input_audio", "input_audio": {"data": str(data), "format": str(format)}}:
            media_type = mimetypes.guess_type(f"sound.{format}")[0] or f"audio/{format}"
            return File(f"data:{media_type};base64,{data}", media_type)
        case {"type": "file", "file": Mapping() as file} | ({"type": "input_file"} as file):
            return _file(file, at)
        case {"type": "image" | "document" as kind, "source": Mapping() as source}:
            return _sourced(kind, source, str(part.get("title") or ""), at)
        case _:
            raise _refused(at, f"{_kind(part)} cannot be sent: give text, an image, a file or a tool's result")


def _file(file: Json, at: str) -> File:
    name = str(file.get("filename") or "")
    usual = mimetypes.guess_type(name)[0] or "application/octet-stream"
    match file:
        case {"file_id": str(id)}:
            return File(id, name=name)
        case {"file_data": str(url)} | {"file_url": str(url)} if url.startswith(("data:", "http:", "https:")):
            return File(url, _stated_type(url, usual), name)
        case {"file_data": str(data)}:
            return File(f"data:{usual};base64,{data}", usual, name)
        case _:
            raise _refused(at, "a file needs its file_data, file_url or file_id")


def _sourced(kind: str, source: Json, name: str, at: str) -> Image | File:
    """A picture or a document as Anthropic writes it."""
    make = Image if kind == "image" else File
    match source:
        case {"type": "base64", "media_type": str(media_type), "data": str(data)}:
            return make(f"data:{media_type};base64,{data}", media_type, name)
        case {"type": "text", "data": str(text)}:
            return make(f"data:text/plain;base64,{base64.b64encode(text.encode()).decode()}", "text/plain", name)
        case {"type": "url", "url": str(url)}:
            return make(url, _stated_type(url, "image/png" if kind == "image" else "application/pdf"), name)
        case {"type": "file", "file_id": str(id)}:
            return make(id, name=name)
        case _:
            raise _refused(at, f"a source of the type {source.get('type')!r} is not known: give base64, url or file")


# What the model said.


class _Answer:
    """A message of the assistant, read part by part, each in a block of its own."""

    def __init__(self, message: Json, place: str) -> None:
        self._message = message
        self._place = place
        self._block = -1

    def read(self) -> Iterator[Part]:
        message, place = self._message, self._place
        if message.get("audio"):
            raise _refused(f"{place}.audio", "what the model spoke has no place here: give its transcript as content")
        yield from self._reasoning()
        for at, part in _parts(message, place):
            yield from self._part(part, at)
        refusal: Any = message.get("refusal")
        if refusal:
            yield Refusal(self._next(), str(refusal))
        for number, call in enumerate(message.get("tool_calls") or ()):
            at = f"{place}.tool_calls[{number}]"
            yield from self._call(_mapping(call, at), at)
        if message.get("function_call"):
            function = _mapping(message["function_call"], f"{place}.function_call")
            name = _string(function, "name", f"{place}.function_call")
            yield self._made(_legacy_id(name), name, function.get("arguments"), f"{place}.function_call")

    def _next(self) -> int:
        self._block += 1
        return self._block

    def _reasoning(self) -> Iterator[Part]:
        """The fields in which those who speak Chat Completions have it; its words may stand in two (QUIRKS 81, 82)."""
        details: Any = self._message.get("reasoning_details")
        told: Any = self._message.get("reasoning_content") or self._message.get("reasoning")
        block = self._next() if details or told else -1
        if told:
            yield Reasoning(block, str(told))
        if details:
            yield Opaque(block, "openai-chat", "reasoning_details", details)

    def _part(self, part: Json, at: str) -> Iterator[Part]:
        match part:
            case {"type": "text" | "output_text", "text": str(text)}:
                block = self._next()
                yield Text(block, text)
                yield from self._state(block, part, "citations")
            case {"type": "refusal", "refusal": str(text)}:
                yield Refusal(self._next(), text)
            case {"type": "thinking", "thinking": str(text)}:
                block = self._next()
                if text:
                    yield Reasoning(block, text)
                yield from self._state(block, part, "signature")
            case {"type": "thinking", "thinking": [*pieces]}:  # Mistral's
                yield Reasoning(self._next(), "".join(_thought(piece, at) for piece in pieces))
            case {"type": "tool_use"}:
                call = self._made(_string(part, "id", at), _string(part, "name", at), part.get("input"), at)
                yield call
                yield from self._state(call.block, part, *_CALL_STATES)
            case {"type": str(kind)} if kind in _STATE_BLOCKS or kind.endswith(_STATE_ENDINGS):
                yield Opaque(self._next(), "anthropic", kind, dict(part))
            case _:
                raise _refused(at, f"{_kind(part)} is no part of an answer that is known")

    def _state(self, block: int, part: Json, *kinds: str) -> Iterator[Opaque]:
        for kind in kinds:
            if part.get(kind) and part[kind] != {"type": "direct"}:  # the usual caller
                yield Opaque(block, "anthropic", kind, part[kind])

    def _call(self, call: Json, at: str) -> Iterator[Part]:
        id = _string(call, "id", at)
        match call:
            case {"function": function}:
                inner = _mapping(function, f"{at}.function")
                made = self._made(id, _string(inner, "name", f"{at}.function"), inner.get("arguments"), at)
            case {"custom": custom}:
                inner = _mapping(custom, f"{at}.custom")
                made = self._made(id, _string(inner, "name", f"{at}.custom"), inner.get("input"), at, "custom")
            case _:
                raise _refused(at, "is neither a function's call nor a custom one")
        yield made
        if call.get("extra_content"):  # QUIRKS 149
            yield Opaque(made.block, "openai-chat", "extra_content", call["extra_content"])

    def _made(
        self, id: str, name: str, arguments: Any, at: str, kind: CallKind = "function"
    ) -> ToolCall | ToolCallInvalid:
        """A call, whose arguments may be JSON text, an object, or what else a model made of them."""
        block, raw = self._next(), _json_text(arguments, at)
        given = {"input": raw} if kind == "custom" else strict_object(raw)
        if given is not None:
            return ToolCall(id, name, given, raw, kind=kind, block=block)
        why, explained, meant = judge(raw, None)
        return ToolCallInvalid(block, id, name, raw, why, explained, meant)


def _json_text(arguments: Any, at: str) -> str:
    if isinstance(arguments, str):
        return arguments
    try:
        return json.dumps({} if arguments is None else arguments, ensure_ascii=False)
    except (TypeError, ValueError) as error:
        raise _refused(at, f"the arguments are not JSON: {error}") from None


def _thought(piece: Any, at: str) -> str:
    shown = piece if isinstance(piece, str) else _shown(_mapping(piece, at), at)
    if not isinstance(shown, str):
        raise _refused(at, "a thought holds text only")
    return shown


# Where things stand, and what stands there.


def _parts(message: Json, place: str) -> Iterator[tuple[str, Json]]:
    """The parts of a content, whatever it is: text, or a list of parts, which may be text too."""
    content = message.get("content")
    match content:
        case None | "":
            pass
        case str():
            yield f"{place}.content", {"type": "text", "text": content}
        case Iterable() if not isinstance(content, Mapping | bytes):
            for number, part in enumerate(content):
                at = f"{place}.content[{number}]"
                yield at, {"type": "text", "text": part} if isinstance(part, str) else _mapping(part, at)
        case _:
            raise _refused(f"{place}.content", f"is a {type(content).__name__}: give a string or a list of parts")


def _mapping(value: Any, place: str) -> Json:
    found = as_mapping(value)
    if found is None:
        raise _refused(place, f"is a {type(value).__name__}: give a dict")
    return found


def _string(mapping: Json, key: str, place: str) -> str:
    value = mapping.get(key)
    if not isinstance(value, str) or not value:
        raise _refused(place, f"needs {key!r}, a string")
    return value


def _kind(part: Json) -> str:
    return f"a part of the type {part['type']!r}" if part.get("type") else f"a part with {', '.join(map(str, part))}"


def _stated_type(url: str, usual: str) -> str:
    """The type that a URL states or shows."""
    if url.startswith("data:"):
        return url[len("data:") :].partition(",")[0].partition(";")[0] or usual
    return mimetypes.guess_type(url.partition("?")[0])[0] or usual


def _legacy_id(name: str) -> str:
    return f"call_{name}"


def _refused(place: str, why: str) -> UsageError:
    return UsageError(f"{place}: {why}")

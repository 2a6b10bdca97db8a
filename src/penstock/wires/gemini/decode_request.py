"""Gemini's contents, in the spelling of the wire (`functionCall`) and in that of Google's client (`function_call`).

Calls and responses without ids belong together by the tool's name and the order (QUIRKS 148).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.events import Opaque
from penstock.messages import FIELDS, File, Image, ToolResult
from penstock.wires.gemini.encode_request import PARTS
from penstock.wires.gemini.facts import FACTS
from penstock.wires.shared.fields import (
    Json,
    contents,
    data_url,
    kind_of,
    mapping,
    nested,
    nothing_else,
    plain,
    refused,
    rest,
    stated_type,
    string,
)
from penstock.wires.shared.message_parts import Parts, result
from penstock.wires.shared.places import Placed, answers
from penstock.wires.shared.unnamed_calls import Calls

WIRE = FACTS.wire
SIGNATURE = "thought_signature"

_WHOLE = ("inlineData", "fileData", "executableCode", "codeExecutionResult", "toolCall", "toolResponse")
"""What Gemini made or ran itself: the wire keeps it whole, and here what came later is kept too."""
INTERACTIONS = ("user_input", "model_output")
"""The types of items of Gemini's Interactions, another protocol."""
_ROLES = ("user", "model", "function", "system", None)
_IGNORED = ("thought", "thoughtSignature")


def is_message(message: Json) -> bool:
    """Whether this is a content: parts, which do not tell their type as ours do; an empty answer may have none."""
    return message.get("role") == "model" or ("parts" in message and "content" not in message)


def read(content: Json, place: str, calls: Calls) -> Iterator[Placed]:
    """The messages that a content is; responses among what the user says are messages of their own, in the order."""
    role: Any = content.get("role")
    if role not in _ROLES:
        raise refused(place, f"has the role {role!r}: give user or model")
    if "content" in content:
        raise refused(place, f"has the role {role!r}, which is Gemini's, and a content: give parts")
    nothing_else(content, ("role", "parts"), place)
    given = [(at, _camel(part)) for at, part in _parts(content.get("parts"), f"{place}.parts")]
    if role == "model":
        yield _model(given, place, calls)
        return
    for is_response, group in groupby(given, key=lambda item: "functionResponse" in item[1]):
        if is_response:
            yield answers([(at, _response(part, at, calls)) for at, part in group], place)
        else:
            yield _said([*group], place, calls, "system" if role == "system" else "user")
    if not given:
        yield _said([], place, calls, "system" if role == "system" else "user")


def _parts(parts: Any, place: str) -> Iterator[tuple[str, Json]]:
    """The parts; a string, or one part alone, stands for a list of it."""
    alone = isinstance(parts, Mapping)
    for at, part in contents([parts] if alone else parts, place):
        yield at, {"text": part["text"]} if part.get("type") == "text" and "text" in part else part


def _camel(fields: Json) -> dict[str, Any]:
    """The fields in the wire's spelling; what is in them stays as it is, but for what we read ourselves."""
    spelled = {_camel_word(str(key)): value for key, value in fields.items() if value is not None}
    for key in ("functionCall", "functionResponse", "inlineData", "fileData"):
        if isinstance(spelled.get(key), Mapping):
            spelled[key] = {_camel_word(str(name)): value for name, value in spelled[key].items() if value is not None}
    return plain(spelled)  # type: ignore[no-any-return]


def _camel_word(word: str) -> str:
    first, *others = word.split("_")
    return first + "".join(other.capitalize() for other in others)


# What the model said.


def _model(given: list[tuple[str, dict[str, Any]]], place: str, calls: Calls) -> Placed:
    parts = Parts(WIRE, calls, place)
    for at, part in given:
        parts.at = at
        signature = part.get("thoughtSignature")
        match part:
            case {"functionCall": Mapping() as call}:
                block = _call(parts, call, at, calls)
                beside = nested("functionCall", rest(call, ("id", "name", "args")))
                parts.state(block, FIELDS, rest(part, ("functionCall", *_IGNORED)) | beside)
            case {"text": str(text), "thought": True}:
                block = parts.reasoning(text)
                parts.state(block, FIELDS, rest(part, ("text", *_IGNORED)))
            case {"text": "", "thoughtSignature": str()}:
                nothing_else(part, ("text", *_IGNORED), at)
                block = parts.reasoning("")
            case {"text": str(text)}:
                block = parts.text(text, rest(part, ("text", *_IGNORED)))
            case {"functionResponse": _}:
                parts.answer(_response(part, at, calls))
                continue
            case _:
                kept = {key: value for key, value in part.items() if key != "thoughtSignature"}
                if not kept:
                    raise refused(at, f"{kind_of(part)} is no part of an answer")
                block = parts.whole(next((key for key in _WHOLE if key in kept), next(iter(kept))), kept)
        parts.state(block, SIGNATURE, signature)
    return parts.build("assistant")


def _call(parts: Parts, call: Json, at: str, calls: Calls) -> int:
    name = string(call, "name", f"{at}.functionCall")
    given = string(call, "id", f"{at}.functionCall")
    block = parts.call(given or calls.made_up(name), name, call.get("args"), at)
    parts.state(block, "id", given)
    return block


# What people and tools say.


def _said(given: list[tuple[str, dict[str, Any]]], place: str, calls: Calls, role: Any) -> Placed:
    parts = Parts(WIRE, calls, place)
    for at, part in given:
        parts.at = at
        if role == "system":
            nothing_else(part, ("text", "thought"), at)
        _show(parts, part, at)
    return parts.build(role)


def _show(parts: Parts, part: Json, at: str) -> None:
    fields = rest(part, ("text", "inlineData", "fileData", "thought"))
    match part:
        case {"text": str(text)}:
            parts.text(text, fields)
        case {"inlineData": {"data": str(data)}}:
            media_type = str(part["inlineData"].get("mimeType") or "application/octet-stream")
            parts.media(_media(data_url(media_type, data), media_type), fields | _named(part, "inlineData", "data"))
        case {"fileData": {"fileUri": str(uri)}}:
            media_type = str(part["fileData"].get("mimeType") or stated_type(uri, ""))
            parts.media(_media(uri, media_type), fields | _named(part, "fileData", "fileUri"))
        case _:
            raise refused(at, f"{kind_of(part)} cannot be sent: give text, inlineData, fileData or a functionResponse")


def _named(part: Json, kind: str, told: str) -> dict[str, Any]:
    """What else is said of the data: a name to show it under, say."""
    return nested(kind, rest(part[kind], ("mimeType", told)))


def _media(url: str, media_type: str) -> Image | File:
    return (Image if media_type.startswith("image/") else File)(url, media_type)


def _response(part: Json, at: str, calls: Calls) -> ToolResult:
    place = f"{at}.functionResponse"
    response = mapping(part["functionResponse"], place)
    name = string(response, "name", place)
    shown = Parts(WIRE, calls, place)
    text, is_error = _told(response.get("response"))
    shown.text(text)
    for inner_at, inner in _parts(response.get("parts") or (), f"{place}.parts"):
        _show(shown, _camel(inner), inner_at)
    fields = rest(response, ("id", "name", "response", "parts"))
    beside = nested("functionResponse", fields) | rest(part, ("functionResponse",))
    call_id = string(response, "id", place) or calls.matching(name)
    found = result(call_id, shown, calls, name=name, is_error=is_error, fields=beside)
    media = [part for part in shown.build("user").message.parts if isinstance(part, Image | File)]
    within = [part.state_of(WIRE).get(FIELDS, {}) for part in media]
    return replace(found, state=(*found.state, Opaque(0, WIRE, PARTS, within))) if within else found


def _told(response: Any) -> tuple[str, bool]:
    """What a response says, and whether it is an error; it goes out again as it came in."""
    match response:
        case {"error": str(text), **others} if not others:
            return text, True
        case {"result": str(text), **others} if not others and not _is_object(text):
            return text, False
        case _:
            return json.dumps(plain(response or {}), ensure_ascii=False), False


def _is_object(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return False
    return True

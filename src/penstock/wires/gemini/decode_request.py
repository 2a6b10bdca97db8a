"""Reads Gemini's contents, in the spelling of the wire (`functionCall`) and of Google's SDK (`function_call`).

Contents of one role that follow each other are one message: Google's chats keep one for each chunk of a response.
Calls and responses without ids are matched by the name of the tool and their order (QUIRKS 148).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

import msgspec
from msgspec.structs import replace

from penstock.events import Opaque
from penstock.messages import PART_FIELDS, File, Image, ToolResult
from penstock.wires.gemini.calls import camel_case
from penstock.wires.gemini.encode_request import PARTS
from penstock.wires.gemini.facts import FACTS, STATE_PARTS
from penstock.wires.shared.decode_request.call_matcher import CallMatcher
from penstock.wires.shared.decode_request.fields import (
    Json,
    data_url,
    describe_part,
    nested,
    other_fields,
    read_object,
    read_parts,
    read_text,
    refuse_other_fields,
    refuse_unread,
    to_json,
    type_of_url,
    unreadable,
)
from penstock.wires.shared.decode_request.message_builder import MessageBuilder, build_result
from penstock.wires.shared.decode_request.message_reader import ReadContext, RequestReader
from penstock.wires.shared.decode_request.places import PlacedMessage, place_results
from penstock.wires.shared.decode_request.request_settings import (
    NO_PROBABILITIES,
    Fields,
    RequestSettings,
    ToolChoice,
    read_tools,
)
from penstock.wires.shared.request import OutputFormat

WIRE = FACTS.wire
SIGNATURE = "thought_signature"

_ROLES = ("user", "model", "function", "system", None)
_SIGNED = ("thought", "thoughtSignature")


class GeminiReader(RequestReader):
    """Contents: they have parts instead of a content; an empty answer may have none."""

    wire = WIRE
    history_field = "contents"
    system_fields = ("systemInstruction", "system_instruction")

    def is_request(self, body: Json) -> bool:
        return True  # no other wire has its history in this field

    def is_own(self, message: Json) -> bool:
        return message.get("role") == "model" or ("parts" in message and "content" not in message)

    def read(self, message: Json, place: str, context: ReadContext, wire: str) -> Iterator[PlacedMessage]:
        return _read(message, place, context.calls)

    def read_system(self, content: Any, place: str, context: ReadContext) -> Iterator[PlacedMessage]:
        fields = content if isinstance(content, Mapping) and "parts" in content else {"parts": content}
        return _read({**fields, "role": "system"}, place, context.calls)


READER = GeminiReader()


def _read(content: Json, place: str, calls: CallMatcher) -> Iterator[PlacedMessage]:
    """The messages that a content becomes; responses in a user content become messages of their own."""
    role: Any = content.get("role")
    if role not in _ROLES:
        raise unreadable(place, f"has the role {role!r}; expected user or model")
    if "content" in content:
        raise unreadable(place, f"has Gemini's role {role!r}, so it needs parts instead of a content")
    refuse_other_fields(content, ("role", "parts"), place)
    placed_parts = [(part_place, _camel(part)) for part_place, part in _parts(content.get("parts"), f"{place}.parts")]
    if role == "model":
        yield _model(placed_parts, place, calls)
        return
    for is_response, group in groupby(placed_parts, key=lambda item: "functionResponse" in item[1]):
        if is_response:
            yield place_results([(part_place, _response(part, part_place, calls)) for part_place, part in group], place)
        else:
            yield _build([*group], place, calls, "system" if role == "system" else "user")
    if not placed_parts:
        yield _build([], place, calls, "system" if role == "system" else "user")


def _parts(parts: Any, place: str) -> Iterator[tuple[str, Json]]:
    """The parts; a string, or one part, is the same as a list with it."""
    alone = isinstance(parts, Mapping)
    for part_place, part in read_parts([parts] if alone else parts, place):
        yield part_place, {"text": part["text"]} if part.get("type") == "text" and "text" in part else part


def _camel(fields: Json) -> dict[str, Any]:
    """The fields in the spelling of the wire, and so the fields in the objects that we read."""
    spelled = {_camel_word(str(key)): value for key, value in fields.items() if value is not None}
    for key in ("functionCall", "functionResponse", "inlineData", "fileData"):
        if isinstance(spelled.get(key), Mapping):
            spelled[key] = {_camel_word(str(name)): value for name, value in spelled[key].items() if value is not None}
    return to_json(spelled)  # type: ignore[no-any-return]


def _camel_word(word: str) -> str:
    first, *others = word.split("_")
    return first + "".join(other.capitalize() for other in others)


# Model contents.


def _model(placed_parts: list[tuple[str, dict[str, Any]]], place: str, calls: CallMatcher) -> PlacedMessage:
    parts = MessageBuilder(WIRE, calls, place)
    for part_place, part in placed_parts:
        parts.place = part_place
        signature = part.get("thoughtSignature")
        match part:
            case {"functionCall": Mapping() as call}:
                block = _call(parts, call, part_place, calls)
                fields = nested("functionCall", other_fields(call, ("id", "name", "args")))
                parts.state(block, PART_FIELDS, other_fields(part, ("functionCall", *_SIGNED)) | fields)
            case {"text": str(text), "thought": True}:
                block = parts.reasoning(text)
                parts.state(block, PART_FIELDS, other_fields(part, ("text", *_SIGNED)))
            case {"text": "", "thoughtSignature": str()}:
                refuse_other_fields(part, ("text", *_SIGNED), part_place)
                block = parts.reasoning("")
            case {"text": str(text)}:
                block = parts.text(text, other_fields(part, ("text", *_SIGNED)))
            case {"functionResponse": _}:
                parts.tool_result(_response(part, part_place, calls))
                continue
            case _:
                kept = {key: value for key, value in part.items() if key != "thoughtSignature"}
                if not kept:
                    raise unreadable(part_place, f"{describe_part(part)} is not a known part of an answer")
                block = parts.opaque(next((key for key in STATE_PARTS if key in kept), next(iter(kept))), kept)
        parts.state(block, SIGNATURE, signature)
    return parts.build("assistant", joins="chunk")


def _call(parts: MessageBuilder, call: Json, place: str, calls: CallMatcher) -> int:
    name = read_text(call, "name", f"{place}.functionCall")
    if call.get("args") is None:
        refuse_unread(call, ("id", "name", "args"), f"{place}.functionCall", "args")
    vendor_id = read_text(call, "id", f"{place}.functionCall")
    block = parts.call(vendor_id or calls.new_id(name), name, call.get("args"), place)
    parts.state(block, "id", vendor_id)
    return block


# User contents and responses.


def _build(placed_parts: list[tuple[str, dict[str, Any]]], place: str, calls: CallMatcher, role: Any) -> PlacedMessage:
    parts = MessageBuilder(WIRE, calls, place)
    for part_place, part in placed_parts:
        parts.place = part_place
        if role == "system":
            refuse_other_fields(part, ("text", "thought"), part_place)
        _read_content(parts, part, part_place)
    return parts.build(role, joins="alone" if role == "system" else "item")


def _read_content(parts: MessageBuilder, part: Json, place: str) -> None:
    fields = other_fields(part, ("text", "inlineData", "fileData", "thought"))
    match part:
        case {"text": str(text)}:
            parts.text(text, fields)
        case {"inlineData": {"data": str(data)}}:
            media_type = str(part["inlineData"].get("mimeType") or "application/octet-stream")
            parts.media(
                _media(data_url(media_type, data), media_type), fields | _other_data_fields(part, "inlineData", "data")
            )
        case {"fileData": {"fileUri": str(uri)}}:
            media_type = str(part["fileData"].get("mimeType") or type_of_url(uri, ""))
            parts.media(_media(uri, media_type), fields | _other_data_fields(part, "fileData", "fileUri"))
        case _:
            raise unreadable(
                place, f"{describe_part(part)} cannot be sent; send text, inlineData, fileData or a functionResponse"
            )


def _other_data_fields(part: Json, kind: str, known: str) -> dict[str, Any]:
    """The other fields of the data: a display name, for example."""
    return nested(kind, other_fields(part[kind], ("mimeType", known)))


def _media(url: str, media_type: str) -> Image | File:
    return (Image if media_type.startswith("image/") else File)(url, media_type)


def _response(part: Json, part_place: str, calls: CallMatcher) -> ToolResult:
    place = f"{part_place}.functionResponse"
    response = read_object(part["functionResponse"], place)
    name = read_text(response, "name", place)
    if response.get("response") is None:
        refuse_unread(response, ("id", "name", "response", "parts"), place, "response")
    builder = MessageBuilder(WIRE, calls, place)
    text, is_error = _response_text(response.get("response"))
    builder.text(text)
    for inner_place, inner in _parts(response.get("parts") or (), f"{place}.parts"):
        _read_content(builder, _camel(inner), inner_place)
    fields = other_fields(response, ("id", "name", "response", "parts"))
    fields = nested("functionResponse", fields) | other_fields(part, ("functionResponse",))
    call_id = read_text(response, "id", place) or calls.next_call_id(name)
    tool_result = build_result(call_id, builder, calls, name=name, is_error=is_error, fields=fields)
    media = [part for part in builder.build("user").message.parts if isinstance(part, Image | File)]
    within = [part.state_of(WIRE).get(PART_FIELDS, {}) for part in media]
    if not within:
        return tool_result
    return replace(tool_result, state=(*tool_result.state, Opaque(0, WIRE, PARTS, within)))


def _response_text(response: Any) -> tuple[str, bool]:
    """The text of a response, and whether it is an error."""
    match response:
        case {"error": str(text), **others} if not others:
            return text, True
        case {"result": str(text), **others} if not others and not _is_object(text):
            return text, False
        case _:
            return json.dumps(to_json(response or {}), ensure_ascii=False), False


def _is_object(text: str) -> bool:
    try:
        msgspec.json.decode(text, type=dict[str, Any])
    except msgspec.MsgspecError:
        return False
    return True


# Settings.

_OPTIONS = {
    "maxOutputTokens": "max_tokens", "temperature": "temperature", "topP": "top_p", "topK": "top_k",
    "stopSequences": "stop", "seed": "seed", "presencePenalty": "presence_penalty",
    "frequencyPenalty": "frequency_penalty",
}  # fmt: skip
_MODES = {"AUTO": "auto", "ANY": "required", "NONE": "none", "VALIDATED": "auto", "MODE_UNSPECIFIED": ""}
_FORMATS = ("responseMimeType", "responseJsonSchema", "responseSchema")
JSON = "application/json"
DYNAMIC = -1
"""The budget that leaves it to the model how much it thinks."""
_LEVELS = {"MINIMAL": "minimal", "LOW": "low", "MEDIUM": "medium", "HIGH": "high"}


def read_settings(body: Mapping[str, Any], model: str = "", is_streaming: bool | None = None) -> RequestSettings:
    """The settings of a request body."""
    fields = Fields(camel_case(dict(body)))
    for name in ("contents", "systemInstruction"):
        fields.rest.pop(name, None)
    named = model or fields.required_text("model", "it in the path: /models/{model}:generateContent")
    fields.rest.pop("model", None)
    tools = read_tools(fields.objects("tools"))
    choice = _tool_choice(fields)
    config = fields.inner("generationConfig", camel_case)
    options, reasoning = config.options(_OPTIONS), _read_reasoning(config)
    exact = {"tool_choice": choice.exact} if choice.exact else {}
    if reasoning.get("reasoning") == DYNAMIC:
        reasoning = {"reasoning": "medium"}
        exact["reasoning"] = {"generationConfig": {"thinkingConfig": {"thinkingBudget": DYNAMIC}}}
    formats = {name: config.rest[name] for name in _FORMATS if name in config.rest}
    output = _output(config)
    dropped = config.leave_out("responseLogprobs", "logprobs", why=NO_PROBABILITIES)
    if formats.get("responseMimeType", JSON) != JSON:
        exact["output"] = {"generationConfig": formats}
    fields.put_back("generationConfig", config)
    return RequestSettings(
        model=named.removeprefix("models/"),
        tools=tools,
        tool_choice=choice.choice,
        is_streaming=bool(is_streaming),
        options=options | reasoning,
        output=output,
        allowed_tools=choice.allowed,
        exact=exact,
        extra=fields.rest,
        partial=frozenset(fields.partial),
        dropped=dropped,
    )


def _tool_choice(fields: Fields) -> ToolChoice:
    outer = Fields(camel_case(fields.take("toolConfig", dict, "an object") or {}), "toolConfig")
    sent = camel_case(outer.take("functionCallingConfig", dict, "an object") or {})
    config = Fields(sent, "toolConfig.functionCallingConfig")
    fields.put_back("toolConfig", outer)
    mode = config.text("mode").upper()
    names: list[Any] = config.take("allowedFunctionNames", list, "a list of names") or []
    if mode and mode not in _MODES:
        raise unreadable(config.place("mode"), f"{mode!r} is not known; send AUTO, ANY or NONE")
    if not all(isinstance(name, str) for name in names):
        raise unreadable(config.place("allowedFunctionNames"), "must be a list of names")
    if mode == "ANY" and len(names) == 1:
        return ToolChoice(names[0])
    exact = {"toolConfig": {"functionCallingConfig": sent}} if names or mode == "VALIDATED" else {}
    return ToolChoice(_MODES.get(mode, ""), tuple(names), exact)


def _read_reasoning(config: Fields) -> dict[str, Any]:
    """The level or the budget. Whether thoughts are shown is put back, unless we ask for the same."""
    thinking = Fields(
        camel_case(config.take("thinkingConfig", dict, "an object") or {}), "generationConfig.thinkingConfig"
    )
    level, budget = thinking.rest.get("thinkingLevel"), thinking.take("thinkingBudget", int, "a whole number")
    reasoning: dict[str, Any] = {} if budget is None else {"reasoning": budget}
    if isinstance(level, str) and level.upper() in _LEVELS:
        reasoning = {"reasoning": _LEVELS[thinking.text("thinkingLevel").upper()]}
    if reasoning and budget != DYNAMIC and thinking.rest.get("includeThoughts") is bool(reasoning["reasoning"]):
        del thinking.rest["includeThoughts"]
    config.put_back("thinkingConfig", thinking)
    return reasoning


def _output(config: Fields) -> OutputFormat | None:
    media_type = config.text("responseMimeType")
    schemas = [config.take(name, dict, "a schema") for name in ("responseJsonSchema", "responseSchema")]
    schema: Any = next((schema for schema in schemas if schema is not None), None)
    return OutputFormat(schema) if schema is not None or media_type == JSON else None

"""Reads the steps of Google's Interactions; the steps of one turn of the model are joined to one message.

An input may also be a list of content parts, which are one message of the user. Steps of hosted tools, and of unknown
types among known ones, are kept whole, in the order of the turn.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from msgspec.structs import replace

from penstock.events import Opaque
from penstock.messages import PART_FIELDS, RESULT_CONTENT, File, Image, ToolResult
from penstock.wires.gemini_interactions.encode_request import JSON
from penstock.wires.gemini_interactions.facts import ANNOTATIONS, FACTS, HOSTED_TOOLS, MEDIA, SIGNATURE
from penstock.wires.shared.decode_request.fields import (
    Json,
    data_url,
    describe_part,
    other_fields,
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
from penstock.wires.shared.decode_request.request_settings import Fields, RequestSettings, ToolChoice, read_tools
from penstock.wires.shared.request import EFFORTS, OutputFormat

WIRE = FACTS.wire
RESULT = "function_result"

_STEPS = {"user_input", "model_output", "thought", RESULT,
          *(f"{tool}_{end}" for tool in HOSTED_TOOLS for end in ("call", "result"))}  # fmt: skip
_CONTENT = ("text", *MEDIA)
_REQUEST_FIELDS = ("generation_config", "system_instruction", "previous_interaction_id", "agent", "response_modalities")
"""Fields that no other request with an `input` has."""


class InteractionsReader(RequestReader):
    """The steps of Interactions."""

    wire = WIRE
    history_field = "input"
    system_fields = ("system_instruction",)

    def is_request(self, body: Json) -> bool:
        steps: Any = body.get("input")
        first = next((step for step in steps if isinstance(step, Mapping)), {}) if isinstance(steps, list) else {}
        has_content = first.get("type") in _CONTENT and "role" not in first
        return any(body.get(field) for field in _REQUEST_FIELDS) or self.is_own(first) or has_content

    def is_continued(self, body: Json) -> bool:
        return any(body.get(field) for field in FACTS.continued_by)

    def is_own(self, message: Json) -> bool:
        """Whether this is a step; two types of steps are also types of items of Responses, with other fields."""
        match message.get("type"):
            case "function_call":
                return "call_id" not in message and isinstance(message.get("arguments"), Mapping)
            case "file_search_call":
                return "queries" not in message and "status" not in message
            case str(kind):
                return kind in _STEPS and "role" not in message
            case _:
                return False

    def is_typical(self, message: Json) -> bool:
        return self.is_own(message)

    def keeps(self, message: Json) -> bool:
        """Whether this is a step or a content part, also of a new type; calls of Responses have another id."""
        return isinstance(message.get("type"), str) and "role" not in message and "call_id" not in message

    def read(self, message: Json, place: str, context: ReadContext, wire: str) -> Iterator[PlacedMessage]:
        return _read(message, place, context)


READER = InteractionsReader()


def _read(step: Json, place: str, context: ReadContext) -> Iterator[PlacedMessage]:
    """The messages that a step becomes."""
    kind: Any = step.get("type")
    match kind:
        case "user_input":
            yield from _user(step, place, context)
        case "function_result":
            yield place_results([(place, _result(step, place, context))], place, joins="item")
        case str() if kind in _CONTENT:
            parts = MessageBuilder(WIRE, context.calls, place)
            _read_content(parts, step, place)
            yield parts.build("user", joins="item")
        case str():
            parts = MessageBuilder(WIRE, context.calls, place)
            _read_step(parts, kind, step, place)
            if not parts.is_empty:
                yield parts.build("assistant", joins="item")
        case _:
            raise unreadable(place, "needs a 'type' that is a string; send user_input or another step")


def _user(step: Json, place: str, context: ReadContext) -> Iterator[PlacedMessage]:
    """The messages of a user's step; results in it, as some clients send them, become messages of their own."""
    content = [*read_parts(step.get("content"), f"{place}.content")]
    refuse_other_fields(step, ("type", "content"), place)
    for is_result, group in groupby(content, key=lambda item: item[1].get("type") == RESULT):
        if is_result:
            yield place_results([(inner, _result(part, inner, context)) for inner, part in group], place, joins="item")
            continue
        parts = MessageBuilder(WIRE, context.calls, place)
        for part_place, part in group:
            parts.place = part_place
            _read_content(parts, part, part_place)
        yield parts.build("user")
    if not content:
        yield MessageBuilder(WIRE, context.calls, place).build("user")


def _read_content(parts: MessageBuilder, part: Json, place: str) -> None:
    match part:
        case {"type": "text", "text": str(text)}:
            parts.text(text, other_fields(part, ("type", "text")))
        case {"type": str(kind)} if kind in MEDIA and ("data" in part or "uri" in part):
            fields = other_fields(part, ("type", "data", "uri", "mime_type"))
            parts.media(_media(kind, part, place), fields)
        case _:
            raise unreadable(place, f"{describe_part(part)} cannot be sent; send text, an image or another medium")


def _media(kind: str, part: Json, place: str) -> Image | File:
    stated, data = read_text(part, "mime_type", place), part.get("data")
    if isinstance(data, str | bytes):
        media_type = stated or ("image/png" if kind == "image" else "application/octet-stream")
        url = data_url(media_type, data)
    else:
        url = read_text(part, "uri", place)
        media_type = stated or type_of_url(url, "")
    return (Image if kind == "image" else File)(url, media_type)


# Steps of the model.


def _read_step(parts: MessageBuilder, kind: str, step: Json, place: str) -> None:
    match kind, step:
        case "thought", _ if _is_plain_thought(step):
            texts = [str(part.get("text") or "") for _, part in read_parts(step.get("summary"), f"{place}.summary")]
            if any(texts) or step.get(SIGNATURE):
                parts.state(parts.reasoning("".join(texts)), SIGNATURE, step.get(SIGNATURE))
        case "model_output", _ if not other_fields(step, ("type", "content")):
            for part_place, part in read_parts(step.get("content"), f"{place}.content"):
                parts.place = part_place
                _read_answer(parts, part, part_place)
        case "function_call", _:
            id, name = read_text(step, "id", place), read_text(step, "name", place)
            if step.get("arguments") is None:
                refuse_unread(step, ("type", "id", "name", "arguments", SIGNATURE), place, "arguments")
            block = parts.call(id, name, step.get("arguments"), place)
            parts.state(block, SIGNATURE, step.get(SIGNATURE))
            parts.state(block, PART_FIELDS, other_fields(step, ("type", "id", "name", "arguments", SIGNATURE)))
        case _:
            parts.opaque(kind, step)


def _is_plain_thought(step: Json) -> bool:
    """Whether a thought is nothing but text and a signature; any other is kept whole."""
    summary: Any = step.get("summary") or []
    parts = summary if isinstance(summary, list) else [summary]
    is_text = all(isinstance(part, Mapping) and other_fields(part, ("text",)) == {"type": "text"} for part in parts)
    return is_text and not other_fields(step, ("type", "summary", SIGNATURE))


def _read_answer(parts: MessageBuilder, part: Json, place: str) -> None:
    match part:
        case {"type": "text", "text": str(text)}:
            block = parts.text(text, other_fields(part, ("type", "text", ANNOTATIONS)))
            parts.state(block, ANNOTATIONS, part.get(ANNOTATIONS))
        case {"type": str(kind)} if kind in MEDIA:
            parts.opaque(kind, part)
        case _:
            raise unreadable(place, f"{describe_part(part)} is not a known part of an answer")


def _result(step: Json, place: str, context: ReadContext) -> ToolResult:
    """A result: text, a list of parts, or an object, which is kept as it is."""
    value = step.get("result")
    if value in (None, ""):
        refuse_unread(step, ("type", "call_id", "name", "result", "is_error"), place, "result")
    content = MessageBuilder(WIRE, context.calls, place)
    is_parts = isinstance(value, str | list) or value is None
    if is_parts:
        for part_place, part in read_parts(value, f"{place}.result"):
            _read_content(content, part, part_place)
    else:
        content.text(json.dumps(to_json(value), ensure_ascii=False))
    fields = other_fields(step, ("type", "call_id", "name", "result", "is_error"))
    built = build_result(
        read_text(step, "call_id", place), content, context.calls,
        name=read_text(step, "name", place) or None, is_error=step.get("is_error") is True, fields=fields,
        content=value,
    )  # fmt: skip
    return built if is_parts else replace(
        built, state=(*built.state, Opaque(0, WIRE, RESULT_CONTENT, to_json(value)))
    )  # fmt: skip


# Settings.

_OPTIONS = {
    "max_output_tokens": "max_tokens", "temperature": "temperature", "top_p": "top_p", "stop_sequences": "stop",
    "seed": "seed",
}  # fmt: skip
_MODES = {"auto": "auto", "any": "required", "none": "none", "validated": "auto"}


def read_settings(body: Mapping[str, Any], model: str = "", is_streaming: bool | None = None) -> RequestSettings:
    """The settings of a request body."""
    fields = Fields(body)
    for name in ("input", "system_instruction"):
        fields.rest.pop(name, None)
    named, is_stream = model or fields.required_text("model", "the name of a model"), bool(fields.flag("stream"))
    fields.rest.pop("model", None)
    tools = read_tools(fields.objects("tools"))
    config = fields.inner("generation_config")
    choice, options = _tool_choice(config), config.options(_OPTIONS) | _read_reasoning(config)
    fields.put_back("generation_config", config)
    return RequestSettings(
        model=named,
        tools=tools,
        tool_choice=choice.choice,
        is_streaming=is_stream if is_streaming is None else is_streaming,
        options=options,
        output=_output(fields),
        previous_response=fields.text("previous_interaction_id"),
        is_kept=body.get("store") is not False,
        has_instructions=bool(body.get("system_instruction")),
        allowed_tools=choice.allowed,
        exact={"tool_choice": choice.exact} if choice.exact else {},
        extra=fields.rest,
        partial=frozenset(fields.partial),
    )


def _tool_choice(config: Fields) -> ToolChoice:
    choice, place = config.rest.pop("tool_choice", None), config.place("tool_choice")
    exact = {"generation_config": {"tool_choice": choice}}
    match choice:
        case None:
            return ToolChoice()
        case "validated":
            return ToolChoice("auto", (), exact)
        case str() if choice in _MODES:
            return ToolChoice(_MODES[choice])
        case {"allowed_tools": {"tools": [str(name)], **rest}} if rest.get("mode") == "any":
            return ToolChoice(name)
        case {"allowed_tools": {"tools": [*names], **rest}} if all(isinstance(name, str) for name in names):
            mode = _MODES.get(str(rest.get("mode") or "auto"), "auto")
            return ToolChoice(mode, tuple(names), exact)
        case _:
            raise unreadable(place, "send auto, any, none, or allowed_tools with a mode and names")


def _read_reasoning(config: Fields) -> dict[str, Any]:
    """The level of thinking. Whether it is summarised is put back, unless we ask for the same."""
    if config.rest.get("thinking_level") not in EFFORTS:
        return {}
    if config.rest.get("thinking_summaries") == "auto":
        del config.rest["thinking_summaries"]
    return {"reasoning": config.text("thinking_level")}


def _output(fields: Fields) -> OutputFormat | None:
    """The format of the answer; formats of other media stay with the fields of this protocol."""
    match fields.rest.get("response_format"):
        case {"type": "text", **rest} if rest.keys() <= {"mime_type", "schema"}:
            del fields.rest["response_format"]
            schema = rest.get("schema")
            if schema is not None and not isinstance(schema, Mapping):
                raise unreadable("response_format.schema", "must be a JSON Schema")
            return OutputFormat(schema) if schema is not None or rest.get("mime_type") == JSON else None
        case _:
            return None

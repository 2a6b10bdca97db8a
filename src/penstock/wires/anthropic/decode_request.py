"""Reads what Anthropic alone writes in messages: its blocks."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from typing import Any

from penstock.messages import PART_FIELDS, File, Image, ToolResult
from penstock.wires.anthropic.facts import FACTS, STATE_BLOCKS, STATE_ENDINGS
from penstock.wires.anthropic.toolsets import TOOLSET, flat_name
from penstock.wires.shared.decode_request.fields import (
    Json,
    data_url,
    nested,
    other_fields,
    read_object,
    read_parts,
    read_text,
    refuse_unread,
    to_json,
    type_of_url,
    unreadable,
)
from penstock.wires.shared.decode_request.message_builder import MessageBuilder, build_result
from penstock.wires.shared.decode_request.message_reader import MessageReader, ReadContext
from penstock.wires.shared.decode_request.request_settings import (
    Fields,
    RequestSettings,
    check_tool_choice,
    read_schema_format,
    read_tools,
)
from penstock.wires.shared.decode_request.role_messages import has_call_fields
from penstock.wires.shared.encode_request.foreign_blocks import block_text
from penstock.wires.shared.request import OutputFormat

WIRE = FACTS.wire

_CONTENT_BLOCKS = ("search_result", "container_upload", "tool_reference", "mid_conv_system")
"""The blocks of a user message that are kept as a whole."""
_CALL_STATES = ("caller", "toolset_name")
_CALL = ("type", "id", "name", "input", *_CALL_STATES)
_USUAL_CALLER = {"type": "direct"}
_RESULT = ("type", "tool_use_id", "content", "is_error", "name", "toolset_name")
_SOURCE = ("type", "media_type", "data", "url", "file_id")
_BLOCKS = {"tool_use", "tool_result", *STATE_BLOCKS}


def _is_block(part: Json) -> bool:
    """Whether only Anthropic writes such a part."""
    kind = part.get("type")
    if not isinstance(kind, str):
        return False
    if kind == "thinking":
        return "signature" in part  # other protocols have such parts too
    return kind in _BLOCKS or kind.endswith(STATE_ENDINGS) or (kind in ("image", "document") and "source" in part)


def _blocks(message: Json) -> list[Json]:
    content: Any = message.get("content")
    return [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []


class AnthropicReader(MessageReader):
    """The blocks and fields of Anthropic's Messages."""

    wire = WIRE
    system_fields = ("system",)
    result_type = "tool_result"

    def is_request(self, body: Json) -> bool:
        return isinstance(body.get("system"), str | list) or "anthropic_version" in body

    def is_continued(self, body: Json) -> bool:
        match body.get("thread"):
            case {"type": "continue"}:
                return True
            case _:
                return False

    def is_typical(self, message: Json) -> bool:
        return any(map(_is_block, _blocks(message)))

    def is_possible(self, message: Json) -> bool:
        """Whether a part has `cache_control`, which Chat Completions has only from some servers."""
        return any("cache_control" in part for part in _blocks(message))

    def takes(self, message: Json) -> bool:
        return not has_call_fields(message)

    def is_whole_response(self, message: Json) -> bool:
        """Whether a message is a whole response, which has a `type`, like the items of other wires."""
        if not isinstance(message.get("type"), str):
            return False
        is_text_or_block = (part.get("type") == "text" or _is_block(part) for part in _blocks(message))
        return "stop_reason" in message or ("role" in message and any(is_text_or_block))

    def is_part(self, part: Json) -> bool:
        return part.get("type") in ("image", "document") or _is_block(part)

    def read_content(self, parts: MessageBuilder, part: Json, place: str, context: ReadContext) -> bool:
        match part:
            case {"type": "document", "source": {"type": "content", "content": content}}:
                _read_content_document(parts, part, content, place)
            case {"type": "image" | "document" as kind, "source": Mapping() as source}:
                media = _read_source(kind, source, str(part.get("title") or ""), place)
                fields = other_fields(part, ("type", "source", "title"))
                parts.media(media, fields | nested("source", other_fields(source, _SOURCE)), WIRE)
            case {"type": str(kind)} if kind in _CONTENT_BLOCKS:
                parts.block_with_text(kind, part, block_text(to_json(part)), (), WIRE)
            case _:
                return False
        return True

    def read_answer(self, parts: MessageBuilder, part: Json, place: str, context: ReadContext) -> bool:
        match part:
            case {"type": "text", "text": str(text), "citations": citations} if citations:
                block = parts.text(text)
                parts.state(block, "citations", citations, WIRE)
                parts.state(block, PART_FIELDS, other_fields(part, ("type", "text", "citations", "parsed")))
            case {"type": "thinking", "thinking": str(text)}:
                block = parts.reasoning(text)
                parts.state(block, "signature", part.get("signature"), WIRE)
                parts.state(block, PART_FIELDS, other_fields(part, ("type", "thinking", "signature")), WIRE)
            case {"type": "tool_use"}:
                _read_call(parts, part, place)
            case {"type": self.result_type}:
                parts.tool_result(self.read_result(part, place, context))
            case {"type": str(kind)} if kind in STATE_BLOCKS or kind.endswith(STATE_ENDINGS):
                parts.opaque(kind, part, WIRE)
            case _:
                return False
        return True

    def read_result(self, part: Json, place: str, context: ReadContext) -> ToolResult:
        content = part.get("content")
        if content in (None, ""):
            refuse_unread(part, _RESULT, place, "content")
        builder = MessageBuilder(WIRE, context.calls, place)
        for inner_place, inner in read_parts(content, f"{place}.content"):
            context.read_content(builder, inner, inner_place)
        return build_result(
            read_text(part, "tool_use_id", place),
            builder,
            context.calls,
            name=read_text(part, "name", place) or None,
            is_error=bool(part.get("is_error")),
            fields=other_fields(part, _RESULT),
            content=content,
        )

    def read_after_content(self, parts: MessageBuilder, message: Json, place: str) -> None:
        if message.get("container"):
            parts.place = f"{place}.container"
            parts.opaque("container", message["container"], WIRE)

    def known_fields(self, message: Json) -> Iterable[str]:
        return ("container",)

    def is_response(self, message: Json) -> bool:
        return "stop_reason" in message or message.get("type") == "message"


READER = AnthropicReader()


def _read_call(parts: MessageBuilder, part: Json, place: str) -> None:
    if part.get("input") in (None, ""):
        refuse_unread(part, _CALL, place, "input")
    name = flat_name(part.get(TOOLSET), read_text(part, "name", place))
    block = parts.call(read_text(part, "id", place), name, part.get("input"), place)
    for kind in _CALL_STATES:
        if part.get(kind) != _USUAL_CALLER:
            parts.state(block, kind, part.get(kind), WIRE)
    parts.state(block, PART_FIELDS, other_fields(part, _CALL), WIRE)


def _read_content_document(parts: MessageBuilder, part: Json, content: Any, place: str) -> None:
    """Add a document that is made of blocks."""
    blocks = [block for _, block in read_parts(content, f"{place}.source.content")]
    images = [_image(block, place) for block in blocks if block.get("type") == "image"]
    texts = [block for block in blocks if block.get("type") != "image"]
    words = block_text(to_json({**other_fields(part, ("source",)), "content": texts}))
    parts.block_with_text("document", part, words, images, WIRE)


def _image(block: Json, place: str) -> Image:
    media = _read_source("image", read_object(block.get("source"), place), "", place)
    return Image(media.url, media.media_type)


def _read_source(kind: str, source: Json, name: str, place: str) -> Image | File:
    """The image or document of a `source`."""
    make = Image if kind == "image" else File
    match source:
        case {"type": "base64", "media_type": str(media_type), "data": str(data) | bytes(data)}:
            return make(data_url(media_type, data), media_type, name)
        case {"type": "text", "data": str(text)}:
            return make(data_url("text/plain", base64.b64encode(text.encode()).decode()), "text/plain", name)
        case {"type": "url", "url": str(url)}:
            return make(url, type_of_url(url, "image/png" if kind == "image" else "application/pdf"), name)
        case {"type": "file", "file_id": str(id)}:
            return make(id, name=name)
        case _:
            raise unreadable(
                place, f"a source of the type {source.get('type')!r} is not supported; use base64, url or file"
            )


# Settings.

_OPTIONS = {
    "max_tokens": "max_tokens", "temperature": "temperature", "top_p": "top_p", "top_k": "top_k",
    "stop_sequences": "stop",
}  # fmt: skip
_MODES = {"auto": "auto", "any": "required", "none": "none"}


def read_settings(body: Mapping[str, Any], model: str = "", is_streaming: bool | None = None) -> RequestSettings:
    """The settings of a request body."""
    fields = Fields(body)
    for name in ("messages", "system"):
        fields.rest.pop(name, None)
    named, is_stream = model or fields.required_text("model", "the name of a model"), bool(fields.flag("stream"))
    fields.rest.pop("model", None)
    tools = read_tools(fields.objects("tools"))
    choice = fields.inner("tool_choice")
    config = fields.inner("output_config")
    thinking = fields.inner("thinking")
    options = fields.options(_OPTIONS) | _read_reasoning(thinking, config)
    output = _output(fields, config)
    fields.put_back("output_config", config)
    if thinking.rest.get("display") == "summarized":
        del thinking.rest["display"]  # as we ask for it
    fields.put_back("thinking", thinking)
    is_single = choice.flag("disable_parallel_tool_use")
    thread = fields.inner("thread")
    is_continued = thread.text("type") == "continue"
    return RequestSettings(
        model=named,
        tools=tools,
        tool_choice=check_tool_choice(_tool_choice(choice), tools, "tool_choice.name"),
        is_parallel=None if is_single is None else not is_single,
        is_streaming=is_stream if is_streaming is None else is_streaming,
        options=options,
        output=output,
        previous_response=thread.required_text("previous_message_id", "the id of a response") if is_continued else "",
        is_kept=bool(body.get("thread")),
        is_thread=bool(body.get("thread")),
        has_instructions=bool(body.get("system")),
        extra=fields.rest,
        partial=frozenset(fields.partial),
    )


def _tool_choice(choice: Fields) -> str:
    match choice.text("type"):
        case "":
            return ""
        case "tool":
            return choice.required_text("name", "the name of a tool")
        case kind if kind in _MODES:
            return _MODES[kind]
        case kind:
            raise unreadable("tool_choice.type", f"{kind!r} is not known; send auto, any, none or tool")


def _read_reasoning(thinking: Fields, config: Fields) -> dict[str, Any]:
    effort = config.effort("effort")
    match thinking.text("type"):
        case "disabled":
            return {"reasoning": "none"}
        case "enabled":
            budget = thinking.take("budget_tokens", int, "a whole number")
            return {"reasoning": effort or ("medium" if budget is None else budget)}
        case "adaptive":
            return {"reasoning": effort or "medium"}
        case "":
            return {"reasoning": effort} if effort else {}
        case kind:
            raise unreadable("thinking.type", f"{kind!r} is not known; send enabled, adaptive or disabled")


def _output(fields: Fields, config: Fields) -> OutputFormat | None:
    for place, source, name in (("output_config.format", config, "format"), ("output_format", fields, "output_format")):
        if (format := source.rest.pop(name, None)) is not None:
            return read_schema_format(format, place)
    return None

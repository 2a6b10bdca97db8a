"""Reads messages of Bedrock's Converse: blocks are known by their only key. Bytes may be bytes, as in boto3."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from penstock.messages import PART_FIELDS, File, Image, ToolResult
from penstock.wires.bedrock.facts import FACTS
from penstock.wires.shared.decode_request.call_matcher import CallMatcher
from penstock.wires.shared.decode_request.fields import (
    Json,
    base64_text,
    data_url,
    describe_part,
    nested,
    other_fields,
    read_object,
    read_objects,
    read_text,
    refuse_other_fields,
    refuse_unread,
    to_json,
    unreadable,
)
from penstock.wires.shared.decode_request.message_builder import MessageBuilder, build_result
from penstock.wires.shared.decode_request.message_reader import ReadContext, RequestReader
from penstock.wires.shared.decode_request.places import PlacedMessage, place_results
from penstock.wires.shared.encode_request.foreign_blocks import block_text

WIRE = FACTS.wire

_CONTENT = ("text", "image", "document", "video", "audio")
_WHOLE = ("cachePoint", "guardContent", "searchResult")
_BLOCKS = {*_CONTENT, *_WHOLE, "toolUse", "toolResult", "reasoningContent", "citationsContent"}
_THOUGHT = {"text", "signature"}
_FORMATS = {
    "txt": "text/plain", "md": "text/markdown", "three_gp": "video/3gpp", "mkv": "video/x-matroska",
    "mov": "video/quicktime", "flv": "video/x-flv", "wmv": "video/x-ms-wmv", "mp3": "audio/mpeg",
}  # fmt: skip
"""The media types of formats that cannot be guessed from their names."""


class BedrockReader(RequestReader):
    """Messages of Converse: their blocks have no type."""

    wire = WIRE
    system_fields = ("system",)

    def is_own(self, message: Json) -> bool:
        content: Any = message.get("content")
        return isinstance(content, list) and any(map(_is_block, content))

    def read(self, message: Json, place: str, context: ReadContext, wire: str) -> Iterator[PlacedMessage]:
        return _read(message, place, context.calls)

    def read_system(self, content: Any, place: str, context: ReadContext) -> list[PlacedMessage] | None:
        if not isinstance(content, list) or not all(map(_is_block, content)):
            return None
        return [_build(_blocks(content, place), place, context.calls, "system")]


READER = BedrockReader()


def _is_block(block: Any) -> bool:
    return isinstance(block, Mapping) and "type" not in block and bool(_BLOCKS & block.keys())


def _read(message: Json, place: str, calls: CallMatcher) -> Iterator[PlacedMessage]:
    """The messages that a message becomes; results in a user message become messages of their own."""
    refuse_other_fields(message, ("role", "content"), place)
    blocks = _blocks(message.get("content"), f"{place}.content")
    match message.get("role"):
        case "assistant":
            yield _assistant(blocks, place, calls)
        case "user":
            for is_result, group in groupby(blocks, key=lambda item: "toolResult" in item[1]):
                if is_result:
                    yield place_results(
                        [(part_place, _result(block, part_place, calls)) for part_place, block in group], place
                    )
                else:
                    yield _build([*group], place, calls, "user")
        case role:
            raise unreadable(
                place, f"has the role {role!r}; expected user or assistant (system messages go into the system field)"
            )


def _blocks(blocks: Any, place: str) -> list[tuple[str, Json]]:
    """The blocks of a content, each with its place."""
    placed = [*read_objects(blocks, place)]
    for part_place, block in placed:
        if len(block) != 1:
            raise unreadable(part_place, f"{describe_part(block)} is not a block; a block has exactly one field")
    return placed


def _build(blocks: list[tuple[str, Json]], place: str, calls: CallMatcher, role: Any) -> PlacedMessage:
    parts = MessageBuilder(WIRE, calls, place)
    for part_place, block in blocks:
        parts.place = part_place
        if role == "system" and not ("text" in block or set(_WHOLE) & block.keys()):
            raise unreadable(part_place, f"{describe_part(block)} is not allowed in a system message; send text")
        if role == "system" and not _is_text(block):
            parts.opaque(next(iter(block)), block)
        else:
            _read_content(parts, block, part_place)
    return parts.build(role)


def _is_text(block: Json) -> bool:
    return "text" in block or (isinstance(guarded := block.get("guardContent"), Mapping) and "text" in guarded)


def _read_content(parts: MessageBuilder, block: Json, place: str) -> None:
    kind = next((key for key in (*_CONTENT, *_WHOLE) if key in block), "")
    match block.get(kind):
        case str(text) if kind == "text":
            parts.text(text)
        case {"text": {"text": str(text)}} if kind == "guardContent":
            parts.state(parts.text(text), kind, block[kind])
        case Mapping() as media if kind in _CONTENT:
            media_part = _media(kind, media, f"{place}.{kind}")
            fields = other_fields(media, ("format", "source", "name")) | nested(
                "source", _source_fields(media["source"])
            )
            parts.media(media_part, nested(kind, fields))
        case {"image": {"source": {"bytes": _}} as picture} if kind == "guardContent":
            image = _media("image", picture, f"{place}.{kind}.image")
            parts.block_with_text(kind, block, "", [Image(image.url, image.media_type)])
        case Mapping() if kind in _WHOLE:
            parts.block_with_text(kind, block, block_text(to_json(block)))
        case _:
            raise unreadable(
                place, f"{describe_part(block)} cannot be sent; send text, an image, a document or a toolResult"
            )


def _media(kind: str, media: Json, place: str) -> Image | File:
    format, name = str(media.get("format") or ""), str(media.get("name") or "")
    guessed = mimetypes.guess_type(f"file.{format}")[0] or f"{'application' if kind == 'document' else kind}/{format}"
    media_type = _FORMATS.get(format, guessed)
    make = Image if kind == "image" else File
    match media.get("source"):
        case {"bytes": str(data) | bytes(data)}:
            return make(data_url(media_type, data), media_type, name)
        case {"text": str(text)}:
            return make(data_url(media_type, text.encode()), media_type, name)
        case {"s3Location": {"uri": str(uri)}}:
            return make(uri, media_type, name)
        case _:
            raise unreadable(place, "needs a source with bytes, text or s3Location")


def _source_fields(source: Json) -> Json:
    """The other fields of a source: the owner of the bucket, for example."""
    stored: Any = source.get("s3Location") or {}
    return other_fields(source, ("bytes", "text", "s3Location")) | nested("s3Location", other_fields(stored, ("uri",)))


def _result(block: Json, part_place: str, calls: CallMatcher) -> ToolResult:
    place = f"{part_place}.toolResult"
    tool_result = read_object(block["toolResult"], place)
    content = MessageBuilder(WIRE, calls, place)
    for inner_place, inner in _blocks(tool_result.get("content") or (), f"{place}.content"):
        if "json" in inner:
            content.text(json.dumps(to_json(inner["json"]), ensure_ascii=False), {"json": True})
        else:
            _read_content(content, inner, inner_place)
    fields = other_fields(tool_result, ("toolUseId", "content", "status"))
    if tool_result.get("content") is None:
        refuse_unread(fields, (), place, "content")
    return build_result(
        read_text(tool_result, "toolUseId", place),
        content,
        calls,
        is_error=tool_result.get("status") == "error",
        fields=nested("toolResult", fields),
        content=tool_result.get("content"),
    )


def _assistant(blocks: list[tuple[str, Json]], place: str, calls: CallMatcher) -> PlacedMessage:
    parts = MessageBuilder(WIRE, calls, place)
    for part_place, block in blocks:
        parts.place = part_place
        match block:
            case {"toolUse": Mapping() as call}:
                id, name = (read_text(call, field, f"{part_place}.toolUse") for field in ("toolUseId", "name"))
                number = parts.call(id, name, call.get("input"), part_place)
                fields = other_fields(call, ("toolUseId", "name", "input"))
                if call.get("input") is None:
                    refuse_unread(fields, (), f"{part_place}.toolUse", "input")
                parts.state(number, PART_FIELDS, nested("toolUse", fields))
            case {"reasoningContent": {"reasoningText": {"text": str(text)} as thought, **more}} if (
                thought.keys() <= _THOUGHT and not more
            ):
                parts.state(parts.reasoning(text), "signature", thought.get("signature"))
            case {"reasoningContent": {"redactedContent": str(data) | bytes(data), **more}} if not more:
                parts.state(parts.reasoning(""), "redactedContent", base64_text(data))
            case {
                "citationsContent": {"content": [{"text": str(text), **more}], "citations": [*citations], **others}
            } if not more and not others:
                parts.state(parts.text(text), "citations", citations)
            case {"text": str(text)}:
                parts.text(text)
            case {"toolResult": _}:
                parts.tool_result(_result(block, part_place, calls))
            case _:  # blocks of hosted tools, and new kinds of blocks
                parts.opaque(next(iter(block)), block)
    return parts.build("assistant")

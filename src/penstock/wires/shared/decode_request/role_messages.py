"""Reads messages of a role and a content, as Chat Completions and most other protocols have them.

Their parts can be told apart by their types, so that one list may mix the shapes of several wires. What each wire adds
is in its `MessageReader`. Where the part alone does not say which wire it belongs to (`cache_control` on a text), it
belongs to the wire that the caller passes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

from penstock.messages import MESSAGE_FIELDS, ToolResult
from penstock.wires.shared.decode_request.fields import (
    ABOUT,
    WHAT_TO_SEND,
    Json,
    describe_part,
    other_fields,
    read_parts,
    read_text,
    refuse_other_fields,
    refuse_unread,
    unreadable,
)
from penstock.wires.shared.decode_request.message_builder import MessageBuilder, build_result
from penstock.wires.shared.decode_request.places import PlacedMessage, place_results

if TYPE_CHECKING:
    from penstock.wires.shared.decode_request.message_reader import ReadContext

_ROLES_OF_ALL = ("system", "developer", "user", "assistant")
_RESULT = ("role", "content", "tool_call_id", "tool_name", "name", "is_error", "images")


def read(message: Json, place: str, context: ReadContext, wire: str) -> Iterator[PlacedMessage]:
    """The messages that a message becomes; results in a user message become messages of their own."""
    match message.get("role"):
        case "system" | "developer":
            parts = MessageBuilder(wire, context.calls, place)
            _read_system(parts, message.get("content"), f"{place}.content", context)
            _keep_fields(parts, other_fields(message, ("role", "content")), place, context)
            yield parts.build("system")
        case "user":
            yield from _user(message, place, context, wire)
        case "assistant":
            yield _assistant(message, place, context, wire)
        case "tool" | "function":
            yield place_results([(place, _result(message, place, context, wire))], place, joins="item")
        case None:
            raise unreadable(place, f"has no role, only: {', '.join(map(str, message)) or 'nothing'}; {WHAT_TO_SEND}")
        case role:
            raise unreadable(place, f"has the role {role!r}; expected system, developer, user, assistant or tool")


def has_call_fields(message: Json) -> bool:
    """Whether a message has calls in a field, or a role for results: wires with blocks or items have neither."""
    has_calls = bool(message.get("tool_calls") or message.get("function_call"))
    return has_calls or message.get("role") not in _ROLES_OF_ALL


def read_system(content: Any, place: str, context: ReadContext, wire: str) -> PlacedMessage:
    """The system message in a field of a request."""
    parts = MessageBuilder(wire, context.calls, place)
    _read_system(parts, content, place, context)
    return parts.build("system")


def _read_system(parts: MessageBuilder, content: Any, place: str, context: ReadContext) -> None:
    for part_place, part in read_parts(content, place):
        parts.place = part_place
        match part:
            case {"type": "text" | "input_text", "text": str()}:
                context.read_content(parts, part, part_place)
            case {"type": str(kind)} if kind in context.facts_of(parts.wire).system_blocks:
                parts.opaque(kind, part)
            case _:
                raise unreadable(part_place, f"{describe_part(part)} is not allowed in a system message; send text")


def _keep_fields(parts: MessageBuilder, fields: Json, place: str, context: ReadContext) -> None:
    """Keep the fields of a message that have no other place, as vendor state."""
    if parts.is_empty:
        refuse_unread(fields, (), place, "content")
    if fields:
        parts.place = place
        parts.opaque(MESSAGE_FIELDS, fields, context.fields_wire(parts.wire))


# Users and tools.


def _user(message: Json, place: str, context: ReadContext, wire: str) -> Iterator[PlacedMessage]:
    content = [*read_parts(message.get("content"), f"{place}.content"), *context.parts_beside(message, place)]
    fields = other_fields(message, ("role", "content", "images"))
    for reader, group in groupby(content, key=lambda item: context.result_reader(item[1])):
        if reader is not None:
            yield place_results(
                [(part_place, reader.read_result(part, part_place, context)) for part_place, part in group], place
            )
        else:
            yield _user_parts([*group], fields, place, context, wire)
    if not content:
        yield _user_parts([], fields, place, context, wire)
    elif all(context.result_reader(part) for _, part in content):  # which have no place for the fields
        refuse_other_fields({name: fields[name] for name in fields if name not in ABOUT}, (), place)


def _user_parts(
    content: list[tuple[str, Json]], fields: Json, place: str, context: ReadContext, wire: str
) -> PlacedMessage:
    parts = MessageBuilder(wire, context.calls, place)
    for part_place, part in content:
        parts.place = part_place
        context.read_content(parts, part, part_place)
    _keep_fields(parts, fields, place, context)
    return parts.build("user")


def _result(message: Json, place: str, context: ReadContext, wire: str) -> ToolResult:
    content = message.get("content")
    if content in (None, ""):
        refuse_unread(message, _RESULT, place, "content")
    builder = MessageBuilder(wire, context.calls, place)
    for part_place, part in [*read_parts(content, f"{place}.content"), *context.parts_beside(message, place)]:
        context.read_content(builder, part, part_place)
    named = read_text(message, "name", place) or read_text(message, "tool_name", place)
    return build_result(
        _result_call_id(message, place, context, wire),
        builder,
        context.calls,
        name=named or ("" if message["role"] == "function" else None),
        is_error=bool(message.get("is_error")),
        fields=other_fields(message, _RESULT),
        content=content,
    )


def _result_call_id(message: Json, place: str, context: ReadContext, wire: str) -> str:
    """The id of the call; a message of the role `function`, and some servers, name the tool instead."""
    if message["role"] == "function":
        return context.calls.next_call_id(read_text(message, "name", place))
    by_name = message.get("tool_name") or context.facts_of(wire).results_may_lack_ids
    if by_name and not message.get("tool_call_id"):
        return context.calls.next_call_id(str(message.get("tool_name") or ""))
    return read_text(message, "tool_call_id", place)


# Assistants.


def _assistant(message: Json, place: str, context: ReadContext, wire: str) -> PlacedMessage:
    parts = MessageBuilder(wire, context.calls, place)
    for reader in context.readers:
        reader.read_before_content(parts, message, place)
    for part_place, part in read_parts(message.get("content"), f"{place}.content"):
        parts.place = part_place
        context.read_answer(parts, part, part_place)
    for reader in context.readers:
        reader.read_after_content(parts, message, place)
    if not any(reader.is_response(message) for reader in context.readers):
        known = {"role", "content", *(name for reader in context.readers for name in reader.known_fields(message))}
        _keep_fields(parts, other_fields(message, known), place, context)
    return parts.build("assistant")

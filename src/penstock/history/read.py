"""Reads histories of any shape as messages: strings, turns, dicts and objects of the vendors' SDKs, request bodies.

The shapes may be mixed in one list. Fields without a counterpart raise an error with their place, or are kept as vendor
state: nothing is dropped silently.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.errors import type_name
from penstock.events import ToolCall, ToolCallInvalid
from penstock.framing.sdk_objects import as_mapping
from penstock.history.shapes import (
    find_family,
    find_shape,
    history_fields,
    is_continued,
    new_context,
    read_message,
    read_system_fields,
    request_wire,
)
from penstock.jsontext.surrogates import join_surrogates
from penstock.messages import MARK, File, Image, Message, ToolResult, restore_history, restore_value, user
from penstock.turn import Turn
from penstock.wires import all_facts, all_readers
from penstock.wires.shared.decode_request.call_matcher import CallMatcher
from penstock.wires.shared.decode_request.fields import Json, clean_value, too_deep, unreadable
from penstock.wires.shared.decode_request.message_reader import ReadContext
from penstock.wires.shared.decode_request.places import PlacedMessage, Places, join_placed, place_message
from penstock.wires.shared.encode_request.states import without_malformed

PlacedItem = tuple[str, Any]
"""An unread item of a history, and its place."""

Clean = Callable[[Any, str], Any]
"""Cleans a value from outside, at a place, so that it can be sent; raises if that is impossible."""

_OURS = ("user", "assistant", "tool", "system")


class Reading(Struct, frozen=True):
    """The messages that were read from a history, and the place of each.

    `wire` is the wire that the history was written for; empty if it is our own form, or a mixture. `is_ours` is true if
    it has only strings, turns and `Message`s, also stored ones. `is_continued` is true if it continues a history that
    the provider keeps, so that results may belong to calls which are not in it.
    """

    messages: list[Message]
    places: list[Places]
    wire: str
    is_ours: bool
    is_continued: bool = False


def as_messages(history: Any) -> list[Message]:
    """The messages of a history: a string (of the user), a message of any shape, a list of these, or a request body.

    A request body gives its history, system messages first, without its options and tools.
    """
    if isinstance(history, list | tuple) and {*map(type, history)} <= {Message}:
        return [*history]  # the case of every step of an agent, and so not a loop of Python
    return read(history).messages


def read(history: Any) -> Reading:
    """The messages of a history, as `as_messages` returns them, with their places."""
    if isinstance(history, Sequence | Iterator) and not isinstance(history, str | bytes | bytearray):
        return _read(_numbered("messages", history))
    body = None if isinstance(history, str | Message | Turn) else as_mapping(history)
    if body is None or "role" in body or "parts" in body:
        return _read([("message", history)])
    if MARK in body:
        return _read(_numbered("messages", restore_history(clean_value(body, "messages"))))
    fields = history_fields(body)
    return _read_request(body, fields) if fields else _read([("message", history)])


def _numbered(field: str, items: Iterable[Any]) -> list[PlacedItem]:
    return [(f"{field}[{index}]", item) for index, item in enumerate(items)]


def read_request(body: Json, wire: str, *, is_clean: bool = False) -> Reading:
    """The messages of a request body of this wire; raises a `UsageError` with the place of an invalid field.

    A body that `is_clean` has few levels and no lone surrogates: it is neither searched for these nor copied.
    """
    fields = history_fields(body)
    if not fields:
        raise unreadable(all_readers()[wire].history_field, "is missing; send the messages of the conversation")
    return _read_request(body, fields, wire, _unchanged if is_clean else clean_value)


def _read_request(body: Json, fields: Sequence[str], wire: str = "", clean: Clean = clean_value) -> Reading:
    field = fields[0]
    messages = body[field]
    is_list = isinstance(messages, Sequence) and not isinstance(messages, str | bytes)
    items = _numbered(field, messages) if is_list else [(field, messages)]
    systems = [*read_system_fields({name: clean(body[name], name) for name in fields[1:]})]
    return _read(items, wire or request_wire(body), systems, is_continued=is_continued(body), clean=clean)


def _unchanged(value: Any, place: str) -> Any:
    return value


def _read(
    placed_items: list[PlacedItem],
    wire: str = "",
    systems: Sequence[PlacedMessage] = (),
    *,
    is_continued: bool = False,
    clean: Clean = clean_value,
) -> Reading:
    """The messages of the items; `wire` and `systems` are the wire and the system messages of a request."""
    items = [(place, _open(item, place, clean)) for place, item in placed_items]
    dicts = [item for _, item in items if isinstance(item, Mapping)]
    family = wire or find_family(dicts)
    shapes = [_shape(item, family, wire) for _, item in items]
    placed_messages = [*systems, *_in_turns(items, shapes, family)]
    vendors = {shape for shape in shapes if shape} or {wire}
    return Reading(
        messages=[placed.message for placed in placed_messages],
        places=[placed.places for placed in placed_messages],
        wire=vendors.pop() if len(vendors) == 1 else "",
        is_ours=not any((wire, systems, *shapes)),
        is_continued=is_continued,
    )


def _in_turns(items: list[PlacedItem], shapes: list[str], family: str) -> list[PlacedMessage]:
    """The messages of the items; several items may become one message."""
    context = new_context()
    groups: list[list[PlacedMessage]] = []
    for (place, item), shape in zip(items, shapes, strict=True):
        for placed in _read_item(item, place, context, shape, family):
            if groups and placed.continues(groups[-1][-1]):
                groups[-1].append(placed)
            else:
                groups.append([placed])
            if placed.message.role != "assistant":
                context.calls.end_turn()
    return [join_placed(group) for group in groups]


def _read_item(item: Any, place: str, context: ReadContext, shape: str, family: str) -> list[PlacedMessage]:
    """The messages of one item."""
    try:
        return [*_messages(item, place, context, shape, family)]
    except RecursionError:  # the caller may be deep in the stack already
        raise too_deep(place) from None


def _open(item: Any, place: str, clean: Clean) -> Any:
    """The clean fields of an item, or the `Message` if it is a stored message."""
    match item:
        case Message() | Turn():
            return item
        case str():
            return join_surrogates(item)
        case bytes() | bytearray():
            raise unreadable(place, f"is {type(item).__name__}; read the bytes of a file with read_history")
        case Image() | File():
            kind = type(item).__name__
            part = f"is {type_name(item)}, a part of a message"
            raise unreadable(place, f"{part}: use messages.user('…', {kind.lower()}(…))")
        case _:
            fields = as_mapping(item)
    if fields is None:
        raise unreadable(place, f"expected a string, a dict or a Message, got {type(item).__name__}")
    fields = clean(fields, place)
    return restore_value(fields, place, Message) if _is_own(fields) else fields


def _messages(item: Any, place: str, context: ReadContext, shape: str, family: str) -> Iterable[PlacedMessage]:
    match item:
        case Message():
            return [_place_own(item, place, context)]
        case Turn():
            return [_place_own(Message("assistant", item.parts), place, context)]
        case str():
            return [PlacedMessage(user(item), Places(place, (place,)))]
        case _:
            return map(_without_malformed, read_message(item, place, context, shape, family))


def _place_own(message: Message, place: str, context: ReadContext) -> PlacedMessage:
    """A `Message` and its place, without malformed vendor state; its calls may be answered by other shapes."""
    placed = place_message(_with_calls_added(message, context.calls), place)
    return _without_malformed(placed)


def _without_malformed(placed: PlacedMessage) -> PlacedMessage:
    message = without_malformed(placed.message, all_facts())
    if message is placed.message:
        return placed
    kept = {id(part) for part in message.parts}
    pairs = zip(placed.message.parts, placed.places.parts, strict=True)
    places = Places(placed.places.message, tuple(place for part, place in pairs if id(part) in kept))
    return replace(placed, message=message, places=places)


def _shape(item: Any, family: str, wire: str) -> str:
    """The wire of an item; empty if it is our own."""
    if isinstance(item, Message | Turn):
        return ""
    return wire if isinstance(item, str) else find_shape(item, family)


def _is_own(message: Json) -> bool:
    """Whether an item is a stored `Message`, and not a vendor's content: its parts, if any, have a type."""
    parts: Any = message.get("parts")
    if message.get("role") not in _OURS or "content" in message or not isinstance(parts, list):
        return False
    if not parts:
        return set(message) <= set(Message.__struct_fields__)
    return any(isinstance(part, Mapping) and "type" in part for part in parts)


def _with_calls_added(message: Message, calls: CallMatcher) -> Message:
    """The message, after registering its calls: messages of other shapes may answer them."""
    for part in message.parts:
        match part:
            case ToolCall() | ToolCallInvalid():
                calls.add(part.id, part.name)
            case ToolResult():
                calls.answer(part.call_id)
            case _:
                pass
    return message

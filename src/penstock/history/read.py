"""What people already hold, as messages: strings, turns, and the dicts and objects of the vendors' SDKs.

The shapes may be mixed in one list. What has no place in a message is refused, with where it stands, or kept as state
of its vendor: nothing is dropped in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from penstock.events import ToolCall, ToolCallInvalid
from penstock.framing.sdk_objects import as_mapping
from penstock.history.shapes import (
    find_family,
    find_shape,
    history_fields,
    is_content,
    is_continued,
    new_context,
    read_message,
    read_system_fields,
    request_wire,
)
from penstock.jsontext.surrogates import join_surrogates
from penstock.messages import MARK, Message, ToolResult, restore_history, restore_value, user
from penstock.turn import Turn
from penstock.wires.shared.call_matcher import CallMatcher
from penstock.wires.shared.fields import Json, clean_value, too_deep, unreadable
from penstock.wires.shared.message_reader import ReadContext
from penstock.wires.shared.places import PlacedMessage, Places, join_placed, place_message

Given = tuple[str, Any]
"""Something that is to be read, and where it stands."""

_OURS = ("user", "assistant", "tool", "system")


class Reading(Struct, frozen=True):
    """What was read: the messages, and where each stood in what was given.

    `wire` is the shape that it was in; it is empty if that is ours, or several. `is_ours` says that there was nothing
    in it but strings, turns and messages of ours, also as they are stored. `is_continued` says that the history goes on
    from one that the provider keeps, so that results may belong to calls which are not here.
    """

    messages: list[Message]
    places: list[Places]
    wire: str
    is_ours: bool
    is_continued: bool = False


def as_messages(what: Any) -> list[Message]:
    """The messages that these are: one of a kind that is known (a string is the user's), a list of such, or a request.

    Of a request's body the history is taken, what the system says first; its settings and tools are not part of it.
    """
    if isinstance(what, list | tuple) and all(isinstance(message, Message) for message in what):
        return [*what]  # as it is with every step of an agent: nobody asks where they stood
    return read(what).messages


def read(what: Any) -> Reading:
    """The messages that these are, as `as_messages` gives them, and where they come from."""
    if isinstance(what, Sequence | Iterator) and not isinstance(what, str | bytes | bytearray):
        return _read(_numbered("messages", what))
    body = None if isinstance(what, str | Message | Turn) else as_mapping(what)
    if body is None or "role" in body or "parts" in body:
        return _read([("message", what)])
    if MARK in body:
        return _read(_numbered("messages", restore_history(clean_value(body, "messages"))))
    return _read_request(body) if history_fields(body) else _read([("message", what)])


def _numbered(field: str, items: Iterable[Any]) -> list[Given]:
    return [(f"{field}[{at}]", item) for at, item in enumerate(items)]


def _read_request(body: Json) -> Reading:
    field = history_fields(body)[0]
    messages = body[field]
    is_list = isinstance(messages, Sequence) and not isinstance(messages, str | bytes)
    items = _numbered(field, messages) if is_list else [(field, messages)]
    return _read(items, request_wire(body), [*read_system_fields(body)], is_continued=is_continued(body))


# Messages.


def _read(
    given: list[Given], wire: str = "", told: Sequence[PlacedMessage] = (), *, is_continued: bool = False
) -> Reading:
    """The messages of what is given; `wire` is the one that the request tells, `told` what it says in other fields."""
    items = [(place, _opened(item, place)) for place, item in given]
    dicts = [item for _, item in items if isinstance(item, Mapping)]
    family = wire or find_family(dicts)
    shapes = [_shape(item, family, wire) for _, item in items]
    found = [*told, *_in_turns(items, shapes, family)]
    vendors = {shape for shape in shapes if shape} or {wire}
    return Reading(
        messages=[placed.message for placed in found],
        places=[placed.places for placed in found],
        wire=vendors.pop() if len(vendors) == 1 else "",
        is_ours=not any((wire, told, *shapes)),
        is_continued=is_continued,
    )


def _in_turns(items: list[Given], shapes: list[str], family: str) -> list[PlacedMessage]:
    """The messages of the items, of which several may be one."""
    context = new_context()
    groups: list[list[PlacedMessage]] = []
    for (place, item), shape in zip(items, shapes, strict=True):
        for found in _told(item, place, context, shape, family):
            if groups and found.continues(groups[-1][-1]):
                groups[-1].append(found)
            else:
                groups.append([found])
            if found.message.role != "assistant":
                context.calls.end_turn()
    return [join_placed(group) for group in groups]


def _told(item: Any, place: str, context: ReadContext, shape: str, family: str) -> list[PlacedMessage]:
    """The messages that an item is."""
    try:
        return [*_messages(item, place, context, shape, family)]
    except RecursionError:  # it is called from far down
        raise too_deep(place) from None


def _opened(item: Any, place: str) -> Any:
    """The item, sound; of an object its fields, and of a message that was stored the message."""
    if isinstance(item, Message | Turn):
        return item
    if isinstance(item, str):
        return join_surrogates(item)
    if isinstance(item, bytes | bytearray):
        raise unreadable(place, f"is {type(item).__name__}; read the bytes of a file with read_history")
    found = as_mapping(item)
    if found is None:
        raise unreadable(place, f"expected a string, a dict or a Message, got {type(item).__name__}")
    whole = clean_value(found, place)
    return restore_value(whole, place, Message) if is_content(whole) and _is_own(whole) else whole


def _messages(item: Any, place: str, context: ReadContext, shape: str, family: str) -> Iterable[PlacedMessage]:
    match item:
        case Message():
            return [place_message(_counted(item, context.calls), place)]
        case Turn():
            return [place_message(_counted(Message("assistant", item.parts), context.calls), place)]
        case str():
            return [PlacedMessage(user(item), Places(place, (place,)))]
        case _:
            return read_message(item, place, context, shape, family)


def _shape(item: Any, family: str, wire: str) -> str:
    """The wire of an item; empty if it is our own."""
    if isinstance(item, Message | Turn):
        return ""
    return wire if isinstance(item, str) else find_shape(item, family)


def _is_own(message: Json) -> bool:
    """Whether it is a stored `Message`, and not a vendor's content: its parts, if it has any, have a type."""
    parts: Any = message.get("parts")
    if message.get("role") not in _OURS or not isinstance(parts, list):
        return False
    if not parts:
        return set(message) == {"role", "parts"}
    return any(isinstance(part, Mapping) and "type" in part for part in parts)


def _counted(message: Message, calls: CallMatcher) -> Message:
    """The message, whose calls may be answered by those that follow in other shapes."""
    for part in message.parts:
        match part:
            case ToolCall() | ToolCallInvalid():
                calls.add(part.id, part.name)
            case ToolResult():
                calls.answer(part.call_id)
            case _:
                pass
    return message

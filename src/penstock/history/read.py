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
from penstock.jsontext.surrogates import join_surrogates
from penstock.messages import MARK, Message, ToolResult, restore, restored, user
from penstock.turn import Turn
from penstock.wires.anthropic import decode_request as anthropic
from penstock.wires.bedrock import decode_request as bedrock
from penstock.wires.gemini import decode_request as gemini
from penstock.wires.ollama import decode_request as ollama
from penstock.wires.openai_responses import decode_request as responses
from penstock.wires.shared import role_messages as chat
from penstock.wires.shared.fields import Json, refused, sound, too_deep
from penstock.wires.shared.places import Placed, Places, as_given, in_one
from penstock.wires.shared.unnamed_calls import Calls

Given = tuple[str, Any]
"""Something that is to be read, and where it stands."""

_OURS = ("user", "assistant", "tool", "system")
_CHAT_ROLES = ("system", "developer", "tool", "function")


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
        return _read(_numbered("messages", restore(sound(body, "messages"))))
    return _of_a_request(body) if history_fields(body) else _read([("message", what)])


def _numbered(field: str, items: Iterable[Any]) -> list[Given]:
    return [(f"{field}[{at}]", item) for at, item in enumerate(items)]


# Requests.

_HISTORIES = ("messages", "contents", "input")
_SYSTEM = ("system", "instructions")
_GEMINIS_SYSTEM = ("systemInstruction", "system_instruction")
_CONTINUED = ("previous_response_id", "conversation")


def history_fields(body: Json) -> tuple[str, ...]:
    """The fields of a request that its history is read from, what was said first; none if it is no request."""
    said = [name for name in _HISTORIES if name in body][:1]
    return (*said, *(name for name in (*_SYSTEM, *_GEMINIS_SYSTEM) if said and name in body))


def _of_a_request(body: Json) -> Reading:
    field = history_fields(body)[0]
    given = body[field]
    is_list = isinstance(given, Sequence) and not isinstance(given, str | bytes)
    wires = {"input": responses.WIRE, "contents": gemini.WIRE}
    has_system = isinstance(body.get("system"), str | list)
    wire = wires.get(field, anthropic.WIRE if has_system or "anthropic_version" in body else "")
    is_continued = field == "input" and any(body.get(name) for name in _CONTINUED)
    items = _numbered(field, given) if is_list else [(field, given)]
    return _read(items, wire, [*_system(body)], is_continued=is_continued)


def _system(body: Json) -> Iterator[Placed]:
    """What the system says in a field of its own."""
    for name in _SYSTEM:
        match sound(body.get(name), name):
            case None | "" | []:
                pass
            case [*blocks] if all(map(bedrock.is_block, blocks)):
                yield bedrock.system(blocks, name)
            case content:
                yield chat.system_field(content, name)
    for name in _GEMINIS_SYSTEM:
        match sound(body.get(name), name):
            case None | "":
                pass
            case Mapping() as content if "parts" in content:
                yield from gemini.read({**content, "role": "system"}, name, Calls())
            case parts:
                yield from gemini.read({"parts": parts, "role": "system"}, name, Calls())


# Messages.


def _read(given: list[Given], wire: str = "", told: Sequence[Placed] = (), *, is_continued: bool = False) -> Reading:
    """The messages of what is given; `wire` is the one that the request tells, `told` what it says in other fields."""
    items = [(place, _opened(item, place)) for place, item in given]
    dicts = [item for _, item in items if isinstance(item, Mapping)]
    family = wire or _family(dicts)
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


def _in_turns(items: list[Given], shapes: list[str], family: str) -> list[Placed]:
    """The messages of the items, of which several may be one."""
    calls = Calls()
    groups: list[list[Placed]] = []
    for (place, item), shape in zip(items, shapes, strict=True):
        for found in _told(item, place, calls, shape, family):
            if groups and found.goes_on(groups[-1][-1]):
                groups[-1].append(found)
            else:
                groups.append([found])
            if found.message.role != "assistant":
                calls.end_turn()
    return [in_one(group) for group in groups]


def _told(item: Any, place: str, calls: Calls, shape: str, family: str) -> list[Placed]:
    """The messages that an item is."""
    try:
        return [*_messages(item, place, calls, shape, family)]
    except RecursionError:  # it is called from far down
        raise too_deep(place) from None


def _opened(item: Any, place: str) -> Any:
    """The item, sound; of an object its fields, and of a message that was stored the message."""
    if isinstance(item, Message | Turn):
        return item
    if isinstance(item, str):
        return join_surrogates(item)
    if isinstance(item, bytes | bytearray):
        raise refused(place, f"is of the type {type(item).__name__}: read_history reads the bytes of a file")
    found = as_mapping(item)
    if found is None:
        raise refused(place, f"is of the type {type(item).__name__}: give a string, a dict or a Message")
    whole = sound(found, place)
    return restored(whole, place, Message) if gemini.is_content(whole) and _is_own(whole) else whole


def _messages(item: Any, place: str, calls: Calls, shape: str, family: str) -> Iterable[Placed]:
    match item:
        case Message():
            return [as_given(_counted(item, calls), place)]
        case Turn():
            return [as_given(_counted(Message("assistant", item.parts), calls), place)]
        case str():
            return [Placed(user(item), Places(place, (place,)))]
        case _ if shape == gemini.WIRE:
            return gemini.read(item, place, calls)
        case _ if shape == bedrock.WIRE:
            return bedrock.read(item, place, calls)
        case _ if shape == responses.WIRE:
            return responses.read(item, place, calls, is_among_items=family == responses.WIRE)
        case _:
            return chat.read(item, place, calls, family)


# Shapes.


def _shape(item: Any, family: str, wire: str) -> str:
    """Whose shape an item has; none if it is ours."""
    if isinstance(item, Message | Turn):
        return ""
    if isinstance(item, str):
        return wire
    if gemini.is_content(item):
        return gemini.WIRE
    if bedrock.is_message(item):
        return bedrock.WIRE
    if responses.is_item(item):
        return responses.WIRE
    is_foreign = family in (responses.WIRE, anthropic.WIRE) and chat.is_only_chat(item)
    return chat.WIRE if is_foreign else family


def _family(messages: list[Json]) -> str:
    """The wire of those that are told apart by their neighbours only, for a text with `cache_control` is two vendors'.

    Chat Completions, unless there is something that only another has.
    """
    if any(responses.is_known(message) or responses.is_written(message) for message in messages):
        return responses.WIRE
    if any("tool_plan" in message or _has(message, _is_document) for message in messages):
        return "cohere"
    if any(_has(message, anthropic.is_block) for message in messages):
        return anthropic.WIRE
    if any(ollama.is_message(message) for message in messages):
        return ollama.WIRE
    is_chat = any(message.get("role") in _CHAT_ROLES or message.get("tool_calls") for message in messages)
    is_cached = any(_has(message, lambda part: "cache_control" in part) for message in messages)
    return anthropic.WIRE if is_cached and not is_chat else chat.WIRE


def _has(message: Json, is_such: Any) -> bool:
    content: Any = message.get("content")
    return isinstance(content, list) and any(isinstance(part, Mapping) and is_such(part) for part in content)


def _is_document(part: Json) -> bool:
    return part.get("type") == "document" and "document" in part


def _is_own(message: Json) -> bool:
    """Whether it is a message as we store it, and no content of Gemini's: its parts, if it has any, tell their type."""
    parts: Any = message.get("parts")
    if message.get("role") not in _OURS or not isinstance(parts, list):
        return False
    if not parts:
        return set(message) == {"role", "parts"}
    return any(isinstance(part, Mapping) and "type" in part for part in parts)


def _counted(message: Message, calls: Calls) -> Message:
    """The message, whose calls may be answered by those that follow in other shapes."""
    for part in message.parts:
        match part:
            case ToolCall() | ToolCallInvalid():
                calls.add(part.id, part.name)
            case ToolResult():
                calls.answered(part.call_id)
            case _:
                pass
    return message

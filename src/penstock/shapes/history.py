"""What people already hold, as messages: strings, turns, and the dicts and objects of the vendors' SDKs.

The shapes may be mixed in one list. What has no place in a message is refused, with where it stands, or kept as state
of its vendor: nothing is dropped in silence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from penstock.events import ToolCall, ToolCallInvalid
from penstock.messages import MARK, Message, ToolResult, joined, restore, restored, user
from penstock.objects import as_mapping
from penstock.shapes import anthropic, bedrock, chat, gemini, ollama, responses
from penstock.shapes.common import Calls, Joined, Json, refused
from penstock.turn import Turn

Given = tuple[str, Any]
"""Something that is to be read, and where it stands."""

_OURS = ("user", "assistant", "tool", "system")
_CHAT_ROLES = ("system", "developer", "tool", "function")


def as_messages(what: Any) -> list[Message]:
    """The messages that these are: one of a kind that is known (a string is the user's), a list of such, or a request.

    Of a request's body the history is taken, what the system says first; its settings and tools are not part of it.
    """
    if isinstance(what, Sequence | Iterator) and not isinstance(what, str | bytes):
        return _read([(f"messages[{at}]", item) for at, item in enumerate(what)], "")
    body = None if isinstance(what, str | Message | Turn) else as_mapping(what)
    if body is None or "role" in body or "parts" in body:
        return _read([("message", what)], "")
    if MARK in body:
        return restore(body)
    return _of_a_request(body) if _HISTORIES & body.keys() else _read([("message", what)], "")


# Requests.

_HISTORIES = {"messages", "contents", "input"}


def _of_a_request(body: Json) -> list[Message]:
    field = next(name for name in ("messages", "contents", "input") if name in body)
    given = body[field]
    is_list = isinstance(given, Sequence) and not isinstance(given, str | bytes)
    items: list[Given] = [(f"{field}[{at}]", item) for at, item in enumerate(given)] if is_list else [(field, given)]
    wires = {"input": responses.WIRE, "contents": gemini.WIRE}
    has_system = isinstance(body.get("system"), str | list)
    wire = wires.get(field, anthropic.WIRE if has_system or "anthropic_version" in body else "")
    return [*_system(body), *_read(items, wire)]


def _system(body: Json) -> Iterator[Message]:
    """What the system says in a field of its own."""
    for name in ("system", "instructions"):
        match body.get(name):
            case None | "" | []:
                pass
            case [*blocks] if all(map(bedrock.is_block, blocks)):
                yield bedrock.system(blocks, name)
            case content:
                yield chat.system(content, name, {}, anthropic.WIRE)
    for name in ("systemInstruction", "system_instruction"):
        match body.get(name):
            case None | "":
                pass
            case Mapping() as content if "parts" in content:
                yield from gemini.read({**content, "role": "system"}, name, Calls())
            case parts:
                yield from gemini.read({"parts": parts, "role": "system"}, name, Calls())


# Messages.


def _read(given: list[Given], wire: str) -> list[Message]:
    items = [(place, _opened(item, place)) for place, item in given]
    dicts = [item for _, item in items if isinstance(item, Mapping)]
    family = wire or _family(dicts)
    calls = Calls()
    read: list[Message | Joined] = []
    for place, item in items:
        for found in _messages(item, place, calls, family):
            last = read[-1] if read else None
            if isinstance(found, Joined) and isinstance(last, Joined) and last.message.role == found.message.role:
                read[-1] = Joined(joined(last.message, found.message))
            else:
                read.append(found)
    return [found.message if isinstance(found, Joined) else found for found in read]


def _opened(item: Any, place: str) -> Any:
    """The item; of an object its fields."""
    if isinstance(item, Message | Turn | str):
        return item
    found = as_mapping(item)
    if found is None:
        raise refused(place, f"is of the type {type(item).__name__}: give a string, a dict or a Message")
    return found


def _messages(item: Any, place: str, calls: Calls, family: str) -> Iterable[Message | Joined]:
    match item:
        case Message():
            return [_counted(item, calls)]
        case Turn():
            return [_counted(Message("assistant", item.parts), calls)]
        case str():
            return [user(item)]
        case _:
            return _shaped(item, place, calls, family)


def _shaped(message: Json, place: str, calls: Calls, family: str) -> Iterable[Message | Joined]:
    if gemini.is_content(message):
        return [_counted(_own(message, place), calls)] if _is_own(message) else gemini.read(message, place, calls)
    if bedrock.is_message(message):
        return bedrock.read(message, place, calls)
    if responses.is_item(message) or (family == responses.WIRE and not chat.is_only_chat(message)):
        return responses.read(message, place, calls)
    return chat.read(message, place, calls, family)


def _family(messages: list[Json]) -> str:
    """The wire of those that are told apart by their neighbours only, for a text with `cache_control` is two vendors'.

    Chat Completions, unless there is something that only another has.
    """
    if any(responses.is_item(message) or responses.is_written(message) for message in messages):
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
    """Whether it is a message as we store it, and no content of Gemini's: its parts tell their type."""
    parts: Any = message["parts"]
    if message.get("role") not in _OURS or not isinstance(parts, list):
        return False
    return message["role"] != "user" or any(isinstance(part, Mapping) and "type" in part for part in parts)


def _own(message: Json, place: str) -> Message:
    return restored(message, place, Message)


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

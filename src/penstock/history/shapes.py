"""Which wire the messages of a history were written for, and how that wire reads them: the registry of all readers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from penstock.wires import all_facts
from penstock.wires.anthropic import decode_request as anthropic
from penstock.wires.bedrock import decode_request as bedrock
from penstock.wires.cohere import decode_request as cohere
from penstock.wires.gemini import decode_request as gemini
from penstock.wires.ollama import decode_request as ollama
from penstock.wires.openai_chat import decode_request as chat
from penstock.wires.openai_responses import decode_request as responses
from penstock.wires.shared import role_messages
from penstock.wires.shared.fields import Json, clean_value, describe_part, unreadable
from penstock.wires.shared.message_reader import ReadContext
from penstock.wires.shared.places import PlacedMessage

Detector = Callable[[Json], bool]

READERS = (cohere.READER, chat.READER, anthropic.READER, responses.READER, ollama.READER)


def new_context() -> ReadContext:
    """What the readers of one history share."""
    return ReadContext(READERS, all_facts(), chat.WIRE)


# The wire of a message.


def _is_item(message: Json) -> bool:
    return responses.is_item(message) and not anthropic.is_response(message)


def _is_of_responses(message: Json) -> bool:
    return (responses.is_known_item(message) and _is_item(message)) or responses.is_message(message)


_SHAPES: tuple[tuple[str, Detector], ...] = (
    (gemini.WIRE, gemini.is_message),
    (bedrock.WIRE, bedrock.is_message),
    (responses.WIRE, _is_item),
)
"""The wires whose messages have a shape of their own."""
_FAMILIES: tuple[tuple[str, Detector], ...] = (
    (responses.WIRE, _is_of_responses),
    (cohere.WIRE, cohere.is_message),
    (anthropic.WIRE, anthropic.is_message),
    (ollama.WIRE, ollama.is_message),
    (chat.WIRE, chat.is_message),
    (anthropic.WIRE, anthropic.is_cached),
)
"""How to tell the wire of a list of messages with a role and a content, from any message in it."""
_WITHOUT_CHAT = (responses.WIRE, anthropic.WIRE)
"""The wires that do not have all the messages of Chat Completions."""


def find_family(messages: list[Json]) -> str:
    """The wire of the messages that can be told apart only by their neighbours: a text with `cache_control`, say."""
    return next((wire for wire, is_its in _FAMILIES if any(map(is_its, messages))), chat.WIRE)


def find_shape(message: Json, family: str) -> str:
    """The wire of one message of a list of this family."""
    for wire, is_its in _SHAPES:
        if is_its(message):
            return wire
    return chat.WIRE if family in _WITHOUT_CHAT and chat.is_only_chat(message) else family


def read_message(message: Json, place: str, context: ReadContext, shape: str, family: str) -> Iterable[PlacedMessage]:
    """The messages that a message of this shape becomes."""
    match shape:
        case gemini.WIRE:
            return gemini.read(message, place, context.calls)
        case bedrock.WIRE:
            return bedrock.read(message, place, context.calls)
        case responses.WIRE:
            _refuse_other_items(message, place)
            return responses.read(message, place, context, is_among_items=family == responses.WIRE)
        case _:
            return role_messages.read(message, place, context, family)


def is_content(message: Json) -> bool:
    """Whether a message has `parts`, as our own messages have too."""
    return gemini.is_message(message)


# What is not a message.

_LANGCHAIN = ("human", "ai", "HumanMessageChunk", "AIMessageChunk")
_LANGCHAIN_TOO = ("system", "tool", "function", "chat")
"""The types of LangChain messages that other things have too: a tool declaration, say, which has no content."""
_FROM_LANGCHAIN = "load it with LangChain (messages_from_dict, load) and convert it with its convert_to_openai_messages"


def _refuse_other_items(item: Json, place: str) -> None:
    """Refuse an object with a type that is neither a message nor an item."""
    kind = item.get("type")
    if not isinstance(kind, str) or kind in responses.ITEMS:
        return
    if any(wire.is_part(item) for wire in (chat, responses, anthropic)):
        raise unreadable(place, f"{describe_part(item)} is not a message; put it into the content of one")
    if kind in gemini.INTERACTIONS:
        raise unreadable(
            place, f"{describe_part(item)} is from Gemini's Interactions API, which is not supported; send contents"
        )
    has_content = "data" in item or "content" in item
    if kind in _LANGCHAIN or (kind in _LANGCHAIN_TOO and has_content) or (kind == "constructor" and "lc" in item):
        raise unreadable(place, f"is a LangChain message of the type {kind!r}; {_FROM_LANGCHAIN}")


# Requests.

_HISTORIES = {"messages": "", "contents": gemini.WIRE, "input": responses.WIRE}
"""The fields that hold the messages of a request, and the wire that has this field."""
_SYSTEM = ("system", "instructions")
_SYSTEM_CONTENT = ("systemInstruction", "system_instruction")
_CONTINUED = ("previous_response_id", "conversation")


def history_fields(body: Json) -> tuple[str, ...]:
    """The fields of a request that its history is read from, the messages first; none if it is not a request."""
    messages = [name for name in _HISTORIES if name in body][:1]
    return (*messages, *(name for name in (*_SYSTEM, *_SYSTEM_CONTENT) if messages and name in body))


def request_wire(body: Json) -> str:
    """The wire of a request, by its fields; empty if they do not say."""
    has_system = isinstance(body.get("system"), str | list)
    is_anthropic = has_system or "anthropic_version" in body
    return _HISTORIES[history_fields(body)[0]] or (anthropic.WIRE if is_anthropic else "")


def is_continued(body: Json) -> bool:
    """Whether a request continues a history that the provider keeps."""
    return history_fields(body)[0] == "input" and any(body.get(name) for name in _CONTINUED)


def read_system_fields(body: Json) -> Iterator[PlacedMessage]:
    """The system messages in fields of a request."""
    context = new_context()
    for name in _SYSTEM:
        match clean_value(body.get(name), name):
            case None | "" | []:
                pass
            case [*blocks] if all(map(bedrock.is_block, blocks)):
                yield bedrock.system(blocks, name)
            case content:
                yield role_messages.read_system(content, name, context, anthropic.WIRE)
    for name in _SYSTEM_CONTENT:
        match clean_value(body.get(name), name):
            case None | "":
                pass
            case Mapping() as content if "parts" in content:
                yield from gemini.read({**content, "role": "system"}, name, context.calls)
            case parts:
                yield from gemini.read({"parts": parts, "role": "system"}, name, context.calls)

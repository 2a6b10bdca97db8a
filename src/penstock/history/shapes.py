"""Detects the wire of a history's messages, and reads them with the readers of all wires."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from penstock.wires import all_facts, all_readers
from penstock.wires.shared.decode_request.fields import Json
from penstock.wires.shared.decode_request.message_reader import ReadContext, RequestReader
from penstock.wires.shared.decode_request.places import PlacedMessage


def new_context() -> ReadContext:
    """The context that the readers of one history share."""
    return ReadContext(all_readers().values(), all_facts(), _default_wire())


def _default_wire() -> str:
    """The wire of ambiguous messages: the last one, which is the most general."""
    return next(reversed(all_readers()))


# The wire of a message.


def find_family(messages: list[Json]) -> str:
    """The wire of messages that only their neighbours identify, such as a text with `cache_control`."""
    readers = all_readers().values()
    typical = (reader.wire for reader in readers if any(_is_typical(message, reader) for message in messages))
    possible = (reader.wire for reader in readers if any(map(reader.is_possible, messages)))
    return next(typical, "") or next(possible, "") or _default_wire()


def _is_typical(message: Json, reader: RequestReader) -> bool:
    return reader.is_typical(message) and not _is_response_of_another(message, reader)


def find_shape(message: Json, family: str) -> str:
    """The wire of one message of a list of this family."""
    if all_readers()[family].keeps(message):
        return family
    owner = next((reader for reader in all_readers().values() if reader.is_own(message)), None)
    if owner and not _is_response_of_another(message, owner):
        return owner.wire
    return family if all_readers()[family].takes(message) else _default_wire()


def _is_response_of_another(message: Json, owner: RequestReader) -> bool:
    return any(reader.is_whole_response(message) for reader in all_readers().values() if reader is not owner)


def read_message(message: Json, place: str, context: ReadContext, shape: str, family: str) -> Iterable[PlacedMessage]:
    """The messages of a message of this shape."""
    return all_readers()[shape].read(message, place, context, family)


# Requests. The most general wire is asked first, as most requests have its fields.


def history_fields(body: Json) -> tuple[str, ...]:
    """The history fields of a request, the messages first; empty if it is not a request."""
    for messages in _message_fields():
        if messages in body:
            return (messages, *[name for name in _system_fields() if name in body])
    return ()


@cache
def _message_fields() -> tuple[str, ...]:
    return (*dict.fromkeys(reader.history_field for reader in reversed(all_readers().values())),)


@cache
def _system_fields() -> tuple[str, ...]:
    fields = (field for reader in reversed(all_readers().values()) for field in reader.system_fields)
    return (*dict.fromkeys(fields),)


def _readers_of(body: Json) -> list[RequestReader]:
    """The readers of the wires whose requests have their messages in this field."""
    field = history_fields(body)[0]
    return [reader for reader in all_readers().values() if reader.history_field == field]


def request_wire(body: Json) -> str:
    """The wire of a request, by its fields; empty if they are ambiguous."""
    return next((reader.wire for reader in _readers_of(body) if reader.is_request(body)), "")


def is_continued(body: Json) -> bool:
    """Whether a request continues a history that the provider stores."""
    return any(reader.is_continued(body) for reader in _readers_of(body))


def read_system_fields(fields: Json) -> Iterator[PlacedMessage]:
    """The system messages in these fields of a request."""
    for name, content in fields.items():
        if content in (None, "", []):
            continue
        context = new_context()
        readers = (reader for reader in all_readers().values() if name in reader.system_fields)
        candidates = (reader.read_system(content, name, context) for reader in readers)
        yield from next(messages for messages in candidates if messages is not None)

"""Remembers responses, for clients that do not send them back in full.

| the client | what is remembered |
|---|---|
| continues a response by its id | the messages up to this response, and its tools |
| refers to items of a response by their ids | the response |
| sends back calls, without what its protocol has no place for | the response, with reasoning and vendor state |

All are kept in memory, for a while: a client whose response is forgotten is told to send its whole history, and a
response without its vendor state is sent as the client has it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, groupby

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.asgi.access import key_digest
from penstock.asgi.limits import MEGABYTE
from penstock.asgi.request import RejectedRequest
from penstock.declarations import ToolDeclaration
from penstock.events import Opaque, Reasoning, StreamChunk, Text, ToolCall
from penstock.history.client_request import ClientRequest
from penstock.messages import Media, Message, Part, ToolResult, join_messages
from penstock.turn import TurnBuilder
from penstock.wires import find_facts, find_response_frames
from penstock.wires.shared.encode_request.states import item_id_of
from penstock.wires.shared.encode_response.response_errors import UNKNOWN_RESPONSE
from penstock.wires.shared.encode_response.response_head import ResponseHead


class KeptResponse(Struct, frozen=True, kw_only=True):
    """A response that a client may refer to, and the tools of its request."""

    reply: Message
    tools: tuple[ToolDeclaration, ...] = ()


FindResponse = Callable[[str], KeptResponse | None]
"""Finds a response of the same client by its id."""


def with_items(request: ClientRequest, find: FindResponse) -> tuple[Message, ...]:
    """The messages of a request, with the items that they refer to; references to unknown items stay."""
    kind = find_facts(request.wire).reference
    if not kind:
        return request.messages
    return tuple(_resolved(message, request.wire, kind, find) for message in request.messages)


def _resolved(message: Message, wire: str, kind: str, find: FindResponse) -> Message:
    def is_reference(part: Part) -> bool:
        return isinstance(part, Opaque) and part.kind == kind

    if not any(map(is_reference, message.parts)):
        return message
    pieces: list[Message] = []
    for are_references, group in groupby(message.parts, is_reference):
        parts = tuple(group)
        found = [_item(part, wire, find) for part in parts] if are_references else [parts]
        pieces += [Message(message.role, some) for some in found]
    return join_messages(*pieces)


def _item(reference: Part, wire: str, find: FindResponse) -> tuple[Part, ...]:
    """The parts of a referenced item: its id contains the id of its response."""
    id = item_id_of(reference, find_facts(wire)) if isinstance(reference, Opaque) else ""
    for number in id.split("_"):
        if (kept := find(number)) is None:
            continue
        custom = frozenset(tool.name for tool in kept.tools if tool.is_custom)
        frames = find_response_frames(wire)(ResponseHead(id=number, custom_tools=custom))
        parts = [part for part in kept.reply.parts if not isinstance(part, Media | ToolResult)]
        blocks = frames.item_blocks(parts).get(id, set())
        return tuple(part for part in parts if part.block in blocks) or (reference,)
    return (reference,)


MAX_REMEMBERED = 64 * MEGABYTE
"""How many bytes of messages and tools are remembered; the oldest responses are forgotten."""
MAX_RESPONSE = 8 * MEGABYTE
"""How many bytes one response may take, with the tools of its request, and the messages that are new in it."""
REFERENCE = 8
"""How many bytes a response takes for each message that it holds, also if it shares it with others."""

PART = 50
"""How many bytes a part of a message takes besides its text."""

_encode = msgspec.json.Encoder(enc_hook=str).encode


class Remembered(KeptResponse, frozen=True, kw_only=True):
    """A response, the messages before it, and the tools of its request, which take `tools_size` bytes."""

    instructions: tuple[Message, ...] = ()
    messages: tuple[Message, ...] = ()
    tools_size: int = 0

    @property
    def size(self) -> int:
        """Bytes in memory, without the messages."""
        return self.tools_size + REFERENCE * (len(self.instructions) + len(self.messages) + 1)

    @property
    def held(self) -> Iterator[Message]:
        """The messages kept in memory, possibly shared with other responses."""
        return chain(self.instructions, self.messages, (self.reply,))


Kept = OrderedDict[tuple[str, str], Remembered]
"""Responses by the key of their client, and an id of their own or of a call."""


def _size(message: Message) -> int:
    """About how many bytes a message takes; to encode thousands of them would take long."""
    return REFERENCE + sum(map(_part_size, message.parts))


def _part_size(part: Part) -> int:
    match part:
        case Text() | Reasoning():
            return PART + len(part.text)
        case ToolCall():
            return PART + len(part.name) + 2 * len(part.arguments_raw)
        case _:
            return PART + len(_encode(part))


class HeldMessages:
    """The messages in memory, each counted once: responses of one conversation share messages."""

    def __init__(self) -> None:
        self.size = 0
        self._held: dict[int, tuple[int, int]] = {}  # by identity: how many responses hold it, and its size

    def new_sizes(self, messages: Iterable[Message]) -> dict[int, int]:
        """The sizes of the messages that are not held yet, by identity."""
        return {id(message): _size(message) for message in messages if id(message) not in self._held}

    def hold(self, messages: Iterable[Message], sizes: Mapping[int, int]) -> None:
        """Count another response that holds these messages; `sizes` are those of new messages."""
        for message in messages:
            count, size = self._held.get(id(message)) or (0, sizes[id(message)])
            self._held[id(message)] = count + 1, size
            self.size += 0 if count else size

    def release(self, messages: Iterable[Message]) -> None:
        """Release the messages of a forgotten response."""
        for message in messages:
            count, size = self._held.pop(id(message))
            if count > 1:
                self._held[id(message)] = count - 1, size
            else:
                self.size -= size


class ResponseMemory:
    """The responses of one gateway. Each belongs to the key of its client."""

    def __init__(self) -> None:
        self._size = 0  # bytes of all responses, without their messages
        self._held = HeldMessages()
        self._responses: Kept = OrderedDict()
        self._calls: Kept = OrderedDict()

    def complete(self, request: ClientRequest, key: str) -> ClientRequest:
        """The request with all that its client refers to; raises if a response is unknown."""
        owner = key_digest(key)
        request = self._continued(request, owner) if request.settings.previous_response else request
        messages = with_items(request, lambda number: self._responses.get((owner, number)))
        return replace(request, messages=tuple(self._restored(message, owner) for message in messages))

    def _continued(self, request: ClientRequest, owner: str) -> ClientRequest:
        """The request with the messages up to the response that it continues."""
        settings = request.settings
        known = self._responses.get((owner, _number(settings.previous_response)))
        if known is None:
            why = f"the response {settings.previous_response!r} is not known here, or no longer: send the whole history"
            raise RejectedRequest(404, UNKNOWN_RESPONSE, why)
        instructions, new = _split(request)
        if settings.is_thread:
            instructions = instructions or known.instructions
        messages = (*instructions, *known.messages, known.reply, *new)
        tools = settings.tools or (known.tools if settings.is_thread else ())
        return replace(request, messages=messages, settings=replace(settings, tools=tools))

    def _restored(self, message: Message, owner: str) -> Message:
        """The original message of the model, if the client sent back only a part of it."""
        if message.role != "assistant" or not message.tool_calls:
            return message
        known = self._calls.get((owner, message.tool_calls[0].id))
        is_known = known is not None and _is_same(known.reply, message) and _lacks(message, known.reply)
        return known.reply if known is not None and is_known else message

    def record(self, request: ClientRequest, key: str, id: str) -> ResponseRecord | None:
        """The record of the response to a request; None if it cannot be needed again."""
        if not request.settings.is_kept and not request.settings.tools:
            return None
        return ResponseRecord(self, request, key, id)

    def record_whole(self, request: ClientRequest, key: str, id: str, chunks: list[StreamChunk]) -> None:
        """Remember a complete response, if it can be needed again."""
        if (record := self.record(request, key, id)) is not None:
            record.add(chunks)
            record.end()

    def keep(self, request: ClientRequest, key: str, id: str, reply: Message) -> None:
        """Remember a response."""
        is_kept, has_calls = request.settings.is_kept, bool(reply.tool_calls) and _is_rich(reply)
        if not is_kept and not has_calls:
            return
        instructions, messages = _split(request) if is_kept else ((), ())
        tools = request.settings.tools if is_kept else ()
        remembered = Remembered(
            instructions=instructions, messages=messages, reply=reply, tools=tools,
            tools_size=len(_encode(tools)) if tools else 0,
        )  # fmt: skip
        sizes = self._held.new_sizes(remembered.held)
        if remembered.size + sum(sizes.values()) > MAX_RESPONSE:
            return
        owner = key_digest(key)
        if is_kept:
            self._add(self._responses, (owner, id), remembered, sizes)
        if has_calls:
            alone = Remembered(reply=reply)
            for call in reply.tool_calls:
                self._add(self._calls, (owner, call.id), alone, sizes)
        while self._size + self._held.size > MAX_REMEMBERED:
            kept = max(self._responses, self._calls, key=len)
            self._forget(kept, next(iter(kept)))

    def _add(self, kept: Kept, key: tuple[str, str], remembered: Remembered, sizes: Mapping[int, int]) -> None:
        self._held.hold(remembered.held, sizes)
        self._size += remembered.size
        if key in kept:
            self._forget(kept, key)
        kept[key] = remembered

    def _forget(self, kept: Kept, key: tuple[str, str]) -> None:
        remembered = kept.pop(key)
        self._held.release(remembered.held)
        self._size -= remembered.size


class ResponseRecord:
    """The record of one streaming response."""

    reads_text = True

    def __init__(self, memory: ResponseMemory, request: ClientRequest, key: str, id: str) -> None:
        self._memory = memory
        self._request = request
        self._key = key
        self._id = id
        self._turn = TurnBuilder()
        self.add_one = self._turn.add

    def add(self, chunks: Iterable[StreamChunk]) -> None:
        """Add the events of one network read."""
        for chunk in chunks:
            self._turn.add(chunk)

    def end(self) -> None:
        """Remember the response, if it is complete."""
        turn = self._turn.build()
        if turn.error is None and turn.finish_reason not in ("cut", "error"):
            self._memory.keep(self._request, self._key, self._id, Message("assistant", turn.parts))


def _number(id: str) -> str:
    """The id of a response without the prefix of its protocol."""
    return id.rpartition("_")[2]


def _split(request: ClientRequest) -> tuple[tuple[Message, ...], tuple[Message, ...]]:
    """The instructions of a request, and its other messages."""
    count = 1 if request.settings.has_instructions else 0
    return request.messages[:count], request.messages[count:]


def _is_rich(message: Message) -> bool:
    """Whether a message has reasoning or vendor state."""
    return any(isinstance(part, Reasoning | Opaque) for part in message.parts)


def _lacks(message: Message, reply: Message) -> bool:
    """Whether a message lacks reasoning or vendor state of its response."""
    states = [part.data for part in message.parts if isinstance(part, Opaque)]
    if any(isinstance(part, Opaque) and part.data not in states for part in reply.parts):
        return True
    return bool(_reasoning(reply)) and not _reasoning(message)


def _reasoning(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Reasoning)).strip()


def _is_same(reply: Message, message: Message) -> bool:
    """Whether a message equals the response, unedited.

    Servers reuse call ids, so the reasoning, if the client sends it, must also be equal.
    """
    calls, others = reply.tool_calls, message.tool_calls
    has_same_calls = [(call.id, call.name, call.arguments) for call in calls] == [
        (call.id, call.name, call.arguments) for call in others
    ]
    is_same_text = reply.text.strip() == message.text.strip()
    return has_same_calls and is_same_text and _reasoning(message) in ("", _reasoning(reply))

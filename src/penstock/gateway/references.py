"""Resolves references to items of earlier responses, for clients that expect the server to store them."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby

from msgspec import Struct

from penstock.declarations import ToolDeclaration
from penstock.events import Opaque
from penstock.history.client_request import ClientRequest
from penstock.messages import Media, Message, Part, ToolResult, join_messages
from penstock.wires import find_facts, find_response_frames
from penstock.wires.shared.encode_request.states import item_id_of
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

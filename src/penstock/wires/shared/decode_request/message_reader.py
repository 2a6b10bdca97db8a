"""The readers of requests: one per wire. Messages of several wires, and parts of several wires, may be mixed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from penstock.messages import ToolResult
from penstock.wires.shared.decode_request import role_messages
from penstock.wires.shared.decode_request.call_matcher import CallMatcher
from penstock.wires.shared.decode_request.fields import Json, describe_part, unreadable
from penstock.wires.shared.decode_request.message_builder import MessageBuilder
from penstock.wires.shared.decode_request.places import PlacedMessage
from penstock.wires.shared.facts import WireFacts


class RequestReader:
    """How one wire writes a history in a request: which fields and messages are its own, and how they are read.

    Each wire has one, the `READER` in its `decode_request`. The methods that recognise something are asked in the order
    of `READING_ORDER`, so a general wire may claim what a more special one would claim too.
    """

    wire: ClassVar[str]
    history_field: ClassVar[str] = "messages"
    """The field of a request that holds its messages."""
    system_fields: ClassVar[Sequence[str]] = ()
    """The fields of a request that hold system messages."""

    def is_request(self, body: Json) -> bool:
        """Whether the fields of a request, which has the `history_field`, show that it is of this wire."""
        return False

    def is_continued(self, body: Json) -> bool:
        """Whether a request, which has the `history_field`, continues a history that the provider keeps."""
        return False

    def is_own(self, message: Json) -> bool:
        """Whether a message is of this wire, whatever the other messages of its list are."""
        return False

    def is_typical(self, message: Json) -> bool:
        """Whether a message shows that its list is of this wire."""
        return False

    def is_possible(self, message: Json) -> bool:
        """Whether a message suggests that its list is of this wire, if no message in it is typical of any wire."""
        return False

    def takes(self, message: Json) -> bool:
        """Whether a message may stand in a list of this wire."""
        return True

    def keeps(self, message: Json) -> bool:
        """Whether a message in a list of this wire is of this wire, even if another wire would claim it."""
        return False

    def is_whole_response(self, message: Json) -> bool:
        """Whether a message is a whole response of this wire, which looks like a message of another wire."""
        return False

    def is_part(self, part: Json) -> bool:
        """Whether an object is a content part of this wire."""
        return False

    def explain(self, item: Json) -> str:
        """Why an object with a type that is not a message cannot be read, if this wire knows what it is."""
        return ""

    def read(self, message: Json, place: str, context: ReadContext, wire: str) -> Iterable[PlacedMessage]:
        """The messages that a message becomes; `wire` is the wire of its list."""
        return role_messages.read(message, place, context, wire)

    def read_system(self, content: Any, place: str, context: ReadContext) -> Iterable[PlacedMessage] | None:
        """The system messages in one of the `system_fields`; None if the content is not of this wire."""
        return [role_messages.read_system(content, place, context, self.wire)]


class MessageReader(RequestReader):
    """What one wire writes in messages of a role and a content; by default nothing that is its own.

    Such messages of different wires have much in common, and people mix them. So the readers of all wires are tried in
    turn, and a method that reads a part returns whether it knew the part.
    """

    result_type = ""
    """The type of a content part that is a tool result."""

    def read_content(self, parts: MessageBuilder, part: Json, place: str, context: ReadContext) -> bool:
        """Add a part of a user message, or of a result."""
        return False

    def read_answer(self, parts: MessageBuilder, part: Json, place: str, context: ReadContext) -> bool:
        """Add a part of an assistant message."""
        return False

    def read_result(self, part: Json, place: str, context: ReadContext) -> ToolResult:
        """The result that a part of the type `result_type` is."""
        raise NotImplementedError

    def parts_beside(self, message: Json, place: str) -> Iterable[tuple[str, Json]]:
        """The content parts that stand in other fields of a message, each with its place."""
        return ()

    def read_before_content(self, parts: MessageBuilder, message: Json, place: str) -> None:
        """Add the fields of an assistant message that come before its content."""

    def read_after_content(self, parts: MessageBuilder, message: Json, place: str) -> None:
        """Add the fields of an assistant message that come after its content."""

    def known_fields(self, message: Json) -> Iterable[str]:
        """The fields of an assistant message that these two methods read."""
        return ()

    def is_response(self, message: Json) -> bool:
        """Whether a message is a whole response, whose other fields are about that response."""
        return False


class ReadContext:
    """What the readers of one history share: the readers of all wires, their facts, and the calls so far.

    Parts that have no other owner belong to `default_wire`.
    """

    def __init__(self, readers: Iterable[RequestReader], facts: Mapping[str, WireFacts], default_wire: str) -> None:
        self.all_readers = tuple(readers)
        self.readers = tuple(reader for reader in self.all_readers if isinstance(reader, MessageReader))
        self.calls = CallMatcher()
        self._facts = facts
        self._default_wire = default_wire

    def facts_of(self, wire: str) -> WireFacts:
        """The facts of a wire."""
        return self._facts[wire]

    def fields_wire(self, wire: str) -> str:
        """The wire that takes back the fields of a message that was read for this wire."""
        return wire if self._facts[wire].takes_message_fields else self._default_wire

    def read_content(self, parts: MessageBuilder, part: Json, place: str) -> None:
        """Add a part of a user message, or of a result."""
        if not any(reader.read_content(parts, part, place, self) for reader in self.readers):
            raise unreadable(
                place, f"{describe_part(part)} cannot be sent; send text, an image, a file or a tool result"
            )

    def read_answer(self, parts: MessageBuilder, part: Json, place: str) -> None:
        """Add a part of an assistant message."""
        if not any(reader.read_answer(parts, part, place, self) for reader in self.readers):
            raise unreadable(place, f"{describe_part(part)} is not a known part of an assistant message")

    def result_reader(self, part: Json) -> MessageReader | None:
        """The reader of a content part that is a tool result; None if the part is something else."""
        kind = part.get("type")
        return next((reader for reader in self.readers if reader.result_type and reader.result_type == kind), None)

    def refuse_known(self, item: Json, place: str) -> None:
        """Raise if an object with a type is not a message, and a wire knows what it is."""
        if any(reader.is_part(item) for reader in self.all_readers):
            raise unreadable(place, f"{describe_part(item)} is not a message; put it into the content of one")
        if why := next(filter(None, (reader.explain(item) for reader in self.all_readers)), ""):
            raise unreadable(place, why)

    def parts_beside(self, message: Json, place: str) -> list[tuple[str, Json]]:
        """The content parts that stand in other fields of a message, each with its place."""
        return [part for reader in self.readers for part in reader.parts_beside(message, place)]

"""The readers of all wires for messages of a role and a content, in which parts of several wires may be mixed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.messages import ToolResult
from penstock.wires.shared.call_matcher import CallMatcher
from penstock.wires.shared.facts import WireFacts
from penstock.wires.shared.fields import Json, describe_part, unreadable
from penstock.wires.shared.message_builder import MessageBuilder


class MessageReader:
    """What one wire writes in messages of a role and a content; by default nothing that is its own.

    Such messages of different wires have much in common, and people mix them. So the readers of all wires are tried in
    turn, and a method that reads a part returns whether it knew the part.
    """

    result_type = ""
    """The type of a content part that is a tool result."""

    def read_content(self, parts: MessageBuilder, part: Json, at: str, context: ReadContext) -> bool:
        """Add a part of a user message, or of a result."""
        return False

    def read_answer(self, parts: MessageBuilder, part: Json, at: str, context: ReadContext) -> bool:
        """Add a part of an assistant message."""
        return False

    def read_result(self, part: Json, at: str, context: ReadContext) -> ToolResult:
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

    def __init__(self, readers: Iterable[MessageReader], facts: Mapping[str, WireFacts], default_wire: str) -> None:
        self.readers = tuple(readers)
        self.calls = CallMatcher()
        self._facts = facts
        self._default_wire = default_wire

    def facts_of(self, wire: str) -> WireFacts:
        """The facts of a wire."""
        return self._facts[wire]

    def fields_wire(self, wire: str) -> str:
        """The wire that takes back the fields of a message that was read for this wire."""
        return wire if self._facts[wire].takes_message_fields else self._default_wire

    def read_content(self, parts: MessageBuilder, part: Json, at: str) -> None:
        """Add a part of a user message, or of a result."""
        if not any(reader.read_content(parts, part, at, self) for reader in self.readers):
            raise unreadable(at, f"{describe_part(part)} cannot be sent; send text, an image, a file or a tool result")

    def read_answer(self, parts: MessageBuilder, part: Json, at: str) -> None:
        """Add a part of an assistant message."""
        if not any(reader.read_answer(parts, part, at, self) for reader in self.readers):
            raise unreadable(at, f"{describe_part(part)} is not a known part of an assistant message")

    def result_reader(self, part: Json) -> MessageReader | None:
        """The reader of a content part that is a tool result; None if the part is something else."""
        kind = part.get("type")
        return next((reader for reader in self.readers if reader.result_type and reader.result_type == kind), None)

    def parts_beside(self, message: Json, place: str) -> list[tuple[str, Json]]:
        """The content parts that stand in other fields of a message, each with its place."""
        return [part for reader in self.readers for part in reader.parts_beside(message, place)]

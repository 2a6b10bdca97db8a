"""Builds a message from the parts that a reader finds, each with its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from penstock.calls.arguments import diagnose, strict_object
from penstock.events import CallKind, Opaque, Reasoning, Refusal, Text, ToolCall, ToolCallInvalid
from penstock.messages import PART_FIELDS, RESULT_CONTENT, WHOLE_BLOCK, File, Image, Message, Part, Role, ToolResult
from penstock.wires.shared.decode_request.call_matcher import CallMatcher
from penstock.wires.shared.decode_request.fields import Json, json_text, to_json
from penstock.wires.shared.decode_request.places import Joins, PlacedMessage, Places


class MessageBuilder:
    """Collects the parts of a message and numbers their blocks. `place`: where the current part is."""

    def __init__(self, wire: str, calls: CallMatcher, place: str) -> None:
        self.wire = wire
        self.place = place
        self._place = place
        self.calls = calls
        self._parts: list[tuple[Part, str]] = []
        self._blocks = 0

    def build(self, role: Role, *, joins: Joins = "alone") -> PlacedMessage:
        """The message, with its places."""
        message = Message(role, tuple(part for part, _ in self._parts))
        return PlacedMessage(message, Places(self._place, tuple(place for _, place in self._parts)), joins)

    @property
    def is_empty(self) -> bool:
        """Whether there are no parts yet."""
        return not self._parts

    def text(self, text: str, fields: Json | None = None, wire: str = "") -> int:
        """Add a text, with other fields as vendor state; returns its block, as do the methods below."""
        return self._add_text(Text(self._next(), text), fields, wire)

    def refusal(self, text: str, fields: Json | None = None) -> int:
        """Add a refusal."""
        return self._add_text(Refusal(self._next(), text), fields)

    def reasoning(self, text: str) -> int:
        """Add reasoning; without text there is only a block, for vendor state."""
        block = self._next()
        if text:
            self._add(Reasoning(block, text))
        return block

    def media(self, media: Image | File, fields: Json | None = None, wire: str = "") -> None:
        """Add an image or a file, with other fields as vendor state."""
        state = (Opaque(0, wire or self.wire, PART_FIELDS, to_json(fields)),) if fields else ()
        self._add(replace(media, state=state))

    def call(
        self, id: str, name: str, arguments: Any, place: str, kind: CallKind = "function", checks: Sequence[Json] = ()
    ) -> int:
        """Add a call; its arguments may be JSON text, an object, or anything else that a model wrote."""
        self.calls.add(id, name)
        block, raw = self._next(), json_text(arguments, place)
        parsed = {"input": raw} if kind == "custom" else strict_object(raw)
        if parsed is not None:
            safety_checks = tuple(map(to_json, checks))
            self._add(ToolCall(id, name, parsed, raw, kind=kind, block=block, safety_checks=safety_checks))
        else:
            why, explained, repaired = diagnose(raw, None)
            self._add(ToolCallInvalid(block, id, name, raw, why, explained, repaired))
        return block

    def tool_result(self, build_result: ToolResult) -> None:
        """Add a result to an assistant message, where `check` reports it."""
        self._add(build_result)

    def state(self, block: int, kind: str, data: Any, wire: str = "") -> None:
        """Add vendor state to a block, if there is any."""
        if data:
            self._add(Opaque(block, wire or self.wire, kind, to_json(data)))

    def opaque(self, kind: str, data: Any, wire: str = "") -> int:
        """Add what only its vendor understands, as a block of its own."""
        block = self._next()
        self._add(Opaque(block, wire or self.wire, kind, to_json(data)))
        return block

    def block_with_text(self, kind: str, block: Json, text: str, images: Sequence[Image] = (), wire: str = "") -> None:
        """Add a block that only its vendor understands, with its text and images for other vendors."""
        if not text and not images:
            self.opaque(kind, block, wire)
            return
        number, owner = self._next(), wire or self.wire
        if text:
            self._add(Text(number, text))
        self._add(Opaque(number, owner, WHOLE_BLOCK, to_json(block)))
        for image in images:
            self._add(replace(image, state=(Opaque(0, owner, WHOLE_BLOCK, None),)))

    def _add_text(self, part: Text | Refusal, fields: Json | None, wire: str = "") -> int:
        self._add(part)
        self.state(part.block, PART_FIELDS, fields, wire)
        return part.block

    def _add(self, part: Part) -> None:
        self._parts.append((part, self.place))

    def _next(self) -> int:
        self._blocks += 1
        return self._blocks - 1


def build_result(
    call_id: str,
    builder: MessageBuilder,
    calls: CallMatcher,
    *,
    name: str | None = None,
    is_error: bool = False,
    fields: Json,
    content: Any = None,
) -> ToolResult:
    """The result with this content; if `ToolResult` cannot hold all of it, the vendor's content is kept as state.

    Without a `name` the result is named after its call; an empty name says that there should have been one.
    """
    parts = builder.build("user").message.parts
    parts_of_result = tuple(
        Text(0, part.text) if isinstance(part, Text) else replace(part, state=())
        for part in parts
        if isinstance(part, Text | Image | File)
    )
    is_more = any(isinstance(part, Opaque) or (isinstance(part, Image | File) and part.state) for part in parts)
    state = [Opaque(0, builder.wire, PART_FIELDS, to_json(fields))] if fields else []
    state += [Opaque(0, builder.wire, RESULT_CONTENT, to_json(content))] if is_more and content is not None else []
    known = calls.answer(call_id)
    return ToolResult(call_id, known if name is None else name, parts_of_result, is_error, tuple(state))

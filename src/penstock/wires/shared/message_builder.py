"""The parts of a message in the making, each with its place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from penstock.calls.arguments import diagnose, strict_object
from penstock.events import CallKind, Opaque, Reasoning, Refusal, Text, ToolCall, ToolCallInvalid
from penstock.messages import PART_FIELDS, RESULT_CONTENT, WHOLE_BLOCK, File, Image, Message, Part, Role, ToolResult
from penstock.wires.shared.call_matcher import CallMatcher
from penstock.wires.shared.fields import Json, json_text, to_json
from penstock.wires.shared.places import PlacedMessage, Places


class MessageBuilder:
    """The parts of a message; what is said gets a block of its own. `at` is where that which is being read stands."""

    def __init__(self, wire: str, calls: CallMatcher, place: str) -> None:
        self.wire = wire
        self.at = place
        self._place = place
        self.calls = calls
        self._parts: list[tuple[Part, str]] = []
        self._blocks = 0

    def build(self, role: Role, *, is_item: bool = False) -> PlacedMessage:
        """The message that they are."""
        message = Message(role, tuple(part for part, _ in self._parts))
        return PlacedMessage(message, Places(self._place, tuple(at for _, at in self._parts)), is_item)

    def text(self, text: str, fields: Json | None = None, wire: str = "") -> int:
        return self._said(Text(self._next(), text), fields, wire)

    def refusal(self, text: str, fields: Json | None = None) -> int:
        return self._said(Refusal(self._next(), text), fields)

    def reasoning(self, text: str) -> int:
        """A thought; one that is not shown is only the block that its state is on."""
        block = self._next()
        if text:
            self._add(Reasoning(block, text))
        return block

    def media(self, media: Image | File, fields: Json | None = None, wire: str = "") -> None:
        state = (Opaque(0, wire or self.wire, PART_FIELDS, to_json(fields)),) if fields else ()
        self._add(replace(media, state=state))

    def call(self, id: str, name: str, arguments: Any, at: str, kind: CallKind = "function") -> int:
        """A call, whose arguments may be JSON text, an object, or what else a model made of them."""
        self.calls.add(id, name)
        block, raw = self._next(), json_text(arguments, at)
        given = {"input": raw} if kind == "custom" else strict_object(raw)
        if given is not None:
            self._add(ToolCall(id, name, given, raw, kind=kind, block=block))
        else:
            why, explained, meant = diagnose(raw, None)
            self._add(ToolCallInvalid(block, id, name, raw, why, explained, meant))
        return block

    def tool_result(self, build_result: ToolResult) -> None:
        """A result among what the model said, where it has no place."""
        self._add(build_result)

    def state(self, block: int, kind: str, data: Any, wire: str = "") -> None:
        """State on a part, if there is any."""
        if data:
            self._add(Opaque(block, wire or self.wire, kind, to_json(data)))

    def opaque(self, kind: str, data: Any, wire: str = "") -> int:
        """What only its vendor understands, kept as it stands."""
        block = self._next()
        self._add(Opaque(block, wire or self.wire, kind, to_json(data)))
        return block

    def block_with_text(
        self, kind: str, block: Json, words: str, pictures: Sequence[Image] = (), wire: str = ""
    ) -> None:
        """A block that only its vendor understands, and what others can be told of it, if there is anything."""
        if not words and not pictures:
            self.opaque(kind, block, wire)
            return
        number, owner = self._next(), wire or self.wire
        if words:
            self._add(Text(number, words))
        self._add(Opaque(number, owner, WHOLE_BLOCK, to_json(block)))
        for picture in pictures:
            self._add(replace(picture, state=(Opaque(0, owner, WHOLE_BLOCK, None),)))

    def _said(self, part: Text | Refusal, fields: Json | None, wire: str = "") -> int:
        self._add(part)
        self.state(part.block, PART_FIELDS, fields, wire)
        return part.block

    def _add(self, part: Part) -> None:
        self._parts.append((part, self.at))

    def _next(self) -> int:
        self._blocks += 1
        return self._blocks - 1


def build_result(
    call_id: str,
    shown: MessageBuilder,
    calls: CallMatcher,
    *,
    name: str | None = None,
    is_error: bool = False,
    fields: Json,
    content: Any = None,
) -> ToolResult:
    """A result of what is shown; what of its content has no word of ours stays as it stood.

    Without a `name` it is the one of the call; it is empty where there should have been one.
    """
    parts = shown.build("user").message.parts
    told = tuple(
        Text(0, part.text) if isinstance(part, Text) else replace(part, state=())
        for part in parts
        if isinstance(part, Text | Image | File)
    )
    is_more = any(isinstance(part, Opaque) or (isinstance(part, Image | File) and part.state) for part in parts)
    state = [Opaque(0, shown.wire, PART_FIELDS, to_json(fields))] if fields else []
    state += [Opaque(0, shown.wire, RESULT_CONTENT, to_json(content))] if is_more and content is not None else []
    known = calls.answer(call_id)
    return ToolResult(call_id, known if name is None else name, told, is_error, tuple(state))

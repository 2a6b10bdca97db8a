"""An output item of a Responses stream: what of it has been told, and what its end adds to that.

Such a stream says everything several times: in deltas, when a part is done, when its item is, and when the response
is. What comes first is told; a repetition adds only what is missing (QUIRKS 135, 137, 141).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import StringIO
from typing import Any, ClassVar

from penstock.calls.arguments import MAX_ARGUMENTS
from penstock.events import CallKind, SealedBy
from penstock.jsontext.portable import as_json_value
from penstock.wires.openai_responses.text import Channel, Part, reading, text_of
from penstock.wires.shared.answer_writer import NO_ARGUMENTS, AnswerWriter
from penstock.wires.shared.loose import arguments_text, is_empty, items
from penstock.wires.shared.open_call import OpenCall

Tell = Callable[[Any, str], None]

_ANOTHER_TEXT = "a final text that is not what was streamed"
_NO_PART = frozenset({"type"})  # with only this, a part says nothing


class Item:
    """An output item, and what all of its kinds have in common."""

    def __init__(self, answer: AnswerWriter, tell: Tell, type: str) -> None:
        self.answer = answer
        self.tell = tell
        self.type = type
        self.id = ""
        self.index: int | None = None  # its place in the output, as far as it was told
        self.call_id = ""
        self.data: dict[str, Any] | None = None  # the item as it was announced
        self.is_done = False

    def is_like(self, type: str) -> bool:
        """Whether an item of this type may be this one."""
        return self.type == type

    def takes(self, type: str) -> bool:
        """Whether what belongs to an item of this type may belong to this one."""
        return self.type == type

    def announce(self, data: dict[str, Any]) -> None:
        """The item as it begins. What it holds counts only if it never ends: the end may say otherwise (QUIRKS 142)."""
        self.data = data
        self.id = id_of(data.get("id"))

    def end(self, data: dict[str, Any], sealed_by: SealedBy, is_cut: bool) -> None:
        """The item as it ended; a repetition adds nothing."""
        if not self.is_done:
            self.is_done = True
            self.id = self.id or id_of(data.get("id"))
            self.finish(data, sealed_by, is_cut)

    def finish(self, data: dict[str, Any], sealed_by: SealedBy, is_cut: bool) -> None:
        raise NotImplementedError

    def abandon(self, is_confirmed: bool) -> None:
        """The response is over and the item never ended; `is_confirmed`: the response itself is complete."""
        raise NotImplementedError


class TextItem(Item):
    """A message or a reasoning: texts, each with a block of its own."""

    def __init__(self, answer: AnswerWriter, tell: Tell, type: str) -> None:
        super().__init__(answer, tell, type)
        self._block = answer.new_block()  # the item's place is where it was first heard of
        self._parts: dict[tuple[Channel, int | None], Part] = {}
        self._begun: list[tuple[int | None, Any]] = []
        self._odd: set[int | None] = set()

    def takes(self, type: str) -> bool:
        return self.type == type or (self.type == "message" and type == "reasoning" and not self.is_done)

    def part(self, channel: Channel, index: int | None) -> Part:
        """The text of this number; where numbers are left out, the one that came last."""
        parts = self._parts
        part = parts.get((channel, index))
        if part is None and index is None:
            part = next((part for (kind, _), part in reversed(parts.items()) if kind == channel), None)
        if part is None and (channel, None) in parts:
            part = parts[channel, index] = parts.pop((channel, None))
        if part is None:
            block = self.answer.new_block() if parts else self._block
            part = parts[channel, index] = Part(self.answer, block, channel)
        return part

    def settle(self, channel: Channel, index: int | None, text: str) -> None:
        """A final text."""
        if not self.part(channel, index).settle(text):
            self.tell({channel: text}, _ANOTHER_TEXT)

    def begin_part(self, part: Any, index: int | None) -> None:
        """A content part as it began."""
        self._begun.append((index, part))

    def end_part(self, part: Any, index: int | None) -> None:
        """A content part as it ended."""
        read = reading(part)
        if read is not None:
            channel, text = read
            self.settle(channel, index, text)
            for annotation in annotations_of(part)[self.part(channel, index).annotations :]:
                self.annotate(annotation, index)
        elif index not in self._odd and has_more(part if isinstance(part, dict) else {"": part}, _NO_PART):
            self._odd.add(index)
            self.tell(part, "a part of the content that we do not know")

    def annotate(self, annotation: Any, index: int | None) -> None:
        """A note on the text, such as a source."""
        self.part("text", index).annotations += 1
        self.tell(annotation, "a note on the text")

    def recall(self, parts: Any) -> None:
        """Parts that were there from the beginning: they count if nothing else was said of them."""
        for index, part in [*enumerate(items(parts)), *self._begun]:
            read = reading(part)
            if read is None or not self.part(read[0], index).size:
                self.end_part(part, index)

    def told_block(self) -> int:
        """The block of the last text that was told."""
        return next((part.block for part in reversed(self._parts.values()) if part.size), self._block)


class Message(TextItem):
    """What the model says to the user."""

    _TOLD: ClassVar = frozenset({"id", "type", "status", "role", "content"})

    def finish(self, data: dict[str, Any], sealed_by: SealedBy, is_cut: bool) -> None:
        for index, part in enumerate(items(data.get("content"))):
            self.end_part(part, index)
        if has_more(data, self._TOLD):
            # The phase, above all: models fare worse if it does not come back.
            self.answer.opaque(self.type, as_json_value(without(data, "content")), self.told_block())

    def abandon(self, is_confirmed: bool) -> None:
        self.recall(self.data and self.data.get("content"))


class ReasoningItem(TextItem):
    """What the model thought, as far as it is shown, and the state that must go back whole."""

    _FIELDS: ClassVar[tuple[tuple[Channel, str], ...]] = (("summary", "summary"), ("reasoning", "content"))

    def finish(self, data: dict[str, Any], sealed_by: SealedBy, is_cut: bool) -> None:
        self._texts(data)
        self.answer.opaque(self.type, as_json_value(data), self.told_block())

    def abandon(self, is_confirmed: bool) -> None:
        data = self.data or {}
        if not any(part.size for part in self._parts.values()):
            self._texts(data)
        self.recall(None)
        if data.get("encrypted_content"):
            self.tell(data, "a reasoning that never ended: its state cannot be sent back")

    def _texts(self, data: dict[str, Any]) -> None:
        """Streamed texts first: the same words under another name are not told again (QUIRKS 82)."""
        entries = [
            (self.part(channel, index), channel, text)
            for channel, key in self._FIELDS
            for index, text in enumerate(texts_of(data.get(key)))
        ]
        said = set[str]()
        for part, channel, text in sorted(entries, key=lambda entry: not entry[0].size):
            if (part.size or text not in said) and not part.settle(text):
                self.tell({channel: text}, _ANOTHER_TEXT)
            said.add(text)


class CallItem(Item):
    """A call that the client must run. It is whole when its item is done, not when its arguments are.

    The arguments of a call that ran into the limit are stated too; only the item's status tells.
    """

    _KINDS: ClassVar[dict[str, CallKind]] = {"function_call": "function", "custom_tool_call": "custom"}
    _TOLD: ClassVar = frozenset({"id", "type", "status", "arguments", "input", "call_id", "name", "parsed_arguments"})

    def __init__(self, answer: AnswerWriter, tell: Tell, type: str) -> None:
        super().__init__(answer, tell, type)
        self._call: OpenCall | None = None
        self._name = ""
        self.is_stated = False

    @property
    def call(self) -> OpenCall:
        """The call, opened when it is first spoken of."""
        if self._call is None:
            self._call = self.answer.call(self.call_id, kind=self._KINDS[self.type])
        return self._call

    def introduce(self, call_id: str, name: str) -> None:
        """What the call is called; it is announced when its id and its name are both known (QUIRKS 134)."""
        if call_id and not self.call_id:
            self.call_id = call_id
            if self._call is not None:
                self.answer.identify(self._call, call_id)
        self._name = self._name or name
        if self.call_id and self._name and not self.call.is_started:
            self.call.name = self._name
            self.call.start()

    def announce(self, data: dict[str, Any]) -> None:
        super().announce(data)
        self.introduce(id_of(data.get("call_id")), text_of(data.get("name")))

    def state(self, arguments: str) -> None:
        """The final arguments; an empty statement takes nothing back."""
        self.is_stated = True
        if arguments:
            self.call.replace(arguments)
            self.call.is_damaged = False

    def finish(self, data: dict[str, Any], sealed_by: SealedBy, is_cut: bool) -> None:
        self.introduce(id_of(data.get("call_id")), text_of(data.get("name")))
        self.state(self._arguments(data))
        if has_more(data, self._TOLD):
            state = without(data, "arguments", "input", "parsed_arguments")
            self.answer.opaque(self.type, as_json_value(state), self.call.block)
        self._seal(None if is_cut else sealed_by)

    @property
    def is_unnamed(self) -> bool:
        """Whether arguments have come, and nobody has said of which call."""
        return self._call is not None and self._call.size > 0 and not self._name

    def abandon(self, is_confirmed: bool) -> None:
        # Nothing at all is whole only if confirmed (QUIRKS 33), and so is free text, which does not show its end.
        is_stated = self.is_stated and self.call.size > 0 and self.call.kind != "custom"
        if self.data is not None and not self.call.size:
            self.state(self._arguments(self.data))
        self._seal("call_end" if is_stated else "finish" if is_confirmed else None)

    def _arguments(self, data: dict[str, Any]) -> str:
        return arguments_text(data.get("input" if self.type == "custom_tool_call" else "arguments"))

    def _seal(self, sealed_by: SealedBy | None) -> None:
        self.introduce(self.id, "")
        self.call.name = self.call.name or self._name
        if sealed_by is None:
            self.call.fail("cut", "the call ended before its arguments were complete")
        elif self.answer.is_short and not self.call.has_arguments:
            self.call.fail("cut", NO_ARGUMENTS)
        else:
            self.answer.seal(self.call, sealed_by)


class HostedItem(TextItem):
    """Anything else: what the provider runs itself, or asks for in its own terms. It goes back whole."""

    _FIELDS: ClassVar = {"code_interpreter_call_code": "code", "mcp_call_arguments": "arguments"}

    def __init__(self, answer: AnswerWriter, tell: Tell, type: str) -> None:
        super().__init__(answer, tell, type)
        self._streamed: dict[str, StringIO] = {}

    def is_like(self, type: str) -> bool:
        return self.type == type or (not self.type and type not in _CLASSES)

    def takes(self, type: str) -> bool:
        return self.type == type or (type in ("message", "reasoning") and not self.is_done)

    def announce(self, data: dict[str, Any]) -> None:
        super().announce(data)
        self.type = self.type or type_of(data)

    def add(self, stem: str, text: str, is_whole: bool) -> None:
        """A piece of its input, or all of it; `stem` is what its frames are called."""
        pieces = StringIO() if is_whole else self._streamed.get(stem, StringIO())
        self._streamed[stem] = pieces
        if pieces.tell() + len(text) <= MAX_ARGUMENTS:
            pieces.write(text)

    def finish(self, data: dict[str, Any], sealed_by: SealedBy, is_cut: bool) -> None:
        streamed = {stem: pieces.getvalue() for stem, pieces in self._streamed.items()}
        fields = {self._FIELDS[stem]: text for stem, text in streamed.items() if stem in self._FIELDS}
        missing = {key: text for key, text in fields.items() if not data.get(key)}
        self.answer.opaque(type_of(data) or "item", as_json_value({**data, **missing}), self.told_block())
        said = all_texts(data)
        for stem, text in streamed.items():
            if stem not in self._FIELDS and text not in said:
                self.tell({stem: text}, "pieces of an item that the item itself does not hold")

    def abandon(self, is_confirmed: bool) -> None:
        if self.data is not None and is_confirmed:
            self.finish(self.data, "finish", False)
        elif self.data is not None or self._streamed:
            streamed = {stem: pieces.getvalue() for stem, pieces in self._streamed.items()}
            self.tell({**(self.data or {}), **streamed}, "an item that never ended")


_CLASSES: dict[str, type[Item]] = {
    "message": Message,
    "reasoning": ReasoningItem,
    "function_call": CallItem,
    "custom_tool_call": CallItem,
}


def make_item(answer: AnswerWriter, tell: Tell, type: str) -> Item:
    """A new item of this type."""
    return _CLASSES.get(type, HostedItem)(answer, tell, type)


def type_of(data: dict[str, Any]) -> str:
    """The type of an item; one that has a role and no type is a message."""
    return text_of(data.get("type")) or ("message" if data.get("role") else "")


def id_of(value: Any) -> str:
    return str(value) if isinstance(value, str | int) else ""  # QUIRKS 20


def texts_of(parts: Any) -> Iterator[str]:
    """The texts of a list of parts, empty where there is none."""
    for part in items(parts):
        yield part if isinstance(part, str) else text_of(part.get("text")) if isinstance(part, dict) else ""


def all_texts(value: Any) -> set[str]:
    """All texts in a value, however deep."""
    found, pending = set[str](), [value]
    while pending:
        match pending.pop():
            case str(text):
                found.add(text)
            case list(inner):
                pending += inner
            case dict(fields):
                pending += fields.values()
    return found


def annotations_of(part: Any) -> list[Any]:
    return items(part.get("annotations")) if isinstance(part, dict) else []


def without(data: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in keys}


def has_more(data: dict[str, Any], told: frozenset[str]) -> bool:
    """Whether the object holds something beyond these fields."""
    return any(key not in told and value is not False and not is_empty(value) for key, value in data.items())

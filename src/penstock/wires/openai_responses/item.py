"""Output items of a Responses stream: messages, reasoning, calls, and hosted tools.

Such a stream has everything several times: in deltas, at the end of a part, of its item and of the response. What comes
first is emitted; a repetition adds only what is missing (QUIRKS 135, 137, 141).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, ClassVar

from penstock.events import CallKind, SealedBy
from penstock.jsontext.portable import as_json_value
from penstock.wires.openai_responses.text_part import Channel, TextPart, channel_and_text, text_of
from penstock.wires.shared.decode_response.answer_writer import NO_ARGUMENTS, AnswerWriter
from penstock.wires.shared.decode_response.loose import arguments_text, is_empty, items
from penstock.wires.shared.decode_response.open_call import OpenCall

Unknown = Callable[[Any, str], None]
"""Reports something unknown, with a note."""

HOSTED_CUSTOM_CALL = "hosted custom_tool_call"
"""The type that stands here for a `custom_tool_call` of a tool that the provider runs."""
_DIFFERENT_TEXT = "a final text that differs from the streamed one"
_NO_PART = frozenset({"type"})  # a part with only this field is empty


class Item:
    """An output item in progress; the base of its kinds."""

    def __init__(self, answer: AnswerWriter, unknown: Unknown, type: str) -> None:
        self.answer = answer
        self.unknown = unknown
        self.type = type
        self.id = ""
        self.index: int | None = None  # its position in the output, if known
        self.call_id = ""
        self.data: dict[str, Any] | None = None  # the item as it was added
        self.is_done = False

    def is_like(self, type: str) -> bool:
        """Whether an item of this type may be this one."""
        return self.type == type

    def takes(self, type: str) -> bool:
        """Whether a piece for an item of this type may belong to this one."""
        return self.type == type

    def announce(self, data: dict[str, Any]) -> None:
        """Records the item as it was added. Its content counts only if the item never ends (QUIRKS 142)."""
        self.data = data
        self.id = id_of(data.get("id"))

    def end(self, data: dict[str, Any], sealed_by: SealedBy, is_cut: bool) -> None:
        """Ends the item; a repetition adds nothing."""
        if not self.is_done:
            self.is_done = True
            self.id = self.id or id_of(data.get("id"))
            self.finish(data, sealed_by, is_cut)

    def finish(self, data: dict[str, Any], sealed_by: SealedBy, is_cut: bool) -> None:
        raise NotImplementedError

    def close(self, is_confirmed: bool) -> None:
        """Ends an item that had not ended with the response; `is_confirmed` if the response itself is complete."""
        raise NotImplementedError


class TextItem(Item):
    """A message or reasoning: texts, each with its own block."""

    def __init__(self, answer: AnswerWriter, unknown: Unknown, type: str) -> None:
        super().__init__(answer, unknown, type)
        self._block = answer.new_block()  # so that its position is that of its first event
        self._parts: dict[tuple[Channel, int | None], TextPart] = {}
        self._open: dict[Channel, deque[int | None]] = {}  # the indexes of texts in their order; some may have ended
        self._begun: list[tuple[int | None, Any]] = []
        self._reported: set[int | None] = set()

    def takes(self, type: str) -> bool:
        return self.type == type or (self.type == "message" and type == "reasoning" and not self.is_done)

    def part(self, channel: Channel, index: int | None) -> TextPart:
        """The text of this index; without an index, the last one."""
        parts = self._parts
        part = parts.get((channel, index))
        if part is None and index is None:
            part = next((part for (kind, _), part in reversed(parts.items()) if kind == channel), None)
        if part is None and (channel, None) in parts:
            part = parts[channel, index] = parts.pop((channel, None))
        if part is None:
            block = self.answer.new_block() if parts else self._block
            part = parts[channel, index] = TextPart(self.answer, block, channel)
            self._open.setdefault(channel, deque()).append(index)
        return part

    def streamed_index(self, channel: Channel, text: str, index: int | None) -> int | None:
        """The index of the streamed text that this final text completes; if unknown, the next matching one."""
        waiting = self._open.get(channel)
        if not waiting or index is None or (channel, index) in self._parts:
            return index
        while waiting and ((part := self._parts.get((channel, waiting[0]))) is None or part.is_final):
            waiting.popleft()
        return waiting[0] if waiting and self._parts[channel, waiting[0]].begins(text) else index

    def streamed_indexes(self, channels: Sequence[Channel | None]) -> list[int]:
        """The index of each final part, which may differ from its position; matched by kind and order.

        `channels` are the kinds of the final parts, None for one without text. If some parts were not streamed, those
        with the number of a position are matched first.
        """
        indexes = list(range(len(channels)))
        for channel in {channel for channel in channels if channel is not None}:
            places = [place for place, kind in enumerate(channels) if kind == channel]
            streamed = [index for (kind, index), part in self._parts.items() if kind == channel and part.size]
            numbers = sorted(index for index in streamed if index is not None)
            if len(places) != len(numbers):
                same = set(places) & set(numbers)
                places = [place for place in places if place not in same]
                numbers = [number for number in numbers if number not in same]
            for place, number in zip(places, numbers, strict=False):
                indexes[place] = number
        return indexes

    def end_regrouped(self, channel: Channel, texts: Sequence[str]) -> bool:
        """Ends all texts of a kind if the final ones are the same text, joined or split at other places.

        What the final ones have beyond the streamed ones is added to the last one. False if they differ in more, or if
        the places are the same.
        """
        parts = [part for (kind, _), part in self._parts.items() if kind == channel and part.size]
        text, ends = "".join(texts), [0]
        for part in parts:
            if (end := part.end_in(text, ends[-1])) is None:
                return False
            ends.append(end)
        final_ends = set(accumulate(map(len, texts[:-1])))
        if not parts or {end for end in final_ends if end < ends[-1]} == set(ends[1:-1]):
            return False
        for part in parts:
            part.complete(text[ends[-1] :] if part is parts[-1] else "")
        return True

    def set_final(self, channel: Channel, index: int | None, text: str) -> None:
        """Sets the final version of a text."""
        if not self.part(channel, index).set_final(text):
            self.unknown({channel: text}, _DIFFERENT_TEXT)

    def begin_part(self, part: Any, index: int | None) -> None:
        """Records a content part as it was added."""
        self._begun.append((index, part))

    def end_part(self, part: Any, index: int | None) -> None:
        """Reads a content part as it ended."""
        read = channel_and_text(part)
        if read is not None:
            channel, text = read
            self.set_final(channel, index, text)
            for annotation in annotations_of(part)[self.part(channel, index).annotations :]:
                self.annotate(annotation, index)
        elif index not in self._reported and has_more(part if isinstance(part, dict) else {"": part}, _NO_PART):
            self._reported.add(index)
            self.unknown(part, "a content part of an unknown type")

    def annotate(self, annotation: Any, index: int | None) -> None:
        """Reports an annotation of the text, such as a source."""
        self.part("text", index).annotations += 1
        self.unknown(annotation, "an annotation of the text")

    def annotate_regrouped(self, channel: Channel, parts: Sequence[Any]) -> None:
        """Reports the annotations of texts that were regrouped, except as many as were streamed."""
        annotations = [annotation for part in parts for annotation in annotations_of(part)]
        streamed = sum(part.annotations for (kind, _), part in self._parts.items() if kind == channel)
        for annotation in annotations[streamed:]:
            self.annotate(annotation, None)

    def use_start_parts(self, parts: Any) -> None:
        """Reads the parts of the start, unless something else came for them."""
        for index, part in [*enumerate(items(parts)), *self._begun]:
            read = channel_and_text(part)
            if read is None or not self.part(read[0], index).size:
                self.end_part(part, index)

    def last_block(self) -> int:
        """The block of the last text that was emitted."""
        return next((part.block for part in reversed(self._parts.values()) if part.size), self._block)


class Message(TextItem):
    """A message to the user."""

    _READ: ClassVar = frozenset({"id", "type", "status", "role", "content"})

    def finish(self, data: dict[str, Any], sealed_by: SealedBy, is_cut: bool) -> None:
        parts = items(data.get("content"))
        texts = [channel_and_text(part) for part in parts]
        channels: list[Channel | None] = [read[0] if read and read[1] else None for read in texts]
        regrouped: list[Channel] = [
            kind
            for kind in dict.fromkeys(channels)
            if kind and self.end_regrouped(kind, [read[1] for read in texts if read and read[0] == kind])
        ]
        for part, read, index in zip(parts, texts, self.streamed_indexes(channels), strict=True):
            if not read or read[0] not in regrouped:
                self.end_part(part, index)
        for kind in regrouped:
            self.annotate_regrouped(
                kind, [part for part, read in zip(parts, texts, strict=True) if read and read[0] == kind]
            )
        if has_more(data, self._READ):
            # Above all the phase: models answer worse if it is not sent back.
            self.answer.opaque(self.type, as_json_value(without(data, "content")), self.last_block())

    def close(self, is_confirmed: bool) -> None:
        self.use_start_parts(self.data and self.data.get("content"))


class ReasoningItem(TextItem):
    """Reasoning: the text that is shown, and the state that must be sent back whole."""

    _FIELDS: ClassVar[tuple[tuple[Channel, str], ...]] = (("summary", "summary"), ("reasoning", "content"))

    def finish(self, data: dict[str, Any], sealed_by: SealedBy, is_cut: bool) -> None:
        self._texts(data)
        self.answer.opaque(self.type, as_json_value(data), self.last_block())

    def close(self, is_confirmed: bool) -> None:
        data = self.data or {}
        if not any(part.size for part in self._parts.values()):
            self._texts(data)
        self.use_start_parts(None)
        if data.get("encrypted_content"):
            self.unknown(data, "reasoning that never ended: its state cannot be sent back")

    def _texts(self, data: dict[str, Any]) -> None:
        """Reads the texts, streamed ones first: a text that is repeated under another name is ignored (QUIRKS 82)."""
        entries: list[tuple[TextPart, str, str]] = []
        texts = set[str]()
        for channel, key in self._FIELDS:
            final = list(texts_of(data.get(key)))
            if self.end_regrouped(channel, final):
                texts |= {*final, "".join(final)}
                continue
            indexes = self.streamed_indexes([channel if text else None for text in final])
            entries += [(self.part(channel, index), channel, text) for index, text in zip(indexes, final, strict=True)]
        for part, name, text in sorted(entries, key=lambda entry: not entry[0].size):
            if (part.size or text not in texts) and not part.set_final(text):
                self.unknown({name: text}, _DIFFERENT_TEXT)
            texts.add(text)


class CallItem(Item):
    """A call that the client must run. It is whole when its item is done, not when its arguments are.

    A call that was cut by the token limit has final arguments too; only the status of its item shows the cut.
    """

    _KINDS: ClassVar[dict[str, CallKind]] = {"function_call": "function", "custom_tool_call": "custom"}
    _READ: ClassVar = frozenset({"id", "type", "status", "arguments", "input", "call_id", "name", "parsed_arguments"})

    def __init__(self, answer: AnswerWriter, unknown: Unknown, type: str) -> None:
        super().__init__(answer, unknown, type)
        self._call: OpenCall | None = None
        self._name = ""
        self.has_final_arguments = False

    @property
    def call(self) -> OpenCall:
        """The call, opened when it is first used."""
        if self._call is None:
            self._call = self.answer.call(self.call_id, kind=self._KINDS[self.type])
        return self._call

    def identify(self, call_id: str, name: str) -> None:
        """Sets id and name; the call starts when both are known (QUIRKS 134)."""
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
        self.identify(id_of(data.get("call_id")), text_of(data.get("name")))

    def set_arguments(self, arguments: str) -> None:
        """Sets the final arguments; empty ones do not replace what was streamed."""
        self.has_final_arguments = True
        if arguments:
            self.call.replace(arguments)
            self.call.is_damaged = False

    def finish(self, data: dict[str, Any], sealed_by: SealedBy, is_cut: bool) -> None:
        self.identify(id_of(data.get("call_id")), text_of(data.get("name")))
        self.set_arguments(self._arguments(data))
        if has_more(data, self._READ):
            state = without(data, "arguments", "input", "parsed_arguments")
            self.answer.opaque(self.type, as_json_value(state), self.call.block)
        self._seal(None if is_cut else sealed_by)

    @property
    def is_unnamed(self) -> bool:
        """Whether arguments have come for a call without a name."""
        return self._call is not None and self._call.size > 0 and not self._name

    def close(self, is_confirmed: bool) -> None:
        has_final_arguments = self.has_final_arguments and self.call.size > 0
        if self.data is not None and not self.call.size and not self.call.is_damaged:
            self.set_arguments(self._arguments(self.data))
        sealed_by: SealedBy = "call_end" if has_final_arguments else "finish"
        self._seal(sealed_by if is_confirmed else None)

    def _arguments(self, data: dict[str, Any]) -> str:
        return arguments_text(data.get("input" if self.type == "custom_tool_call" else "arguments"))

    def _seal(self, sealed_by: SealedBy | None) -> None:
        self.identify(self.id, "")
        self.call.name = self.call.name or self._name
        if sealed_by is None:
            self.call.fail("cut", "the call ended before its arguments were complete")
        elif self.answer.is_short and not self.call.has_arguments:
            self.call.fail("cut", NO_ARGUMENTS)
        else:
            self.answer.seal(self.call, sealed_by)


def type_of(data: dict[str, Any]) -> str:
    """The type of an item; with a role and no type it is a message."""
    return text_of(data.get("type")) or ("message" if data.get("role") else "")


def id_of(value: Any) -> str:
    return str(value) if isinstance(value, str | int) else ""  # QUIRKS 20


def texts_of(parts: Any) -> Iterator[str]:
    """Yields the text of each part, empty where it has none."""
    for part in items(parts):
        yield part if isinstance(part, str) else text_of(part.get("text")) if isinstance(part, dict) else ""


def all_texts(value: Any) -> set[str]:
    """All strings in a value, at any depth."""
    texts, pending = set[str](), [value]
    while pending:
        match pending.pop():
            case str(text):
                texts.add(text)
            case list(inner):
                pending += inner
            case dict(fields):
                pending += fields.values()
    return texts


def annotations_of(part: Any) -> list[Any]:
    return items(part.get("annotations")) if isinstance(part, dict) else []


def without(data: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key not in keys}


def has_more(data: dict[str, Any], known: frozenset[str]) -> bool:
    """Whether the object has content in other fields than these."""
    return any(key not in known and value is not False and not is_empty(value) for key, value in data.items())

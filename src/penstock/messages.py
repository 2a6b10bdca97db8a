"""Messages: one form of a history for every provider.

A history is a list of `Message`s. The parts of an assistant message are the events of the response (`Text`,
`Reasoning`, `ToolCall`, …), so that a response becomes a message as it is. Vendor state is an `Opaque` on the part with
the same block. Images, files and tool results occur only in messages of users and tools; they have no block and hold
their vendor state themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence, Set
from functools import cached_property
from typing import Any, Literal, TypeVar, get_args

import msgspec
from msgspec import Struct, field

from penstock.content import (
    MESSAGE_FIELDS,
    PART_FIELDS,
    RESULT_CONTENT,
    WHOLE_BLOCK,
    File,
    Image,
    Media,
    file,
    image,
    states_by_kind,
)
from penstock.errors import UsageError, type_name
from penstock.events import Opaque, Reasoning, Refusal, Text, ToolCall, ToolCallInvalid
from penstock.results import ToolResult, as_outcome
from penstock.sentences import invalid_call
from penstock.turn import Turn

__all__ = [
    "MARK",
    "MESSAGE_FIELDS",
    "PART_FIELDS",
    "RESULT_CONTENT",
    "SUMMARY",
    "VERSION",
    "WHOLE_BLOCK",
    "Content",
    "File",
    "History",
    "Image",
    "Media",
    "Message",
    "Part",
    "Role",
    "ToolResult",
    "answer_invalid",
    "assistant",
    "decode_messages",
    "encode_messages",
    "example",
    "file",
    "image",
    "join_messages",
    "last_block",
    "restore_history",
    "restore_value",
    "result",
    "system",
    "tool_results",
    "user",
]

T = TypeVar("T")
Role = Literal["system", "user", "assistant", "tool"]
_ROLES = get_args(Role)

SUMMARY = "Summary of the earlier conversation:\n"
"""The beginning of a text in a user message that replaces omitted exchanges: it is not what the user wrote."""

Part = Text | Reasoning | Refusal | ToolCall | ToolCallInvalid | Opaque | Image | File | ToolResult


class Message(Struct, frozen=True, omit_defaults=True, dict=True):  # the dict is for cached properties
    """One message of a history.

    `is_example`: the message shows the model how to use its tools, so calls in it are not quotations when the model
    writes the same.
    """

    role: Role
    parts: tuple[Part, ...] = field(default_factory=lambda: ())  # any other default would be left out of the JSON
    is_example: bool = False

    def __post_init__(self) -> None:
        if self.role not in _ROLES:
            raise UsageError(f"a message has the role system, user, assistant or tool, not {self.role!r}")
        if isinstance(self.parts, str):
            raise UsageError(
                "the parts of a message are a tuple; to write text, use user('…'), assistant('…') or system('…')"
            )

    @property
    def text(self) -> str:
        """The visible text."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def tool_calls(self) -> list[ToolCall]:
        """The whole calls, in order."""
        return [part for part in self.parts if isinstance(part, ToolCall)]

    @property
    def results(self) -> list[ToolResult]:
        """The results, in order."""
        return [part for part in self.parts if isinstance(part, ToolResult)]

    def __add__(self, other: Message) -> Message:
        """Joins two pieces of one message: adjacent text is joined, and a call with the same id is merged.

        What the second piece says of a call replaces what the first says, unless it is empty.
        """
        if not isinstance(other, Message):  # pyright: ignore[reportUnnecessaryIsInstance]  # a caller's may be anything
            return NotImplemented
        if self.role != other.role:
            raise UsageError(f"a message of {self.role!r} and one of {other.role!r} cannot be added")
        joined = join_messages(self, other)
        parts = joined.parts[: len(self.parts)]
        for part in joined.parts[len(self.parts) :]:
            parts = _with_part(parts, part, joined)
        return msgspec.structs.replace(joined, parts=parts)

    def state_of(self, block: int, wire: str) -> dict[str, Any]:
        """The vendor state of this wire on the part with this block, by its kind."""
        return states_by_kind(self._states.get(block, ()), wire)

    @property
    def stateful_blocks(self) -> Set[int]:
        """The blocks of the parts that have vendor state."""
        return self._states.keys()

    @cached_property
    def _states(self) -> dict[int, list[Opaque]]:
        """The vendor state by block: encoders look it up for each part."""
        states: dict[int, list[Opaque]] = {}
        for part in self.parts:
            if isinstance(part, Opaque):
                states.setdefault(part.block, []).append(part)
        return states


History = list[Message]
"""A conversation: what a run returns, and what the next one takes as its `messages`."""

Content = str | Part
"""What the functions below make messages of."""


def system(*content: Content) -> Message:
    """A system message."""
    return Message("system", _with_blocks(content))


def user(*content: Content) -> Message:
    """A user message."""
    return Message("user", _with_blocks(content))


def assistant(*content: Content) -> Message:
    """An assistant message."""
    return Message("assistant", _with_blocks(content))


def example(message: Message) -> Message:
    """The message, marked as an example: the model may write the calls in it as its own."""
    return msgspec.structs.replace(message, is_example=True)


def tool_results(*results: ToolResult) -> Message:
    """The message with the results of one turn, which should be in the order of the calls."""
    for part in results:
        if not isinstance(part, ToolResult):  # pyright: ignore[reportUnnecessaryIsInstance]  # a caller's may be anything
            raise UsageError(f"tool_results takes results, not {type_name(part)}; make each with result(call, …)")
    return Message("tool", results)


def result(call: ToolCall | ToolCallInvalid, *values: Any, is_error: bool = False) -> ToolResult:
    """The result of a call: any value that a tool may return, as an agent converts it.

    Several values become one part each, or more. A value that contains an object without a JSON form becomes an error.
    """
    outcomes = [as_outcome(value) for value in values]
    content = tuple(part for outcome in outcomes for part in outcome.content)
    return ToolResult(call.id, call.name, content, is_error or any(outcome.is_error for outcome in outcomes))


def answer_invalid(turn: Turn | Message, *results: ToolResult) -> Message:
    """The message with the results of a turn: yours, and for each invalid call an error that tells the model why.

    All are in the order of the calls.
    """
    calls = [part for part in turn.parts if isinstance(part, ToolCall | ToolCallInvalid)]
    order = {call.id: number for number, call in reversed([*enumerate(calls)])}
    answered = {tool_result.call_id for tool_result in results}
    errors = [
        result(call, invalid_call(call), is_error=True)
        for call in calls
        if isinstance(call, ToolCallInvalid) and call.id not in answered
    ]
    return tool_results(
        *sorted([*results, *errors], key=lambda tool_result: order.get(tool_result.call_id, len(calls)))
    )


def _with_blocks(content: Sequence[Content]) -> tuple[Part, ...]:
    """The parts; each string becomes a text with a block of its own."""
    for part in content:
        if not isinstance(part, Content):  # pyright: ignore[reportUnnecessaryIsInstance]  # a caller's may be anything
            raise UsageError(f"a message is made of strings and parts, not of {type_name(part)}")
    used = {part.block for part in content if not isinstance(part, str | Media | ToolResult)}
    free = (block for block in range(len(content) + len(used)) if block not in used)
    return tuple(Text(next(free), part) if isinstance(part, str) else part for part in content)


def join_messages(first: Message, *others: Message) -> Message:
    """One message of several of one role; later blocks are renumbered, so that vendor state stays on its part.

    It is an example only if all are: the text of the others still counts when quotations are looked for.
    """
    parts, free = [*first.parts], last_block(first) + 1
    for other in others:
        parts += [
            part if isinstance(part, Media | ToolResult) else msgspec.structs.replace(part, block=part.block + free)
            for part in other.parts
        ]
        free += last_block(other) + 1
    return Message(first.role, tuple(parts), all(message.is_example for message in (first, *others)))


def _with_part(parts: tuple[Part, ...], part: Part, message: Message) -> tuple[Part, ...]:
    """The parts of a message with one more: joined with a text before it, or merged with its own call."""
    match part:
        case ToolCall() | ToolCallInvalid() if part.id:
            for index, known in enumerate(parts):
                if isinstance(known, ToolCall | ToolCallInvalid) and known.id == part.id:
                    return (*parts[:index], _merged_call(known, part), *parts[index + 1 :])
        case Text() | Reasoning() | Refusal() if parts and type(parts[-1]) is type(part):
            last: Any = parts[-1]
            if not message.stateful_blocks & {last.block, part.block}:  # vendor state belongs to one of them
                return (*parts[:-1], msgspec.structs.replace(last, text=last.text + part.text))
        case _:
            pass
    return (*parts, part)


def _merged_call(known: ToolCall | ToolCallInvalid, part: ToolCall | ToolCallInvalid) -> Part:
    has_arguments = part.arguments if isinstance(part, ToolCall) else part.arguments_raw
    source = part if has_arguments or isinstance(known, ToolCallInvalid) else known
    return msgspec.structs.replace(source, name=part.name or known.name, block=known.block)


def last_block(message: Message) -> int:
    """The highest block of a message; -1 if it has none."""
    return max((part.block for part in message.parts if not isinstance(part, Media | ToolResult)), default=-1)


# Histories as JSON.

VERSION = 1
"""The version of the stored form; it changes when an older reader would misread it."""
MARK = "penstock_history"
"""The field of a stored history that holds its version."""

_encoder = msgspec.json.Encoder()
_AT = re.compile(r"^(.*) - at `\$(.*)`$", re.DOTALL)


def encode_messages(messages: Iterable[Message]) -> bytes:
    """A history as JSON."""
    history = list(messages)
    for index, message in enumerate(history):
        if not isinstance(message, Message):  # pyright: ignore[reportUnnecessaryIsInstance]  # a caller's may be anything
            raise UsageError(f"messages[{index}] is {type_name(message)}, not a Message; convert it with as_messages")
    return _encoder.encode({MARK: VERSION, "messages": history})


def decode_messages(data: bytes | str) -> list[Message]:
    """The history that this version of `encode_messages` wrote, or an older one."""
    try:
        stored: Any = msgspec.json.decode(data)
    except msgspec.MsgspecError as error:
        raise UsageError(f"this is not a history: {error}") from None
    return restore_history(stored)


def restore_history(stored: Any) -> list[Message]:
    """The history in a JSON value; the oldest form is only the list of messages."""
    if not isinstance(stored, list):
        version: Any = stored.get(MARK) if isinstance(stored, dict) else None
        if not isinstance(version, int) or version < 1:
            raise UsageError(f"this is not a history: it has no {MARK!r} number, as encode_messages writes it")
        if version > VERSION:
            raise UsageError(
                f"this history has format {version}, and this version reads up to {VERSION}; update penstock"
            )
        _refuse_unknown_fields(stored, (MARK, "messages"), "this history")
        stored = stored.get("messages")
    return restore_value(stored, "messages", list[Message])


def restore_value(value: Any, place: str, type: type[T]) -> T:
    """The messages in a JSON value, which is at `place`."""
    try:
        restored = msgspec.convert(value, type)
    except msgspec.ValidationError as error:
        match = _AT.match(str(error))
        why, path = (match[1], match[2]) if match else (str(error), "")
        raise UsageError(f"{place}{path}: {why}; this version cannot read such a message") from None
    _refuse_lost_fields(value, restored, place)
    return restored


def _refuse_lost_fields(value: Any, restored: Any, place: str) -> None:
    """Raise if a message or a part has no place for a field: it would not be stored again."""
    match restored:
        case Struct():
            fields = restored.__struct_fields__
            _refuse_unknown_fields(value, (*fields, restored.__struct_config__.tag_field), place)
            for name in fields:
                _refuse_lost_fields(value.get(name), getattr(restored, name), f"{place}.{name}")
        case list() | tuple():
            for index, (stored, inner) in enumerate(zip(value or (), restored, strict=True)):
                _refuse_lost_fields(stored, inner, f"{place}[{index}]")
        case _:
            pass


def _refuse_unknown_fields(fields: Mapping[str, Any], known: Iterable[str | None], place: str) -> None:
    if unknown := [name for name in fields if name not in known]:
        names = ", ".join(map(repr, unknown))
        raise UsageError(f"{place}: unknown fields {names}; remove them, or update penstock")

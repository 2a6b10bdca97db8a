"""Joins messages for the templates of models: neighbours of one role, and the texts of a message or a result.

Many templates refuse two messages of one role in a row, or take only text for content.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby, takewhile

from msgspec.structs import replace

from penstock.events import Text
from penstock.messages import RESULT_CONTENT, Message, Part, ToolResult, join_messages

JOINED = ("user", "assistant")
BETWEEN_MESSAGES = "\n\n"
BETWEEN_PARTS = "\n"
REMINDER = "<system-reminder>\n{}\n</system-reminder>"


def join_neighbours(messages: Sequence[Message], *, is_system_first: bool) -> tuple[Message, ...]:
    """The messages, with adjacent user or assistant messages joined.

    With `is_system_first`, late system messages become user messages: moved to the front, each new one would change the
    beginning of the prompt, and the server could not use its cache.
    """
    if is_system_first:
        leading = [*takewhile(lambda message: message.role == "system", messages)]
        messages = [*leading, *map(_as_reminder, messages[len(leading) :])]
    joined: list[Message] = []
    for role, group in groupby(messages, key=lambda message: message.role):
        neighbours = [_with_short_parts(message) for message in group]
        if len(neighbours) > 1 and role in JOINED:
            joined.append(_with_one_text(join_messages(*neighbours), BETWEEN_MESSAGES))
        else:
            joined += neighbours
    return tuple(joined)


def _as_reminder(message: Message) -> Message:
    """A late system message as a user message, in the marks that agents use for text not written by the user."""
    return Message("user", (Text(0, REMINDER.format(message.text)),)) if message.role == "system" else message


def _with_short_parts(message: Message) -> Message:
    match message.role:
        case "user":
            return _with_one_text(message, BETWEEN_PARTS)
        case "tool" if any(len(result.content) > 1 for result in message.results):
            parts = (_with_text_alone(part) if isinstance(part, ToolResult) else part for part in message.parts)
            return replace(message, parts=tuple(parts))
        case _:
            return message


def _with_text_alone(result: ToolResult) -> ToolResult:
    """The result with its texts joined, if it contains only text."""
    texts = [part.text for part in result.content if isinstance(part, Text)]
    if len(result.content) < 2 or len(texts) < len(result.content):
        return result
    state = tuple(one for one in result.state if one.kind != RESULT_CONTENT)
    return replace(result, content=(Text(0, BETWEEN_PARTS.join(texts)),), state=state)


def _with_one_text(message: Message, between: str) -> Message:
    """The message with adjacent texts joined, unless vendor state belongs to one of them."""
    parts: list[Part] = []
    for part in message.parts:
        match parts[-1:], part:
            case [Text() as last], Text() if not message.stateful_blocks & {part.block, last.block}:
                parts[-1] = replace(last, text=f"{last.text}{between}{part.text}")
            case _:
                parts.append(part)
    return message if len(parts) == len(message.parts) else replace(message, parts=tuple(parts))

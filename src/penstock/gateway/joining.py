"""Joins messages for the templates of models: neighbours of one role, and the texts of a message.

Many templates refuse two messages of one role in a row, or take only text for content.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from msgspec.structs import replace

from penstock.events import Text
from penstock.messages import Message, Part, join_messages

JOINED = ("user", "assistant")
BETWEEN_MESSAGES = "\n\n"
BETWEEN_PARTS = "\n"


def join_neighbours(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages; those of a user, or of the assistant, that follow each other are one."""
    joined: list[Message] = []
    for role, group in groupby(messages, key=lambda message: message.role):
        neighbours = [_with_one_text(message, BETWEEN_PARTS) if role == "user" else message for message in group]
        if len(neighbours) > 1 and role in JOINED:
            joined.append(_with_one_text(join_messages(*neighbours), BETWEEN_MESSAGES))
        else:
            joined += neighbours
    return tuple(joined)


def _with_one_text(message: Message, between: str) -> Message:
    """The message with texts that follow each other joined, unless vendor state belongs to one of them."""
    parts: list[Part] = []
    for part in message.parts:
        match parts[-1:], part:
            case [Text() as last], Text() if not message.stateful_blocks & {part.block, last.block}:
                parts[-1] = replace(last, text=f"{last.text}{between}{part.text}")
            case _:
                parts.append(part)
    return message if len(parts) == len(message.parts) else replace(message, parts=tuple(parts))

"""Reminders: text for the model that the user did not write, in the marks that agents use for it."""

from __future__ import annotations

from penstock.events import Text
from penstock.messages import Message, user

_BEGIN, _END = "<system-reminder>", "</system-reminder>"


def reminder(text: str) -> Message:
    """A message that reminds the model of something."""
    return user(f"{_BEGIN}\n{text}\n{_END}")


def is_reminder(message: Message) -> bool:
    """Whether a message has only text that the user did not write: instructions, or reminders of a client."""
    if message.role == "system":
        return True
    text = message.text.strip()
    has_text_alone = all(isinstance(part, Text) for part in message.parts)
    return message.role == "user" and has_text_alone and text.startswith(_BEGIN) and text.endswith(_END)

"""Parts of messages as several encoders write them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from penstock.calls.arguments import strict_object
from penstock.errors import UsageError
from penstock.events import Opaque, Text, ToolCall
from penstock.messages import Message, Part, ToolResult
from penstock.wires.shared.encode_request.body import Json


def split_system(messages: Iterable[Message]) -> tuple[str, list[Message]]:
    """The text of all system messages, and the other messages."""
    messages = list(messages)
    texts = [system_text(message) for message in messages if message.role == "system"]
    return "\n\n".join(text for text in texts if text), [message for message in messages if message.role != "system"]


def system_text(message: Message) -> str:
    """The text of a system message, one paragraph per part."""
    return "\n\n".join(part.text for part in message.parts if isinstance(part, Text) and part.text)


def alternating(messages: Iterable[Message], write: Callable[[Message], Iterable[Json]]) -> list[Json]:
    """The messages with alternating roles: neighbours of one role are joined, and results are the user's."""
    written: list[Json] = []
    for message in messages:
        role, blocks = "assistant" if message.role == "assistant" else "user", list(write(message))
        if written and written[-1]["role"] == role:
            written[-1]["content"] += blocks
        elif blocks:
            written.append({"role": role, "content": blocks})
    return written


def marked_system(history: Iterable[Message], write: Callable[[Message], Iterable[Json]]) -> list[Json]:
    """The system messages in blocks if they have vendor state, `cache_control` for example; else nothing."""
    systems = [message for message in history if message.role == "system"]
    is_marked = any(isinstance(part, Opaque) for message in systems for part in message.parts)
    return [block for message in systems for block in write(message)] if is_marked else []


def called_tools(messages: Iterable[Message]) -> list[str]:
    """The names of the tools that were called; some providers want them declared."""
    parts = (part for message in messages for part in message.parts)
    return sorted({part.name for part in parts if isinstance(part, ToolCall | ToolResult)})


def arguments_text(call: ToolCall) -> str:
    """The arguments of a call as JSON text, as the model wrote them if that is JSON; free text as it is."""
    if call.kind == "custom":
        return call.arguments_raw or str(call.arguments.get("input", ""))
    is_json = call.arguments_raw.lstrip().startswith("{") and strict_object(call.arguments_raw) == call.arguments
    return call.arguments_raw if is_json else msgspec.json.encode(call.arguments).decode()


def misplaced_part(part: Part, role: str, advice: str) -> UsageError:
    """The error for a part that a provider does not accept in a message of this role."""
    return UsageError(f"{type(part).__name__} cannot be sent in a message of the role {role}; {advice}")

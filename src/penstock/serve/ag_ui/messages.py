"""Messages of AG-UI: folds events into messages, as a client does, and converts user messages."""

from __future__ import annotations

from typing import Any

from penstock.events import Text
from penstock.messages import File, Image, Message
from penstock.serve.growing_text import append_text

AGUIMessage = dict[str, Any]
AGUIEvent = dict[str, Any]


class MessagesFold:
    """The messages that a client builds from the events of one run. A step has one assistant message."""

    def __init__(self) -> None:
        self._messages: dict[str, AGUIMessage] = {}
        self._calls: dict[str, dict[str, Any]] = {}
        self._owners: dict[str, str] = {}  # the messages of the calls

    def build(self) -> list[AGUIMessage]:
        """The messages; results follow the message with their calls."""
        ordered: dict[str, list[AGUIMessage]] = {
            id: [message] for id, message in self._messages.items() if message["role"] != "tool"
        }
        for message in self._messages.values():
            owner = self._owners.get(message["toolCallId"]) if message["role"] == "tool" else None
            if owner in ordered:
                ordered[owner].append(message)
        return [message for group in ordered.values() for message in group]

    def arguments(self, call_id: str) -> str:
        """The arguments of a call so far."""
        text: str = self._calls[call_id]["function"]["arguments"]
        return text

    def correct(self, call_id: str, arguments: str) -> None:
        """Replace the streamed arguments of a call."""
        self._calls[call_id]["function"]["arguments"] = arguments

    def open_calls(self, owner: str) -> list[str]:
        """The calls of a message without a result."""
        results = {message.get("toolCallId") for message in self._messages.values()}
        return [id for id, message_id in self._owners.items() if message_id == owner and id not in results]

    def withdraw(self, prefix: str) -> None:
        """Forget the messages with this id prefix. Reasoning stays, but empty: clients keep it unless replaced."""
        for id, message in [*self._messages.items()]:
            owner = self._owners.get(message.get("toolCallId", ""), id)
            if message["role"] == "reasoning" and id.startswith(prefix):
                message["content"] = ""
            elif owner.startswith(prefix):
                del self._messages[id]
        self._owners = {id: owner for id, owner in self._owners.items() if not owner.startswith(prefix)}

    def add(self, event: AGUIEvent) -> None:
        """Add the next event."""
        match event["type"]:
            case "TEXT_MESSAGE_START" | "REASONING_MESSAGE_START":
                self._text(event["messageId"], event["role"])
            case "TEXT_MESSAGE_CONTENT" | "REASONING_MESSAGE_CONTENT":
                append_text(self._messages[event["messageId"]], "content", event["delta"])
            case "TOOL_CALL_START":
                self._call(event)
            case "TOOL_CALL_ARGS":
                append_text(self._calls[event["toolCallId"]]["function"], "arguments", event["delta"])
            case "TOOL_CALL_RESULT":
                names = ("toolCallId", "content", "role", "metadata")
                fields = {name: event[name] for name in names if name in event}
                self._messages[event["messageId"]] = {"id": event["messageId"], **fields}
            case _:
                pass

    def _text(self, id: str, role: str) -> None:
        message = self._messages.setdefault(id, {"id": id, "role": role})
        message.setdefault("content", "")

    def _call(self, event: AGUIEvent) -> None:
        id, owner = event["toolCallId"], event["parentMessageId"]
        message = self._messages.setdefault(owner, {"id": owner, "role": "assistant"})
        self._calls[id] = {"id": id, "type": "function", "function": {"name": event["toolCallName"], "arguments": ""}}
        self._owners[id] = owner
        message.setdefault("toolCalls", []).append(self._calls[id])


def user_message_of(message: Message, id: str) -> AGUIMessage:
    """A user message in the form of AG-UI."""
    if all(isinstance(part, Text) for part in message.parts):
        return {"id": id, "role": "user", "content": message.text}
    return {"id": id, "role": "user", "content": [content for part in message.parts if (content := content_of(part))]}


def content_of(part: object) -> dict[str, Any] | None:
    """A text, an image or a file; None for anything else."""
    match part:
        case Text():
            return {"type": "text", "text": part.text}
        case Image():
            return {"type": "image", "source": _source(part)}
        case File():
            return {"type": "document", "source": _source(part)}
        case _:
            return None


def _source(part: Image | File) -> dict[str, Any]:
    head, comma, data = part.url.partition(",")
    if comma and head.startswith("data:") and head.endswith(";base64"):
        return {"type": "data", "value": data, "mimeType": part.media_type}
    return {"type": "url", "value": part.url, "mimeType": part.media_type}

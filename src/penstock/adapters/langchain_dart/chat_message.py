"""Messages of LangChain Dart: their parts, their concatenation, and their conversion from and to ours."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self, cast

from penstock.calls.arguments import WITHOUT_ARGUMENTS
from penstock.events import Refusal, Text, ToolCall, ToolCallInvalid
from penstock.messages import Content, Message, ToolResult, assistant, system, tool_results, user
from penstock.messages import Part as MessagePart


class MessageRole(StrEnum):
    """Who a message is from; the results of tools are from the user."""

    system = "system"
    user = "user"
    model = "model"


class ToolPartKind(StrEnum):
    """What a `ToolPart` is."""

    call = "call"
    result = "result"


@dataclass
class TextPart:
    """Text."""

    text: str


class ToolPart:
    """A call or a result: `ToolPart.call(…)`, `ToolPart.result(…)`; of a part, `result` is the text of its result."""

    def __init__(self, kind: ToolPartKind, id: str, name: str, result: str | None = None) -> None:
        self.kind, self.id, self.name = kind, id, name
        self.arguments: dict[str, Any] | None = None
        self.argumentsRawString: str | None = None
        vars(self)["result"] = result  # it hides the method of the same name

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ToolPart) and vars(self) == vars(other)

    def __repr__(self) -> str:
        fields = ", ".join(
            f"{name}={value!r}" for name, value in vars(self).items() if name != "kind" and value is not None
        )
        return f"ToolPart.{self.kind}({fields})"

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def call(cls, *, id: str, name: str, arguments: Any = None, argumentsRawString: str | None = None) -> Self:
        """A call of a tool; `argumentsRawString` is the JSON text of the arguments."""
        part = cls(ToolPartKind.call, id, name)
        part.arguments, part.argumentsRawString = arguments or {}, argumentsRawString
        return part

    @classmethod
    def result(cls, *, id: str, name: str, result: str) -> Self:
        """The result of a call."""
        return cls(ToolPartKind.result, id, name, result)

    def merged(self, new: ToolPart) -> ToolPart:
        """This call with what a later chunk says of it."""
        raw = self.argumentsRawString if new.argumentsRawString is None else new.argumentsRawString
        return ToolPart.call(
            id=self.id, name=new.name or self.name, arguments=new.arguments or self.arguments, argumentsRawString=raw
        )


Part = TextPart | ToolPart


@dataclass
class ChatMessage:
    """A message; `message + chunk` continues it. `source` is the message of the run, with its vendor state."""

    role: MessageRole
    parts: list[Part] = field(default_factory=list[Part])
    source: Message | None = None

    def __add__(self, chunk: ChatMessage) -> ChatMessage:
        parts = list(self.parts)
        calls = {
            part.id: index for index, part in enumerate(parts) if isinstance(part, ToolPart) and part.kind == "call"
        }
        for new in chunk.parts:
            last = parts[-1] if parts else None
            place = calls.get(new.id) if isinstance(new, ToolPart) and new.kind == "call" and new.id else None
            if place is not None:
                parts[place] = cast("ToolPart", parts[place]).merged(cast("ToolPart", new))
            elif isinstance(new, TextPart) and isinstance(last, TextPart):
                parts[-1] = TextPart(last.text + new.text)
            else:
                parts.append(new)
        return ChatMessage(self.role, parts)

    @staticmethod
    def from_message(message: Message) -> ChatMessage:
        """A message of a run in this shape; reasoning and vendor state stay in `source`."""
        roles = {"system": MessageRole.system, "assistant": MessageRole.model}
        parts = [_from_part(part) for part in message.parts]
        return ChatMessage(roles.get(message.role, MessageRole.user), [part for part in parts if part], message)

    def to_message(self) -> Message:
        """The message in our shape."""
        if self.source is not None:
            return self.source
        content = [_to_part(part) for part in self.parts]
        if results := [part for part in content if isinstance(part, ToolResult)]:
            return tool_results(*results)
        return {"system": system, "user": user, "model": assistant}[self.role](*content)


def _from_part(part: MessagePart) -> Part | None:
    match part:
        case Text() | Refusal():
            return TextPart(part.text)
        case ToolCall() | ToolCallInvalid():
            arguments = part.arguments if isinstance(part, ToolCall) else {}
            return ToolPart.call(id=part.id, name=part.name, arguments=arguments, argumentsRawString=part.arguments_raw)
        case ToolResult():
            is_plain_error = part.is_error and not part.text.startswith('{"error":')
            text = json.dumps({"error": part.text}, ensure_ascii=False) if is_plain_error else part.text
            return ToolPart.result(id=part.call_id, name=part.name, result=text)
        case _:
            return None


def _to_part(part: Part) -> Content:
    if isinstance(part, TextPart):
        return part.text
    if part.kind == "call":
        raw = part.argumentsRawString or ""
        arguments: Any = part.arguments if raw.strip() in WITHOUT_ARGUMENTS else raw
        return ToolCall(part.id, part.name, arguments)
    text = str(vars(part)["result"])
    return ToolResult(part.id, part.name, (Text(0, text),), text.startswith('{"error":'))

"""Reads the requests of `useChat`.

The thread on the server counts: of the messages in a request only the last is read. It is a new user message, or the
assistant's own, with outputs of tools that ran in the client and with approvals.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from msgspec import Struct

from penstock.asgi.limits import ServerLimits
from penstock.asgi.request import RejectedRequest
from penstock.messages import Message
from penstock.serve.answers import Answer, Approval, ClientResult
from penstock.serve.runs.bodies import MAX_ID, MediaPart, Prompt, TextPart, convert, user_message


class ChatBody(Struct, frozen=True, rename="camel"):
    """The body of a request; fields that a page adds (`body`) are ignored, except the name of an agent."""

    id: str
    messages: list[dict[str, Any]]
    trigger: Literal["submit-message", "regenerate-message"] = "submit-message"
    message_id: str | None = None
    agent: str = ""


class _LastMessage(Struct, frozen=True):
    role: Literal["user", "assistant"]
    parts: list[dict[str, Any]]
    id: str = ""


class _File(Struct, frozen=True, rename="camel"):
    url: str
    media_type: str = ""
    filename: str = ""


class _Decision(Struct, frozen=True):
    id: str
    approved: bool
    reason: str | None = None


class NewMessage(Struct, frozen=True):
    """A user message. With `is_changed`, it replaces an earlier message with the same id."""

    message: Message
    id: str
    is_changed: bool


class Regenerate(Struct, frozen=True):
    """A request to repeat an answer, by the id of the message or of the answer; without an id, the last."""

    message_id: str


class Continue(Struct, frozen=True):
    """Answers to a waiting run."""

    answers: tuple[Answer, ...]


ChatAction = NewMessage | Regenerate | Continue


def read_action(body: ChatBody, limits: ServerLimits) -> ChatAction:
    """The client's action; a `RejectedRequest` names the place of a mistake."""
    if body.trigger == "regenerate-message":
        return Regenerate(body.message_id or "")
    if not body.messages or len(body.messages) > limits.messages:
        raise RejectedRequest(400, "invalid_messages", f"send at least one message, and at most {limits.messages}")
    last = len(body.messages) - 1
    message = convert(body.messages[last], _LastMessage, f"$.messages[{last}]")
    place = f"$.messages[{last}].parts"
    if message.role == "assistant":
        return Continue(tuple(_answers(message.parts, place)))
    if len(message.id) > MAX_ID:
        raise RejectedRequest(400, "invalid_id", f"the id of a message has at most {MAX_ID} characters")
    prompt: Prompt = [_content(part, f"{place}[{number}]") for number, part in enumerate(message.parts)]
    return NewMessage(user_message(prompt, limits), message.id, is_changed=bool(message.id == body.message_id))


def _content(part: dict[str, Any], place: str) -> TextPart | MediaPart:
    match part:
        case {"type": "text", "text": str(text)}:
            return TextPart(text)
        case {"type": "file"}:
            file = convert(part, _File, place)
            return MediaPart(file.url, file.media_type, file.filename)
        case _:
            raise RejectedRequest(400, "unknown_part", f"{place}: a user message consists of text and file parts")


def _answers(parts: list[dict[str, Any]], place: str) -> Iterator[Answer]:
    """The approvals, and the outputs of tools that the server does not run."""
    for number, part in enumerate(parts):
        match part:
            case {"state": "approval-responded", "approval": approval}:
                decision = convert(approval, _Decision, f"{place}[{number}].approval")
                yield Approval(decision.id, decision.approved, decision.reason or "")
            case {"providerExecuted": True}:
                pass
            case {"state": "output-available", "toolCallId": str(id), "output": output} if not part.get("preliminary"):
                yield ClientResult(id, output)
            case {"state": "output-error", "toolCallId": str(id), "errorText": str(text)}:
                yield ClientResult(id, text, is_error=True)
            case _:
                pass

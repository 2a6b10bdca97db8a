"""Reads the requests of AG-UI.

The thread on the server counts: of the messages in a request the last user message is read, and what follows it:
results of tools that ran in the client. `state`, `context` and `forwardedProps` are not read.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from msgspec import Struct

from penstock.asgi.limits import ServerLimits
from penstock.asgi.request import RejectedRequest
from penstock.messages import Message
from penstock.serve.answers import Approval, ClientResult
from penstock.serve.runs.bodies import MAX_ID, MediaPart, Prompt, TextPart, convert, user_message

_MEDIA = ("image", "audio", "video", "document")


class ClientTool(Struct, frozen=True):
    """A tool that runs in the client."""

    name: str
    description: str = ""
    parameters: dict[str, Any] = {}

    @property
    def declaration(self) -> dict[str, Any]:
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


class ResumeEntry(Struct, frozen=True, rename="camel"):
    """The answer to an interrupt."""

    interrupt_id: str
    status: Literal["resolved", "cancelled"]
    payload: Any = None


class RunAgentInput(Struct, frozen=True, rename="camel"):
    """The body of a request."""

    thread_id: str
    run_id: str
    messages: list[dict[str, Any]]
    tools: list[ClientTool] = []
    resume: list[ResumeEntry] = []


class _ToolMessage(Struct, frozen=True, rename="camel"):
    tool_call_id: str
    content: str | list[dict[str, Any]]
    error: str | None = None


class _Source(Struct, frozen=True, rename="camel"):
    type: Literal["data", "url"]
    value: str
    mime_type: str = ""


class UserTurn(Struct, frozen=True):
    """The last user message of a request, its index, and the client's messages up to it."""

    message: Message
    id: str
    before: Sequence[dict[str, Any]]


def check_input(body: RunAgentInput, limits: ServerLimits) -> None:
    """Raise a `RejectedRequest` for a request that is too large, or whose run has no usable id."""
    if len(body.messages) > limits.messages or len(body.tools) > limits.tools:
        most = f"{limits.messages} messages and {limits.tools} tools"
        raise RejectedRequest(400, "too_large", f"a request may have at most {most}")
    if len(body.run_id) > MAX_ID:
        raise RejectedRequest(400, "invalid_id", f"$.runId: at most {MAX_ID} characters")


def last_turn(body: RunAgentInput, limits: ServerLimits) -> UserTurn | None:
    """The last user message; None if there is none."""
    for index in range(len(body.messages) - 1, -1, -1):
        message, place = body.messages[index], f"$.messages[{index}]"
        if message.get("role") != "user":
            continue
        id = message.get("id")
        if not isinstance(id, str) or not 0 < len(id) <= MAX_ID:
            raise RejectedRequest(
                400, "invalid_id", f"{place}.id: a user message needs an id of at most {MAX_ID} characters"
            )
        return UserTurn(user_message(_prompt(message.get("content"), place), limits), id, body.messages[: index + 1])
    return None


def approvals(body: RunAgentInput) -> list[Approval]:
    """The decisions in a request."""
    return [_approval(entry, f"$.resume[{number}].payload") for number, entry in enumerate(body.resume)]


def client_results(body: RunAgentInput, calls: frozenset[str]) -> list[ClientResult]:
    """The results in a request for these calls."""
    results: list[ClientResult] = []
    for index, message in enumerate(body.messages):
        if message.get("role") == "tool" and message.get("toolCallId") in calls:
            tool = convert(message, _ToolMessage, f"$.messages[{index}]")
            text = tool.content if isinstance(tool.content, str) else _text(tool.content)
            results.append(ClientResult(tool.tool_call_id, tool.error or text, is_error=bool(tool.error)))
    return results


def answered_calls(body: RunAgentInput) -> frozenset[str]:
    """The ids of calls whose results the client has."""
    ids = (message.get("toolCallId") for message in body.messages if message.get("role") == "tool")
    return frozenset(id for id in ids if isinstance(id, str))


def _approval(entry: ResumeEntry, place: str) -> Approval:
    match entry:
        case ResumeEntry(status="cancelled"):
            return Approval(entry.interrupt_id, approved=False, reason="the person cancelled it")
        case ResumeEntry(payload=bool(approved)) | ResumeEntry(payload={"approved": bool(approved)}):
            reason = entry.payload.get("reason") if isinstance(entry.payload, dict) else None
            return Approval(entry.interrupt_id, approved, reason if isinstance(reason, str) else "")
        case _:
            raise RejectedRequest(400, "invalid_body", f'{place}: send {{"approved": true}} or {{"approved": false}}')


def _prompt(content: object, place: str) -> Prompt:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise RejectedRequest(400, "invalid_body", f"{place}.content: expected text, or a list of parts")
    return [_part(part, f"{place}.content[{number}]") for number, part in enumerate(content)]


def _part(part: object, place: str) -> TextPart | MediaPart:
    match part:
        case {"type": "text", "text": str(text)}:
            return TextPart(text)
        case {"type": str(kind), "source": dict(source)} if kind in _MEDIA:
            media = convert(source, _Source, f"{place}.source")
            url = f"data:{media.mime_type};base64,{media.value}" if media.type == "data" else media.value
            return MediaPart(url, media.mime_type)
        case _:
            raise RejectedRequest(400, "unknown_part", f"{place}: a user message consists of text and media")


def _text(parts: list[dict[str, Any]]) -> str:
    return "".join(str(part.get("text", "")) for part in parts if part.get("type") == "text")

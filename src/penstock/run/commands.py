"""The commands of a run: what its driver does next. The driver decides nothing itself."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from penstock.messages import Message
from penstock.run.events import ApprovalRequest, StreamEvent, ToolEnd, ToolStart


class AskModel(Struct, frozen=True):
    """Send these messages to the model; pass its chunks to `Run.chunk` and the end of its response to `Run.ended`."""

    messages: tuple[Message, ...]


class StopAsking(Struct, frozen=True):
    """Cancel the request to the model, if one is under way."""


class StartTool(Struct, frozen=True):
    """Start a tool; pass its outcome to `Run.tool_done`, or call `Run.tool_late` when its timeout expires."""

    key: str
    call_id: str
    name: str
    arguments: dict[str, Any]
    timeout: float | None = None


class CancelTool(Struct, frozen=True):
    """Cancel a tool, if it is still running; its result is not needed any more."""

    key: str


class Emit(Struct, frozen=True):
    """Pass this event to the reader of the run."""

    event: StreamEvent


Command = AskModel | StopAsking | StartTool | CancelTool | Emit
Move = StartTool | CancelTool | ToolStart | ToolEnd | ApprovalRequest
"""What a change of a call leads to: a command or an event."""

"""What a run says is to be done; a driver carries it out, without a say in it."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from penstock.messages import Message
from penstock.run.events import ApprovalRequest, StreamEvent, ToolEnd, ToolStart


class Ask(Struct, frozen=True):
    """Ask the model; feed what it says to `Run.chunk`, and say when it is over with `Run.ended`."""

    messages: tuple[Message, ...]


class Hush(Struct, frozen=True):
    """Stop reading the model's answer, if one is being read."""


class Start(Struct, frozen=True):
    """Start a tool; say what came of it with `Run.tool_done`, or with `Run.tool_late` when its time is up."""

    key: str
    call_id: str
    name: str
    arguments: dict[str, Any]
    timeout: float | None = None


class Cancel(Struct, frozen=True):
    """Cancel a tool, if it is still running; nobody wants its result any more."""

    key: str


class Tell(Struct, frozen=True):
    """Give this event to whoever reads the run."""

    event: StreamEvent


Command = Ask | Hush | Start | Cancel | Tell
Move = Start | Cancel | ToolStart | ToolEnd | ApprovalRequest
"""What changes about a call: something to do, or something to tell."""

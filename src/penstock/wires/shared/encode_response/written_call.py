"""A call that is being written: what has been sent of its arguments, and what is still to be sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from penstock.calls.arguments import WITHOUT_ARGUMENTS
from penstock.calls.rope import PIECES, Rope
from penstock.events import CallKind, ToolCall, ToolCallInvalid

Write = Callable[[str], None]
"""Writes a piece of a text, or of the arguments of a call."""


class WrittenCall:
    """A call of a response. `write` sends a piece of its arguments; it is None until the call has begun."""

    __slots__ = (
        "_next_settle", "_rope", "choice", "id", "index", "is_ended", "kind", "name", "size", "states",
        "write",
    )  # fmt: skip

    def __init__(self, id: str, name: str, index: int, choice: int) -> None:
        self.id = id
        self.name = name
        self.index = index  # among the calls of its choice
        self.choice = choice
        self.kind: CallKind = "function"
        self.write: Write | None = None
        self.states: dict[str, Any] = {}  # vendor state by kind
        self.is_ended = False
        self.size = 0  # characters of its arguments so far
        self._rope = Rope()
        self._next_settle = PIECES

    def add(self, piece: str) -> None:
        """Records a piece of the arguments."""
        self._rope.append(piece)
        self.size += len(piece)
        if self.size > self._next_settle:
            self._rope.settle()
            self._next_settle = self.size + PIECES

    def arguments(self) -> str:
        """The arguments so far."""
        return self._rope.text()


def final_text(event: ToolCall | ToolCallInvalid, kind: CallKind, has_custom: bool) -> str:
    """The arguments as they are written: free text for a custom call, else JSON; `{}` for a call without any.

    A custom call on a wire without such calls is a function whose argument is called `input`.
    """
    raw = event.arguments_raw
    if isinstance(event, ToolCallInvalid):
        return raw
    if kind == "custom" and has_custom:
        text = event.arguments.get("input")
        return text if isinstance(text, str) else raw
    if event.kind == "custom" or (not raw and event.arguments):
        return encode_arguments(event.arguments)
    return "{}" if raw.strip() in WITHOUT_ARGUMENTS else raw


def encode_arguments(arguments: dict[str, Any]) -> str:
    """Arguments as JSON text."""
    return msgspec.json.encode(arguments).decode()

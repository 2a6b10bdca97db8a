"""A call whose arguments are still growing: the part that native calls and calls in a text have in common."""

from __future__ import annotations

from typing import Any

from penstock.calls.arguments import MAX_ARGUMENTS
from penstock.calls.rope import PIECES, Rope
from penstock.events import (
    CallKind,
    Fault,
    SealedBy,
    StreamChunk,
    ToolCall,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
)
from penstock.jsontext.surrogates import join_surrogates


class GrowingCall:
    """A call in progress: collects its arguments up to `MAX_ARGUMENTS` and writes its events to `out`.

    Subclasses say when it starts, and end it with `fail`, `_emit_call` or `_emit_invalid`.
    """

    __slots__ = ("_append", "_emit", "_next_settle", "_rope", "block", "choice", "id", "kind", "name", "origin",
                 "size")  # fmt: skip

    def __init__(
        self, out: list[StreamChunk], block: int, id: str, name: str = "", origin: str = "native", choice: int = 0
    ) -> None:
        self._emit = out.append
        self.block = block
        self.choice = choice
        self.id = id
        self.name = name
        self.origin = origin
        self.kind: CallKind = "function"
        self._clear()

    def _clear(self) -> None:
        """Drops the arguments."""
        self.size = 0  # in characters; larger than MAX_ARGUMENTS if some were dropped
        self._next_settle = PIECES
        self._rope = Rope()
        self._append = self._rope.append

    def start(self) -> None:
        """Announces the call: its name is known."""
        self._emit(ToolCallStart(self.block, self.id, self.name, self.choice))

    def add(self, piece: str) -> None:
        """Adds a piece of the arguments' JSON."""
        self.size = size = self.size + len(piece)
        if size > self._next_settle:
            if size > MAX_ARGUMENTS:
                return
            self._rope.settle()
            self._next_settle = size + PIECES
        self._append(piece)
        self._emit(ToolCallDelta(self.block, piece, self.choice))

    def raw(self) -> str:
        """The text of the arguments so far."""
        return join_surrogates(self._rope.text())

    @property
    def is_too_large(self) -> bool:
        return self.size > MAX_ARGUMENTS

    def fail(self, why: Fault, message: str) -> None:
        """Ends the call: it must not run."""
        self._emit_invalid(self.raw(), why, message, None)

    def _fail_too_large(self) -> None:
        self.fail("too_large", f"the arguments are longer than MAX_ARGUMENTS ({MAX_ARGUMENTS} characters)")

    def _emit_call(self, arguments: dict[str, Any], raw: str, sealed_by: SealedBy) -> None:
        self._emit(
            ToolCall(self.id, self.name, arguments, raw, self.origin, sealed_by, self.kind, self.block, self.choice)
        )

    def _emit_invalid(self, raw: str, why: Fault, message: str, repaired: dict[str, Any] | None) -> None:
        self._emit(
            ToolCallInvalid(
                self.block, self.id, self.name, raw, why, message, repaired, self.origin, self.kind, self.choice
            )
        )

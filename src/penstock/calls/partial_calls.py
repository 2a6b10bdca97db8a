"""Calls while they are written: for each event of a call, the call so far."""

from __future__ import annotations

from typing import Any

from penstock.events import ArgumentDelta, Retry, ToolCall, ToolCallDelta, ToolCallInvalid, ToolCallStart
from penstock.jsontext.partial import JSONPiece, PartialJSON


class PartialToolCall:
    """A call so far. The object is live: it is the same for all events of a call, and grows with them.

    `arguments` is what has arrived, parsed; each update costs only the new piece. `is_complete` when the call is a
    `ToolCall`; a call that turned out to be invalid never is.
    """

    __slots__ = ("_pieces", "_view", "_whole", "id", "is_complete", "name")

    def __init__(self, id: str = "", name: str = "") -> None:
        self.id = id
        self.name = name
        self.is_complete = False
        self._pieces: list[str] = []
        self._view = PartialJSON()
        self._whole: ToolCall | None = None

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments so far; copy them to keep a state."""
        value = self._view.value if self._whole is None else self._whole.arguments
        return value if isinstance(value, dict) else {}

    @property
    def arguments_raw(self) -> str:
        """The text of the arguments so far; it is joined when it is read."""
        if self._whole is not None:
            return self._whole.arguments_raw
        self._pieces = ["".join(self._pieces)]
        return self._pieces[0]

    def __repr__(self) -> str:
        return f"PartialToolCall({self.id!r}, {self.name!r}, {self.arguments!r}, is_complete={self.is_complete})"

    def add(self, piece: str) -> list[JSONPiece]:
        """Adds a piece of the arguments; returns what it added to their value."""
        self._pieces.append(piece)
        return self._view.feed(piece)

    def end(self, call: ToolCall) -> None:
        """The call is complete: what it says counts, and not the pieces."""
        self.id, self.name, self._whole, self.is_complete = call.id, call.name, call, True


class PartialCalls:
    """The open calls of a stream."""

    def __init__(self) -> None:
        self._calls: dict[tuple[int, int], PartialToolCall] = {}  # by choice and block

    def pieces(self, event: ToolCallDelta) -> list[ArgumentDelta]:
        """Adds a piece of a call; returns what it added to the arguments."""
        pieces = self._call_of(event).add(event.piece)
        return [
            ArgumentDelta(event.block, piece.path, piece.piece, piece.is_complete, event.choice) for piece in pieces
        ]

    def _call_of(self, event: ToolCallDelta) -> PartialToolCall:
        return self._calls.setdefault((event.choice, event.block), PartialToolCall())

    def add(self, event: object) -> PartialToolCall | None:
        """Adds an event; returns the call that it belongs to, if any."""
        match event:
            case ToolCallDelta():
                call = self._call_of(event)
                call.add(event.piece)
                return call
            case ToolCallStart():
                call = self._calls[event.choice, event.block] = PartialToolCall(event.id, event.name)
                return call
            case ToolCall():
                call = self._calls.pop((event.choice, event.block), PartialToolCall())
                call.end(event)
                return call
            case ToolCallInvalid():
                return self._calls.pop((event.choice, event.block), PartialToolCall(event.id, event.name))
            case Retry():
                self._calls.clear()
            case _:
                pass
        return None

"""A native call in progress: its pieces, the point where its JSON closes, and its result when it ends.

`OpenCall.add` is the reference; pieces after the first two take a short path in it, and `_add_carefully` does what the
others need. `add_all` is `add` for the pieces of one read: it joins those between two closing brackets. `takes` is
`add` for a piece whose event the caller has already. test_laws cuts every vector whole, frame by frame and byte by byte
and expects the same events.
"""

from __future__ import annotations

from typing import Any

from penstock.calls.arguments import MAX_ARGUMENTS, WITHOUT_ARGUMENTS, diagnose
from penstock.calls.closing_json import ClosingJSON, may_close
from penstock.calls.growing import GrowingCall
from penstock.calls.rope import PIECES
from penstock.events import CallKind, Fault, SealedBy, StreamChunk, ToolCallClosed, ToolCallDelta, ToolCallInvalid


class OpenCall(GrowingCall):
    """A native call in progress. It ends by `seal` or `fail`.

    The end of the JSON is looked for only when a piece ends in a closing bracket, and only in the text since the last
    look.
    """

    __slots__ = (
        "_held", "_json", "_out", "has_failed", "has_unknown_pieces", "is_damaged", "is_ended", "is_started",
        "last_piece",
    )  # fmt: skip

    def __init__(self, out: list[StreamChunk], block: int, choice: int, id: str, kind: CallKind = "function") -> None:
        super().__init__(out, block, id, choice=choice)
        self._out = out
        self._held: list[StreamChunk] | None = None  # its events, while they are held back
        self.kind = kind
        self.is_started = False
        self.is_ended = False
        self.has_failed = False  # it has ended, and is invalid: nothing more comes for its block
        self.is_damaged = False  # a piece may have been lost
        self.has_unknown_pieces = False  # something readable came for it that is not a piece of its arguments
        self._next_settle = 0  # below this size pieces take the short path; 0 until the call has started
        self.last_piece: str | None = ""  # None once a piece did not begin with the previous one (QUIRKS 37)
        self._json = ClosingJSON(self._rope, is_scanned=kind == "function")

    @property
    def is_held(self) -> bool:
        """Whether its events are held back."""
        return self._held is not None

    def hold(self) -> None:
        """Holds back the events from now on: it may be a copy of another call."""
        self._held = []
        self._emit = self._held.append

    def emit_held(self, event: StreamChunk) -> None:
        """Holds back an event that belongs to the call."""
        self._emit(event)

    def release(self) -> None:
        """Emits the events that were held back."""
        if self._held is not None:
            self._out += self._held
            self._emit = self._out.append
            self._held = None

    def drop(self) -> None:
        """Ends the call without any event: it is a copy."""
        self.is_ended = True
        if self._held is not None:
            self._held.clear()

    def start(self) -> None:
        """Announces the call and the arguments that came before its name (QUIRKS 16)."""
        self.is_started = True
        super().start()
        if self.size:
            self._emit(ToolCallDelta(self.block, self.raw(), self.choice))
            self._emit_closed()

    def add(self, piece: str) -> None:
        """Adds a piece of the arguments."""
        size = self.size + len(piece)
        if size < self._next_settle:
            self.size = size
            self._append(piece)
            self._emit(ToolCallDelta(self.block, piece, self.choice))
            if "}" in piece and may_close(piece):
                self._look()
        else:
            self._add_carefully(piece, size)

    def takes(self, piece: str) -> bool:
        """Adds a piece that does not close the JSON, without an event; False for any other, which is not added."""
        size = self.size + len(piece)
        if size >= self._next_settle or ("}" in piece and may_close(piece) and not self._json.stays_open(piece)):
            return False
        self.size = size
        self._append(piece)
        return True

    def add_all(self, pieces: list[str]) -> None:
        """Adds the pieces of one read; empty ones do not count."""
        first = 0
        while not self._next_settle and first < len(pieces):
            if pieces[first]:
                self.add(pieces[first])
            first += 1
        if first:
            pieces = pieces[first:]
        text = "".join(pieces)
        if self.size + len(text) > MAX_ARGUMENTS:
            for piece in filter(None, pieces):
                self.add(piece)
            return
        start = 0
        for number in self._json.closing_pieces(pieces, self.size) if "}" in text and not self.has_closed else ():
            part = pieces[start:number]
            self._add_joined(part, text if len(part) == len(pieces) else "".join(part))
            self._look()
            start = number
        if start < len(pieces):
            rest = pieces[start:] if start else pieces
            self._add_joined(rest, "".join(rest) if start else text)

    def _add_joined(self, pieces: list[str], text: str) -> None:
        """Adds pieces of which only the last may close the JSON; `text` is what they say."""
        block, choice = self.block, self.choice
        self.size += len(text)
        self._append(text)
        self._rope.settle()
        target = self._out if self._held is None else self._held
        target += [ToolCallDelta(block, piece, choice) for piece in pieces if piece]

    def _add_carefully(self, piece: str, size: int) -> None:
        """Adds a piece to a call that has not started, that may be cumulative, or whose text needs settling."""
        if size > MAX_ARGUMENTS:
            self.size = size
            return
        self._rope.settle()
        if self.name and not self.is_started:
            self.start()
        self.size = size
        self._append(piece)
        if self.last_piece is not None:
            self.last_piece = piece if piece.startswith(self.last_piece) else None
        if self.is_started:
            self._emit(ToolCallDelta(self.block, piece, self.choice))
            self._next_settle = 0 if self.last_piece is not None else min(size + PIECES, MAX_ARGUMENTS)
        if may_close(piece):
            self._look()

    def replace(self, raw: str) -> None:
        """Sets the arguments that the protocol states at the end: they count, not the pieces (QUIRKS 44, 135)."""
        if raw == self.raw():
            return
        if not self.size:
            self.add(raw)
            return
        next_settle = self._next_settle
        self._clear()
        self.size, self._next_settle = len(raw), next_settle
        self._json = ClosingJSON(self._rope, is_scanned=False)
        if not self.is_too_large:
            self._append(raw)

    def damage(self) -> None:
        """Records that a part of the stream was lost, which may have been a piece of these arguments."""
        self.is_damaged |= self.is_open

    def _look(self) -> None:
        if self._json.closes(self.size):
            self._emit_closed()

    def _emit_closed(self) -> None:
        arguments = self._json.arguments
        if self.is_started and self.is_closed and arguments is not None:
            self._emit(ToolCallClosed(self.block, self.id, self.name, arguments, self.choice))

    @property
    def has_arguments(self) -> bool:
        """Whether anything but white space, or a `null` that stands for none, has come."""
        return self.is_closed or (self.size > 0 and self.raw().strip() not in WITHOUT_ARGUMENTS)

    @property
    def has_closed(self) -> bool:
        """Whether the JSON of the arguments closed at some time, so that they may be whole."""
        return self._json.has_closed

    @property
    def is_open(self) -> bool:
        """Whether more of the arguments is to be expected."""
        return not self.is_ended and not self.is_closed

    @property
    def is_closed(self) -> bool:
        """Whether the JSON of the arguments has closed, and only white space followed; costs next to nothing."""
        return self._json.is_closed(self.size)

    def whole_arguments(self) -> dict[str, Any] | None:
        """Returns the arguments if what has come so far is one JSON object."""
        if self.kind == "custom":
            return {"input": self.raw()}
        return self._json.parse(self.size)

    def seal(self, sealed_by: SealedBy) -> bool:
        """Ends the call as the protocol did. Returns whether it is a valid call."""
        if self.is_ended:
            return False
        self.release()
        if self.name and not self.is_started:
            self.start()
        if not self.is_started:
            self.fail("unnamed", "the call has no name")
        elif self.is_damaged:
            self.fail("cut", "a part of the stream could not be read while the call was written")
        elif self.has_unknown_pieces and not self.has_arguments:
            self.fail("cut", "only pieces of an unknown kind came for the call")
        elif self.is_too_large:
            self._fail_too_large()
        else:
            self.is_ended = True
            is_valid = self._end(sealed_by)
            self.has_failed = not is_valid
            self._emit = _ignore
            return is_valid
        return False

    def _end(self, sealed_by: SealedBy) -> bool:
        raw, arguments = self.raw(), self.whole_arguments()
        if arguments is None:
            self._emit_invalid(raw, *diagnose(raw, self.last_piece))
            return False
        self._emit_call(arguments, raw, sealed_by)
        return True

    def fail(self, why: Fault, message: str) -> None:
        """Ends the call, unless it has ended: it must not run."""
        if not self.is_ended:
            self.is_ended = self.has_failed = True
            self.release()
            super().fail(why, message)
            self._emit = _ignore


def diagnosed(call: OpenCall) -> ToolCallInvalid:
    """The call as it would be reported if it ended now and its arguments were not valid."""
    raw = call.raw()
    why, message, repaired = diagnose(raw, call.last_piece)
    return ToolCallInvalid(
        call.block, call.id, call.name, raw, why, message, repaired, call.origin, call.kind, call.choice
    )


def _ignore(event: StreamChunk) -> None:
    """Drops an event of a call that has ended: nothing more comes for its block."""

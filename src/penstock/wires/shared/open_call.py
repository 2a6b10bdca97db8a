"""A call that is still being written: its pieces, whether its JSON has closed, and the verdict when it ends."""

from __future__ import annotations

from typing import Any

from penstock.calls.arguments import MAX_ARGUMENTS, diagnose, strict_object
from penstock.calls.rope import PIECES, Rope
from penstock.events import (
    CallKind,
    Fault,
    SealedBy,
    StreamChunk,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
)
from penstock.jsontext.scan import ValueScanner
from penstock.jsontext.surrogates import join_surrogates


class OpenCall:
    """A call in the making. It tells what happens to it in `out`, and ends by `seal` or by `fail`.

    The end of the JSON is looked for only when a piece ends in a closing bracket, in what has come since the last look.
    """

    __slots__ = ("_closed_at", "_emit", "_fresh", "_last", "_next_care", "_scanner", "_seen", "_write", "arguments",
                 "block", "choice", "id", "is_damaged", "is_ended", "is_started", "kind", "name", "size")  # fmt: skip

    def __init__(self, out: list[StreamChunk], block: int, choice: int, id: str, kind: CallKind = "function") -> None:
        self._emit = out.append
        self.block = block
        self.choice = choice
        self.id = id
        self.name = ""
        self.kind: CallKind = kind
        self.arguments: dict[str, Any] | None = None
        self.size = 0
        self.is_started = False
        self.is_ended = False
        self.is_damaged = False  # a piece may have been lost
        self._next_care = 0  # the length up to which pieces need no care; most meet it so, once the call is announced
        self._last: str | None = ""  # the last piece, as long as every piece began with the one before it (QUIRKS 37)
        self._scanner: ValueScanner | None = ValueScanner() if kind == "function" else None
        self._closed_at = -1
        self._forget()

    def _forget(self) -> None:
        self._seen = Rope()  # the text that the scanner has read
        self._fresh = Rope()  # the text that it has not
        self._write = self._fresh.append

    def start(self) -> None:
        """The name is known: announce the call, and what has come of its arguments before (QUIRKS 16)."""
        self.is_started = True
        self._emit(ToolCallStart(self.block, self.id, self.name, self.choice))
        if self.size:
            self._emit(ToolCallDelta(self.block, self.raw(), self.choice))
            self._tell_closed()

    def add(self, piece: str) -> None:
        """A piece of the arguments."""
        self.size = size = self.size + len(piece)
        if size < self._next_care:
            self._write(piece)
            self._emit(ToolCallDelta(self.block, piece, self.choice))
            if "}" in piece and piece.rstrip().endswith("}"):
                self._look()
        else:
            self._add_with_care(piece)

    def add_all(self, pieces: list[str]) -> None:
        """Pieces that came in one read: the same as `add` for each, with less ado."""
        write, emit, block, choice = self._write, self._emit, self.block, self.choice
        for piece in pieces:
            self.size = size = self.size + len(piece)
            if size < self._next_care:
                write(piece)
                emit(ToolCallDelta(block, piece, choice))
                if "}" in piece and piece.rstrip().endswith("}"):
                    self._look()
            else:
                self._add_with_care(piece)

    def _add_with_care(self, piece: str) -> None:
        """A piece of a call that is not announced yet, that may prove to be cumulative, or that has grown long."""
        if self.size > MAX_ARGUMENTS:
            return
        self._seen.settle()
        self._fresh.settle()
        if self.name and not self.is_started:
            self.size -= len(piece)
            self.start()
            self.size += len(piece)
        self._write(piece)
        if self._last is not None:
            self._last = piece if piece.startswith(self._last) else None
        if self.is_started:
            self._emit(ToolCallDelta(self.block, piece, self.choice))
            self._next_care = 0 if self._last is not None else min(self.size + PIECES, MAX_ARGUMENTS)
        if piece.rstrip().endswith("}"):
            self._look()

    def raw(self) -> str:
        """The arguments so far, as they came."""
        seen, fresh = self._seen.text(), self._fresh.text()
        return join_surrogates(seen + fresh if seen else fresh)

    def replace(self, raw: str) -> None:
        """The protocol says what the arguments are: that counts, not the pieces (QUIRKS 44, 135)."""
        if raw == self.raw():
            return
        if not self.size:
            self.add(raw)
            return
        self.size = len(raw)
        self._forget()
        self._scanner, self._closed_at = None, -1
        if self.size <= MAX_ARGUMENTS:
            self._write(raw)

    def damage(self) -> None:
        """Something was lost while the call was being written; it may have been a piece of the arguments."""
        self.is_damaged |= self.is_open

    def _look(self) -> None:
        """Whether the JSON closes in what is fresh."""
        if self._scanner is None:
            return
        fresh = self._fresh.take()
        self._seen.append(fresh)
        if self._scanner.feed(fresh) >= 0:
            self._scanner = None
            self._closed_at, self.arguments = self.size, strict_object(self.raw())
            self._tell_closed()

    def _tell_closed(self) -> None:
        if self.is_started and self.arguments is not None and self._closed_at == self.size:
            self._emit(ToolCallClosed(self.block, self.id, self.name, self.arguments, self.choice))

    @property
    def has_arguments(self) -> bool:
        """Whether anything but white space has come."""
        return self.is_closed or (self.size > 0 and bool(self.raw().strip()))

    @property
    def has_closed(self) -> bool:
        """Whether the JSON of the arguments closed at some time, so that they may be whole."""
        return self._scanner is None

    @property
    def is_open(self) -> bool:
        """Whether more of the arguments is to be expected."""
        return not self.is_ended and not self.is_closed

    @property
    def is_closed(self) -> bool:
        """Whether the JSON of the arguments has closed; it costs nothing to ask."""
        return self._closed_at == self.size and self.arguments is not None

    def whole_arguments(self) -> dict[str, Any] | None:
        """The arguments, if what has come so far is one JSON object; parsed at most once for each length."""
        if self.kind == "custom":
            return {"input": self.raw()}
        if self._closed_at != self.size:
            self._closed_at, self.arguments = self.size, strict_object(self.raw())
        return self.arguments

    def seal(self, sealed_by: SealedBy) -> bool:
        """The protocol ended the call: it is whole if its arguments are; whether it is."""
        if self.is_ended:
            return False
        if self.name and not self.is_started:
            self.start()
        if not self.is_started:
            return self.fail("unnamed", "the call has no name")
        if self.is_damaged:
            return self.fail("cut", "a part of the stream could not be read while the call was written")
        if self.size > MAX_ARGUMENTS:
            return self.fail("too_large", f"the arguments are longer than MAX_ARGUMENTS ({MAX_ARGUMENTS} characters)")
        self.is_ended = True
        raw = self.raw()
        if self.kind == "custom":
            self._whole({"input": raw}, raw, sealed_by)
        elif (arguments := self.whole_arguments()) is not None:
            self._whole(arguments, raw, sealed_by)
        else:
            self._invalid(raw, *diagnose(raw, self._last))
            return False
        return True

    def fail(self, why: Fault, message: str) -> bool:
        """The call ended in a way that must not let it run."""
        if not self.is_ended:
            self.is_ended = True
            self._invalid(self.raw(), why, message, None)
        return False

    def _whole(self, arguments: dict[str, Any], raw: str, sealed_by: SealedBy) -> None:
        self._emit(
            ToolCall(self.id, self.name, arguments, raw, "native", sealed_by, self.kind, self.block, self.choice)
        )

    def _invalid(self, raw: str, why: Fault, message: str, repaired: dict[str, Any] | None) -> None:
        self._emit(
            ToolCallInvalid(
                self.block, self.id, self.name, raw, why, message, repaired, "native", self.kind, self.choice
            )
        )

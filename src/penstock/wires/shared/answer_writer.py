"""Writes the events of one answer: the block of each piece, the open calls, and the reason for its end."""

from __future__ import annotations

from typing import Any, Literal

from penstock.calls.numbering import Numbering
from penstock.events import CallKind, Opaque, Reasoning, Refusal, SealedBy, StreamChunk, Text
from penstock.jsontext.portable import as_json_value
from penstock.wires.shared.open_call import OpenCall

NO_ARGUMENTS = "the call has no arguments, and some may have been lost"
BlockKind = Literal["text", "reasoning", "refusal", ""]


class AnswerWriter:
    """One answer (choice) of a response. Its methods are named for what the wire read; events go to `out`."""

    __slots__ = (
        "_at_risk",
        "_blocks",
        "_wire",
        "calls",
        "choice",
        "is_short",
        "kinds",
        "message",
        "open_block",
        "open_kind",
        "out",
        "raw_reason",
        "whole_calls",
    )

    def __init__(
        self, out: list[StreamChunk], choice: int, blocks: Numbering, wire: str, at_risk: list[OpenCall] | None = None
    ) -> None:
        self.out = out
        self.choice = choice
        self._blocks = blocks
        self._wire = wire
        self._at_risk = [] if at_risk is None else at_risk  # open calls, which a lost frame may damage
        self.open_kind: BlockKind = ""
        self.open_block = -1
        self.calls: list[OpenCall] = []
        self.kinds: set[str] = set()  # of content so far: text, reasoning, refusal
        self.whole_calls = 0
        self.is_short = False  # something seems to be missing
        self.raw_reason: str | None = None
        self.message = ""

    def block(self, kind: BlockKind) -> int:
        """The block for a piece of this kind: the open one, or a new one if the kind changes."""
        if self.open_kind != kind:
            self.open_kind = kind
            self.kinds.add(kind)
            self.open_block = self._blocks.new_block()
        return self.open_block

    def new_block(self) -> int:
        """A new block; the next piece of text opens another."""
        self.open_kind = ""
        return self._blocks.new_block()

    @property
    def is_untouched(self) -> bool:
        """Whether nothing has come yet."""
        return self.open_block < 0 and not self.calls

    def text(self, piece: str) -> None:
        if piece:  # an empty piece does not open a block (QUIRKS 70)
            self.out.append(Text(self.block("text"), piece, self.choice))

    def reasoning(self, piece: str) -> None:
        if piece:
            self.out.append(Reasoning(self.block("reasoning"), piece, self.choice))

    def refusal(self, piece: str) -> None:
        if piece:
            self.out.append(Refusal(self.block("refusal"), piece, self.choice))

    def opaque(self, kind: str, data: Any, block: int | None = None) -> None:
        """Emits vendor state for a block; without one, as a block of its own."""
        block = self.new_block() if block is None else block
        self.out.append(Opaque(block, self._wire, kind, as_json_value(data), self.choice))

    def call(self, id: str, name: str = "", kind: CallKind = "function") -> OpenCall:
        """Opens a call; without a name it is announced later, by `start`."""
        call = OpenCall(self.out, self.new_block(), self.choice, self._blocks.unique_id(id), kind)
        self.calls.append(call)
        self._at_risk.append(call)
        if name:
            call.name = name
            call.start()
        return call

    def identify(self, call: OpenCall, id: str) -> None:
        """Sets the id of a call, which came late."""
        self._blocks.release(call.id)
        call.id = self._blocks.unique_id(id)

    def seal(self, call: OpenCall, sealed_by: SealedBy) -> None:
        self.whole_calls += call.seal(sealed_by)

    def finish(self, raw_reason: str, message: str = "") -> None:
        """Records the provider's reason for the end; the first one counts (QUIRKS 59)."""
        if self.raw_reason is None:
            self.raw_reason = raw_reason
        self.message = self.message or message

    def end_calls(self, sealed_by: SealedBy | None) -> None:
        """Seals the open calls; with None, nothing confirmed them, and they are cut.

        A call without arguments has the empty object only if the answer was ended properly (QUIRKS 33), which an end
        mark alone does not show.
        """
        for call in self.calls:
            if sealed_by is None:
                call.fail("cut", "the stream ended before the call was confirmed")
            elif sealed_by == "done" and not call.has_arguments:
                call.fail("cut", "the call had no arguments when the stream ended without a finish reason")
            elif self.is_short and not call.has_arguments:
                call.fail("cut", NO_ARGUMENTS)
            elif self.is_short and call.kind == "custom":  # free text does not show whether it is complete
                call.fail("cut", "the response was interrupted, and free text does not show where it ends")
            else:
                self.seal(call, sealed_by)

    def withdraw(self) -> None:
        """Fails the open calls and forgets everything: the provider started the response again."""
        for call in self.calls:
            call.fail("withdrawn", "the provider started the response again")
            self._blocks.release(call.id)
        self.calls, self.whole_calls, self.is_short = [], 0, False
        self.raw_reason, self.message, self.open_kind = None, "", ""

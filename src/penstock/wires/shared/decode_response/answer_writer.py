"""Writes the events of one answer: the block of each piece, the open calls, and the reason for its end."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from penstock.calls.numbering import Numbering
from penstock.events import CallKind, Opaque, Reasoning, Refusal, SealedBy, StreamChunk, Text, ToolCall
from penstock.jsontext.portable import as_json_value
from penstock.wires.shared.decode_response.copies import Copies
from penstock.wires.shared.decode_response.open_call import OpenCall

NO_ARGUMENTS = "the call has no arguments, and some may have been lost"
BlockKind = Literal["text", "reasoning", "refusal", ""]


class EndSigns:
    """Whether anything says that a response ends: a reason, an error or an end mark. It costs nothing to look."""

    __slots__ = ("has_any",)

    def __init__(self) -> None:
        self.has_any = False


class AnswerWriter:
    """One answer (choice) of a response. Its methods are named for what the wire read; events go to `out`."""

    __slots__ = (
        "_at_risk",
        "_blocks",
        "_copies",
        "_end_signs",
        "_ends",
        "_wire",
        "calls",
        "choice",
        "finished_at",
        "has_loss",
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
        self,
        out: list[StreamChunk],
        choice: int,
        blocks: Numbering,
        wire: str,
        at_risk: list[OpenCall] | None = None,
        end_signs: EndSigns | None = None,
    ) -> None:
        self.out = out
        self.choice = choice
        self._blocks = blocks
        self._wire = wire
        self._at_risk = [] if at_risk is None else at_risk  # open calls, which a lost frame may damage
        self._end_signs = end_signs or EndSigns()
        self.open_kind: BlockKind = ""
        self.open_block = -1
        self.calls: list[OpenCall] = []
        self._ends: dict[OpenCall, SealedBy] = {}  # calls that ended without arguments, and what ended them
        self._copies = Copies(out)
        self.kinds: set[str] = set()  # kinds of content so far: text, reasoning, refusal
        self.whole_calls = 0
        self.is_short = False  # something seems to be missing
        self.has_loss = False  # something was lost that may have been the start of a call
        self.raw_reason: str | None = None
        self.finished_at: int | None = None  # the length of `out` when the first reason came
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

    def opaque(self, kind: str, data: Any, block: int | None = None) -> int:
        """Emits vendor state for a block; without one, as a block of its own. Returns the block."""
        block = self.new_block() if block is None else block
        self._copies.emit(Opaque(block, self._wire, kind, as_json_value(data), self.choice), block)
        return block

    def call(self, id: str, name: str = "", kind: CallKind = "function") -> OpenCall:
        """Opens a call; without a name it is announced later, by `start`."""
        call = OpenCall(self.out, self.new_block(), self.choice, self._blocks.unique_id(id), kind)
        self.calls.append(call)
        self._at_risk.append(call)
        call.name = name
        if id:
            self._copies.opened(call, id)
        if name:
            call.start()
        return call

    def vendor_call(self, call: ToolCall, block: int) -> None:
        """Emits a call that is an item of the provider's own; it belongs to the vendor state of the block."""
        id = self._blocks.unique_id(call.id)
        self.out.append(msgspec.structs.replace(call, id=id, block=block, choice=self.choice))

    def identify(self, call: OpenCall, id: str) -> None:
        """Sets the id of a call, which came late."""
        call.id = self._blocks.rename(call.id, id)
        self._copies.opened(call, id)

    def seal(self, call: OpenCall, sealed_by: SealedBy) -> None:
        """Ends a call as the protocol did. One without arguments waits for the end of the answer (QUIRKS 33).

        Its arguments may have been cut off, as those of a call are that was being written when the tokens ran out.
        """
        if call.has_arguments:
            self.seal_confirmed(call, sealed_by)
        elif not call.is_ended:
            self._ends.setdefault(call, sealed_by)

    def confirm(self) -> None:
        """Ends the calls without arguments that had an end of their own: the provider has ended the answer normally.

        From here on nothing changes such a call, because a stream that was cut here has it.
        """
        if not self.is_short:
            for call, sealed_by in self._ends.items():
                self.seal_confirmed(call, sealed_by)

    def cut_unconfirmed(self) -> None:
        """Fails the calls without arguments that came after the last reason of a normal end."""
        for call in self._ends:
            if not self._copies.is_waiting(call):
                call.fail("cut", NO_ARGUMENTS)

    def is_sealed(self, call: OpenCall) -> bool:
        """Whether the call has ended, or is held back although it has."""
        return call.is_ended or self._copies.is_waiting(call)

    def has_end(self, call: OpenCall) -> bool:
        """Whether a call without arguments had its own end, and waits for the end of the answer."""
        return call in self._ends

    def seal_confirmed(self, call: OpenCall, sealed_by: SealedBy) -> None:
        """Ends a call that the protocol has confirmed, so that later frames cannot change it."""
        self.whole_calls += self._copies.seal(call, sealed_by)

    def finish(self, raw_reason: str, message: str = "") -> None:
        """Records the provider's reason for the end; the first one counts (QUIRKS 59)."""
        if self.raw_reason is None:
            self.raw_reason = raw_reason
        if self.finished_at is None:
            self.finished_at, self._end_signs.has_any = len(self.out), True
        self.message = self.message or message

    def end_calls(self, sealed_by: SealedBy | None) -> None:
        """Seals the open calls; with None, nothing confirmed them, and they are cut.

        A call without arguments has the empty object only if the answer was ended properly (QUIRKS 33). An end mark
        alone does not show that, unless the call had an end of its own.
        """
        for call in self.calls:
            if call.is_ended or self._copies.is_waiting(call):
                continue
            if sealed_by is None:
                call.fail("cut", "the stream ended before the call was confirmed")
            elif sealed_by == "done" and call not in self._ends and not call.has_arguments:
                call.fail("cut", "the call had no arguments when the stream ended without a finish reason")
            elif self.is_short and not call.has_arguments:
                call.fail("cut", NO_ARGUMENTS)
            elif self.is_short and call.kind == "custom":  # free text does not show whether it is complete
                call.fail("cut", "the response was interrupted, and free text does not show where it ends")
            else:
                self.whole_calls += self._copies.seal(call, self._ends.get(call, sealed_by))
        self.whole_calls += self._copies.close(is_cut=sealed_by is None)

    def without_copies(self, calls: list[OpenCall]) -> list[OpenCall]:
        """The whole calls without copies of earlier ones."""
        return self._copies.without_copies(calls)

    def withdraw(self) -> None:
        """Fails the open calls and forgets everything: the provider started the response again."""
        for call in self.calls:
            call.fail("withdrawn", "the provider started the response again")
            self._blocks.release(call.id)
        self.calls, self.whole_calls, self.is_short = [], 0, False
        self._ends.clear()
        self._copies = Copies(self.out)
        self.raw_reason, self.message, self.open_kind, self.finished_at = None, "", "", None

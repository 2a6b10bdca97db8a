"""Writes the events of open blocks: their content, and their vendor state when they end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from penstock.wires.shared.decode_response.answer_writer import AnswerWriter
from penstock.wires.shared.decode_response.open_block import OpenBlock, OpenContent, OpenTool, OpenVendor
from penstock.wires.shared.decode_response.reports import Reports


class BlockWriter:
    """Writes what the blocks of an answer hold. `join_state` joins the pieces of one field of state."""

    def __init__(self, answer: AnswerWriter, reports: Reports, join_state: Callable[[str, list[Any]], Any]) -> None:
        self._answer = answer
        self._reports = reports
        self._join_state = join_state

    def content(self, part: OpenContent, piece: str) -> None:
        """Emits a piece of text or reasoning."""
        if part.block < 0:
            part.block = self._answer.new_block()
        self._answer.out.append(part.event_type(part.block, piece))

    def flush(self, part: OpenBlock) -> None:
        """Uses the content of the block's start if no piece has come."""
        match part:
            case OpenTool():
                part.use_start_input()
            case OpenContent() if text := part.start.pop("text", ""):
                self.content(part, text)

    def state(self, part: OpenBlock) -> None:
        """Emits the state of a block. State of an invalid call is reported, as nothing more comes for its block."""
        if isinstance(part, OpenTool) and part.call.has_failed:
            self._report(part, "state of an invalid call")
            return
        for field, pieces in part.take_state().items():
            if part.block < 0:
                part.block = self._answer.new_block()
            self._answer.opaque(field, self._join_state(field, pieces), part.block)

    def finish(self, part: OpenBlock) -> None:
        """Emits what a block still holds. A call stays open: the end of the turn decides."""
        if not isinstance(part, OpenVendor):
            self.flush(part)
            self.state(part)
        elif part.is_state:
            self._answer.opaque(part.kind, part.whole(), part.block)
        else:
            self._reports.unknown(part.whole(), "a block of an unknown type")

    def cut(self, part: OpenBlock) -> None:
        """Ends a block in which the bytes ended: its text counts, but state that may be cut must not be sent back."""
        if isinstance(part, OpenVendor):
            self._reports.unknown(part.whole(), "a block that was cut")
            return
        self.flush(part)
        self._report(part, "state of a block that was cut")

    def _report(self, part: OpenBlock, note: str) -> None:
        if state := {field: self._join_state(field, pieces) for field, pieces in part.take_state().items()}:
            self._reports.unknown(state, note)

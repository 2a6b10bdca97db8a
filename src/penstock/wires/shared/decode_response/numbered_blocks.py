"""Responses that consist of numbered blocks, each started, continued and stopped by its number.

A wire has `NumberedBlocks`, and calls `begin`, `add_content`, `add_arguments`, `add_state`, `stop`, `finish` and
`end` for what it reads. Vendor state
is emitted when its block stops: what belongs to a text, reasoning or call as an `Opaque` on the same block, with its
field (a signature, citations) as the kind; a block of the vendor's own as an `Opaque` with the block as its data, ready
to be sent back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from penstock.events import FinishReason, SealedBy
from penstock.jsontext.surrogates import join_surrogates
from penstock.wires.shared.decode_response.answer_writer import NO_ARGUMENTS, AnswerWriter
from penstock.wires.shared.decode_response.block_writer import BlockWriter
from penstock.wires.shared.decode_response.indexes import as_label
from penstock.wires.shared.decode_response.loose import is_empty
from penstock.wires.shared.decode_response.open_block import (
    OpenBlock,
    OpenContent,
    OpenReasoning,
    OpenText,
    OpenTool,
    OpenVendor,
)
from penstock.wires.shared.decode_response.progress import INTERRUPTED, is_interruption
from penstock.wires.shared.decode_response.reports import Reports

Label = int | str | None
"""The number of a block as the vendor sent it: a label, not a position. None stands for a block without one."""


def join_state(field: str, pieces: list[Any]) -> Any:
    """Joins the pieces of one field of state: text to a string, anything else to a list."""
    return "".join(pieces) if all(isinstance(piece, str) for piece in pieces) else pieces


class NumberedBlocks:
    """The blocks of an answer. `parts` has the open ones by their numbers.

    `reasons` are the wire's reasons for the end, in our words. `join` joins the pieces of one field of state.
    """

    def __init__(
        self,
        answer: AnswerWriter,
        reports: Reports,
        reasons: Mapping[str, FinishReason],
        join: Callable[[str, list[Any]], Any] = join_state,
    ) -> None:
        self.parts: dict[Label, OpenBlock] = {}
        self._answer = answer
        self._reports = reports
        self._reasons = reasons
        self._last: Label = None
        self._writer = BlockWriter(answer, reports, join)
        self._calls = NumberedCalls(answer, self._writer, reports, reasons)

    def label(self, number: Any) -> Label:
        """The label of a block; without a number, the label of the last started block."""
        label = as_label(number)
        return self._last if label is None else label

    def begin(self, number: Any, part: OpenBlock) -> None:
        """Starts a block; an earlier block with this number can get no more."""
        self._before_next_block()
        self._place(as_label(number), part)

    def _place(self, label: Label, part: OpenBlock) -> None:
        if label in self.parts:
            self._displace(self.parts[label], label)
        self.parts[label] = part
        self._last = label

    def begin_call(self, number: Any, id: Any, name: Any, input: str = "") -> OpenTool | None:
        """Starts a call for the client, with the arguments of its start; returns None if the start is a repetition."""
        provider_id, name = (
            "" if id is None else join_surrogates(str(id)),
            join_surrogates(name) if isinstance(name, str) else "",
        )
        self._before_next_block()
        label = as_label(number)
        known = None if label is None else self.parts.get(label)
        if isinstance(known, OpenTool) and known.is_repeated_start(provider_id, name, input):
            return None
        part = OpenTool(self._answer.call(provider_id, name), provider_id, input)
        self._place(label, part)
        self._calls.add(part)
        if self._answer.raw_reason is not None:
            part.use_start_input()
            self._calls.seal_late(part)
        return part

    def begin_vendor(self, number: Any, kind: str, body: dict[str, Any], is_state: bool, wrap: str = "") -> None:
        """Starts a block that has no event of its own; `is_state` if it must be sent back."""
        self.begin(number, OpenVendor(kind, body, self._answer.new_block() if is_state else -1, wrap))

    def add_content(self, label: Label, kind: type[OpenContent], piece: str) -> None:
        """Adds a piece of text or reasoning; the block may not have been started (QUIRKS 161)."""
        if not piece:
            return
        part = self.parts.get(label)
        if part is None:
            part = kind()
            self.begin(label, part)
        if isinstance(part, kind):
            self._writer.content(part, part.with_start("text", piece))
        elif kind is OpenText:
            self._answer.text(piece)
        else:
            self._answer.reasoning(piece)

    def add_arguments(self, label: Label, piece: str) -> None:
        """Adds a piece of a call's arguments, or of the input of a hosted tool."""
        part = self.parts.get(label)
        if isinstance(part, OpenVendor):
            self.add_state(label, "input", piece)
        elif piece:
            tool = part if isinstance(part, OpenTool) else self._calls.only_open()
            if tool is not part and self._answer.has_loss:  # the start of its call may be what was lost
                tool = None
            if tool is None or self._answer.is_sealed(tool.call):
                self._answer.is_short = True
                self._reports.unknown({"index": label, "input": piece}, "a piece of a call that is not open")
            else:
                tool.call.add(piece)
                self._calls.seal_late(tool)

    def unknown_delta(self, label: Label, delta: dict[str, Any], note: str) -> None:
        """Reports a delta of an unknown kind, which damages no call."""
        self.add_unknown(label)
        self._reports.each_field(delta, (), note)

    def misshapen_delta(self, label: Label, delta: dict[str, Any], note: str) -> None:
        """Reports a delta in which a known field has another type: it may be a piece of the call's arguments."""
        part = self.parts.get(label)
        if isinstance(part, OpenTool) and not is_empty(delta) and not self._answer.is_sealed(part.call):
            part.call.damage()
        self._reports.each_field(delta, (), note)

    def add_unknown(self, number: Any) -> None:
        """Records that something of an unknown kind came for the block of this number."""
        label = as_label(number)
        part = None if label is None else self.parts.get(label)
        if isinstance(part, OpenTool) and not self._answer.is_sealed(part.call):
            part.call.has_unknown_pieces = True

    def add_state(self, label: Label, field: str, value: Any, kind: type[OpenContent] = OpenReasoning) -> None:
        """Adds a piece of state to a block; `kind` is the type of the block if it has not been started."""
        if value is None or value == "":
            return
        part = self.parts.get(label)
        if part is None:
            part = kind()
            self.begin(label, part)
        if not part.add_state(field, value):
            self._reports.unknown({field: value}, "a piece of state beyond MAX_STATE")

    def replace_state(self, label: Label, fields: Mapping[str, Any]) -> None:
        """Sets fields of a block of the vendor's: each value replaces what came before."""
        part = self.parts.get(label)
        for field, value in fields.items():
            if not isinstance(part, OpenVendor) or not part.replace(field, value):
                self._reports.unknown({field: value}, "a piece of state beyond MAX_STATE")

    def stop(self, label: Label, sealed_by: SealedBy = "call_end") -> None:
        """Stops a block. It stays known by its number: some servers still send more of it (QUIRKS 163)."""
        part = self.parts.get(label)
        if isinstance(part, OpenVendor):
            del self.parts[label]
        if isinstance(part, OpenTool):
            self._calls.stop(part, sealed_by)
        elif part is not None:
            self._writer.finish(part)

    def finish(self, raw_reason: Any, message: Any = "") -> None:
        """Records the provider's reason for the end. It confirms the calls that are whole; others may get more."""
        is_first = self._answer.raw_reason is None
        self._answer.finish(
            join_surrogates(str(raw_reason)), join_surrogates(message) if isinstance(message, str) else ""
        )
        if self._calls.have_good_end:
            self._calls.decide(is_end=True)
        for label, part in self._open_parts() if is_first else ():
            if isinstance(part, OpenTool):
                part.use_start_input()
                if part.has_whole_arguments():
                    self.stop(label, "finish")

    def withdraw(self) -> None:
        """Withdraws everything so far: the provider started the response again (QUIRKS 123)."""
        self._answer.withdraw()
        self.parts.clear()
        self._calls.clear()

    def end(self, by_mark: bool) -> None:
        """Ends all blocks at the end of the stream; `by_mark` if its end mark came."""
        is_whole = self._answer.raw_reason is not None
        if self._is_interrupted():
            self._cut_calls()
        has_end = self._calls.have_good_end or (by_mark and not is_whole and not self._reports.errors)
        self._calls.decide(is_end=has_end)  # not those that are stopped below: a mark does not confirm these
        for label, part in self._open_parts():
            if is_whole or (by_mark and not self._reports.errors):
                self.stop(label, "finish" if is_whole else "done")
            else:
                self._writer.cut(part)
        self._calls.decide(is_end=has_end and is_whole and by_mark)
        self._calls.close()

    # The end of a block.

    def _open_parts(self) -> list[tuple[Label, OpenBlock]]:
        """The blocks that may still have something to emit: all but the calls that are over."""
        return [item for item in self.parts.items() if not isinstance(item[1], OpenTool) or not item[1].is_over]

    def _before_next_block(self) -> None:
        """Emits what was held back of earlier blocks."""
        self._calls.decide()
        last = self.parts.get(self._last)
        if isinstance(last, OpenContent):
            self._writer.flush(last)

    def _displace(self, part: OpenBlock, label: Label) -> None:
        """Ends a block that has lost its number to another: a call that has not ended cannot be completed."""
        self._writer.finish(part)
        if isinstance(part, OpenTool):
            self._calls.displace(part)
            if label is not None and not self._answer.is_sealed(part.call):
                part.call.fail("cut", "another block took the number of the call before the call ended")

    def _is_interrupted(self) -> bool:
        return self._reasons.get(self._answer.raw_reason or "") in INTERRUPTED

    def _cut_calls(self) -> None:
        """Fails the calls without whole arguments, stopped or not: the response was interrupted (QUIRKS 125)."""
        for part in self.parts.values():
            if isinstance(part, OpenTool):
                part.use_start_input()
                if not part.has_whole_arguments():
                    reason = self._answer.raw_reason
                    part.call.fail("cut", f"the response ended ({reason}) before the arguments were complete")


class NumberedCalls:
    """The calls of an answer. `reasons` are the wire's reasons for the end, in our words."""

    def __init__(
        self, answer: AnswerWriter, writer: BlockWriter, reports: Reports, reasons: Mapping[str, FinishReason]
    ) -> None:
        self._answer = answer
        self._writer = writer
        self._reports = reports
        self._reasons = reasons
        self._open: dict[OpenTool, None] = {}  # calls that may get more; some may have ended
        self._doubtful: list[tuple[OpenTool, SealedBy]] = []  # stopped calls that the end of the turn decides

    @property
    def have_good_end(self) -> bool:
        """Whether the answer has the reason of a normal end, and no error."""
        reason = self._answer.raw_reason
        return reason is not None and not self._reports.errors and not is_interruption(self._reasons, reason)

    def add(self, part: OpenTool) -> None:
        """A call has started."""
        self._open[part] = None

    def displace(self, part: OpenTool) -> None:
        """A call has lost its number to another block."""
        self._open.pop(part, None)

    def only_open(self) -> OpenTool | None:
        """The call that may get more, if there is only one."""
        open_tools: list[OpenTool] = []
        while self._open and len(open_tools) < 2:
            tool, _ = self._open.popitem()
            if not tool.call.is_ended:
                open_tools.append(tool)
        self._open |= dict.fromkeys(reversed(open_tools))
        return open_tools[0] if len(open_tools) == 1 else None

    def stop(self, part: OpenTool, sealed_by: SealedBy) -> None:
        """Stops a call: it is sealed if its arguments are whole, else it is doubtful."""
        part.use_start_input()
        self._writer.state(part)
        is_first, part.is_stopped = not part.is_stopped, True
        if part.call.is_ended:
            return
        if part.call.is_closed or (is_first and part.has_whole_arguments()):  # it is parsed once, not at each stop
            self._answer.seal(part.call, sealed_by)
        elif is_first:
            self._doubtful.append((part, sealed_by))
            if sealed_by == "call_end" and self.have_good_end:
                self.decide(is_end=True)

    def seal_late(self, part: OpenTool) -> None:
        """Seals a call when its arguments close after its own end, or after the reason for the end."""
        if part.call.is_closed and (part.is_stopped or self._answer.raw_reason is not None):
            self._writer.state(part)
            self._answer.seal(part.call, "call_end" if part.is_stopped else "finish")

    def decide(self, is_end: bool = False) -> None:
        """Seals the stopped calls; those without arguments only at the normal end of the response (QUIRKS 33)."""
        without_arguments: list[tuple[OpenTool, SealedBy]] = []
        for part, sealed_by in self._doubtful:
            if part.call.has_arguments:
                self._answer.seal(part.call, sealed_by)
            elif not is_end:
                without_arguments.append((part, sealed_by))
            elif self._answer.is_short:
                part.call.fail("cut", NO_ARGUMENTS)
            else:
                part.use_start_input(even_empty=True)
                self._answer.seal_confirmed(part.call, sealed_by)
        self._doubtful = without_arguments

    def close(self) -> None:
        """Fails the stopped calls that nothing has decided."""
        for part, _ in self._doubtful:
            part.call.fail("cut", NO_ARGUMENTS)

    def clear(self) -> None:
        """Forgets all: the provider started the response again."""
        self._open.clear()
        self._doubtful.clear()

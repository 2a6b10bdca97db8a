"""The calls among numbered blocks: which of them are open, and which a stop or the end of the turn confirms."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.events import FinishReason, SealedBy
from penstock.wires.shared.decode_response.answer_writer import NO_ARGUMENTS, AnswerWriter
from penstock.wires.shared.decode_response.block_writer import BlockWriter
from penstock.wires.shared.decode_response.open_block import OpenTool
from penstock.wires.shared.decode_response.progress import is_interruption
from penstock.wires.shared.decode_response.reports import Reports


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

"""Whether a response is over when the provider has sent the reason for its end, or an error, but no end mark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.calls.numbering import Numbering
from penstock.events import FinishReason, Progress, Reasoning, Refusal, StreamChunk, Text, ToolCallDelta, ToolCallStart
from penstock.wires.shared.decode_response.answer_writer import AnswerWriter

INTERRUPTED = ("length", "content_filter", "error")
"""Finish reasons of a response that is incomplete."""


def is_interruption(reasons: Mapping[str, FinishReason], raw_reason: str | None) -> bool:
    """Whether a provider's reason is not one of a normal end."""
    return raw_reason is not None and reasons.get(raw_reason) not in ("stop", "tool_calls")


class ResponseProgress:
    """The progress of a response towards its end.

    Some servers send the reason for the end too early (QUIRKS 61, 154). So the end is doubtful if content has followed
    the reason, if none came before it, or if the arguments of a call have not closed.
    """

    def __init__(
        self, answers: Mapping[int, AnswerWriter], blocks: Numbering, reasons: Mapping[str, FinishReason]
    ) -> None:
        self._answers = answers
        self._blocks = blocks
        self._reasons = reasons
        self._failed_at: int | None = None  # how many events of its read came before the provider's error
        self._is_contradicted = False  # content has followed

    def fail(self, position: int) -> None:
        """Notes that the provider sent an error, after this many events of the current read."""
        if self._failed_at is None:
            self._failed_at = position

    def restart(self) -> None:
        """Forgets everything: the provider started the response again."""
        self._failed_at, self._is_contradicted = None, False

    def progress(self, chunks: Sequence[StreamChunk]) -> Progress:
        """How far the response is; `chunks`: the events of the last read."""
        is_open = not self._answers
        for answer in self._answers.values():
            if answer.raw_reason is None:
                is_open = True
            else:
                self._is_contradicted |= _has_content(chunks, answer.finished_at or 0, answer.choice)
                answer.finished_at = 0  # all further reads come after it
        if self._failed_at is not None:
            self._is_contradicted |= _has_content(chunks, self._failed_at)
            self._failed_at = 0
            return "doubtful" if self._is_contradicted else "finished"
        if is_open:
            return "open"
        return "doubtful" if self._is_contradicted or self._may_continue() else "finished"

    def _may_continue(self) -> bool:
        answers = self._answers.values()
        if any(self._reasons.get(answer.raw_reason or "") in INTERRUPTED for answer in answers):
            return False
        return not self._blocks.next_block or any(map(_has_open_arguments, answers))


def _has_content(chunks: Sequence[StreamChunk], start: int, choice: int | None = None) -> bool:
    """Whether there is content among the chunks from `start` on, of this choice or of any."""
    return any(
        choice is None or chunk.choice == choice
        for chunk in chunks[start:]
        if isinstance(chunk, Text | Reasoning | Refusal | ToolCallStart | ToolCallDelta)
    )


def _has_open_arguments(answer: AnswerWriter) -> bool:
    """Whether a call has arguments that have not closed, or none although nothing has ended it: they may follow."""
    return any(
        call.kind == "function" and not call.is_ended and not call.has_closed and not answer.has_end(call)
        for call in answer.calls
    )

"""Finds calls in reasoning that nothing follows, a common reason why an agent stops.

They are noted, and do not run: the model may only have considered them.
"""

from __future__ import annotations

from collections.abc import Sequence

from penstock.declarations import ToolDeclaration
from penstock.dialects.stage import TextCalls
from penstock.events import Finish, Opaque, Reasoning, StreamChunk, Text, ToolCall, Unknown, Usage
from penstock.gateway.healing.report import HealingReport

MAX_TAIL = 16 * 1024
"""How many characters of the end of the reasoning are looked at."""


class ReasoningTail:
    """The end of the reasoning, while a response has nothing else."""

    def __init__(self, dialects: Sequence[str], tools: Sequence[ToolDeclaration], report: HealingReport) -> None:
        self._dialects = dialects
        self._tools = tools
        self._report = report
        self._pieces: list[str] = []
        self._size = 0

    def add(self, chunks: Sequence[StreamChunk]) -> bool:
        """Add the events of one network read; returns whether there is still nothing but reasoning."""
        for chunk in chunks:
            match chunk:
                case Reasoning():
                    self._pieces.append(chunk.text)
                    self._size += len(chunk.text)
                case Finish():
                    self._note_calls()
                    return False
                case Usage() | Unknown() | Opaque():
                    pass
                case _:
                    return False
        if self._size > 2 * MAX_TAIL:
            self._pieces = ["".join(self._pieces)[-MAX_TAIL:]]
            self._size = MAX_TAIL
        return True

    def _note_calls(self) -> None:
        if text := "".join(self._pieces)[-MAX_TAIL:]:
            stage = TextCalls(self._dialects, self._tools, only_declared=True)
            for event in [*stage.feed(Text(0, text)), *stage.feed(Finish("stop"))]:
                if isinstance(event, ToolCall):
                    self._report.note_reasoning(event.name)

"""Finds calls at the end of reasoning that nothing follows, a common reason why an agent stops.

The model may only have considered such a call, so that it is noted and does not run, unless `reasoning_calls` asks for
it. Then it becomes a call if it is the last thing in the reasoning, between marks, of a declared tool, and not a
quotation (QUIRKS 181).
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.declarations import ToolDeclaration
from penstock.dialects.provenance import Provenance
from penstock.dialects.rescue import LEAKS
from penstock.dialects.stage import TextCalls
from penstock.events import Finish, Opaque, Reasoning, StreamChunk, Text, ToolCall, ToolCallStart, Unknown, Usage
from penstock.healing.report import CALL_IN_REASONING, HealingReport

MAX_TAIL = 16 * 1024
"""How many characters of the end of the reasoning are looked at."""
MAX_MARKS = 1500
"""How many characters that may begin a call are looked at; of an end with more, only so many characters are read."""
_MARK_STARTS = "<{[|"
_CALL_ENDS = frozenset(">])}")
_WHOLE = ("stop", "tool_calls")
"""The finish reasons of a response that has ended as the model wanted."""


class ReasoningTail:
    """The end of the reasoning, while a response has nothing else.

    With `provenance`, calls at its end become calls; their ids begin with `id_prefix`.
    """

    def __init__(
        self,
        dialects: Sequence[str],
        tools: Sequence[ToolDeclaration],
        report: HealingReport,
        provenance: Provenance | None = None,
        id_prefix: str = "call_",
    ) -> None:
        self._dialects = dialects
        self._tools = tools
        self._report = report
        self._provenance = provenance
        self._id_prefix = id_prefix
        self._pieces: list[str] = []
        self._size = 0
        self._last_block = 0
        self.is_open = True  # there is still nothing but reasoning

    @property
    def is_long(self) -> bool:
        """Whether calls are compared with a long conversation."""
        return self._provenance is not None and self._provenance.is_long

    @property
    def is_slow(self) -> bool:
        """Whether it may take long to end: the reasoning ends like a call, and the conversation is long."""
        return bool(self._pieces) and self._pieces[-1].rstrip()[-1:] in _CALL_ENDS and self.is_long

    def feed(self, chunks: list[StreamChunk]) -> list[StreamChunk]:
        """The events of one network read, with the calls that end the reasoning."""
        for number, chunk in enumerate(chunks):
            match chunk:
                case Reasoning(choice=0):
                    self._pieces.append(chunk.text)
                    self._size += len(chunk.text)
                    self._last_block = max(self._last_block, chunk.block)
                case Finish(choice=0):
                    self.is_open = False
                    return [*chunks[:number], *self._end(chunk), *chunks[number + 1 :]]
                case Opaque(choice=0):
                    self._last_block = max(self._last_block, chunk.block)
                case Usage() | Unknown():
                    pass
                case _:
                    self.is_open = False
                    return chunks
        if self._size > 2 * MAX_TAIL:
            self._pieces = ["".join(self._pieces)[-MAX_TAIL:]]
            self._size = MAX_TAIL
        return chunks

    def _end(self, finish: Finish) -> list[StreamChunk]:
        """The calls that end the reasoning, and the end of the response."""
        events = self._read()
        calls = self._last_calls(events) if finish.reason in _WHOLE else []
        if not calls:
            for event in events:
                if isinstance(event, ToolCall):
                    self._report.note_reasoning(event.name)
            return [finish]
        started: list[StreamChunk] = []
        for block, call in enumerate(calls, self._last_block + 1):
            started += [
                ToolCallStart(block, call.id, call.name),
                replace(call, block=block, quirks=(CALL_IN_REASONING,)),
            ]
        return [*started, replace(finish, reason="tool_calls")]

    def _read(self) -> list[StreamChunk]:
        """The end of the reasoning, read as text."""
        text = "".join(self._pieces)[-MAX_TAIL:]
        if sum(map(text.count, _MARK_STARTS)) > MAX_MARKS:  # each takes time, and nothing else can happen meanwhile
            text = text[-MAX_MARKS:]
        marked = tuple(name for name in self._dialects if name in LEAKS)
        dialects = self._dialects if self._provenance is None else marked
        if not text or not dialects:
            return []
        stage = TextCalls(
            dialects, self._tools, only_declared=True, id_prefix=self._id_prefix, provenance=self._provenance
        )
        return [*stage.feed(Text(0, text)), *stage.feed(Finish("stop"))]

    def _last_calls(self, events: list[StreamChunk]) -> list[ToolCall]:
        """The calls after which there is no text, if calls in reasoning count."""
        calls: list[ToolCall] = []
        for event in events if self._provenance is not None else ():
            match event:
                case ToolCall():
                    calls.append(event)
                case Text() if event.text.strip():
                    calls.clear()
                case _:
                    pass
        return calls

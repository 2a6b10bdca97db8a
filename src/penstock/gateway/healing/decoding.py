"""Decodes and heals one response: bytes to events, the calls in its text, its reasoning marks, and its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.declarations import ToolDeclaration
from penstock.decoder import Decoder
from penstock.dialects.provenance import Provenance
from penstock.dialects.stage import TextCalls
from penstock.dialects.whole_calls import StaysText, WholeCalls
from penstock.events import Error, Finish, Opaque, Progress, Reasoning, StreamChunk, Text, ToolCall, Unknown, Usage
from penstock.framing import Body, Frames, FramingName
from penstock.gateway.config.settings import Healing
from penstock.gateway.estimate import tokens_of
from penstock.gateway.healing.calls import CallHealing
from penstock.gateway.healing.finish_reasons import FinishReasons
from penstock.gateway.healing.names import ToolNames
from penstock.gateway.healing.report import (
    CALL_IN_TEXT,
    DATA_KEEP_ALIVE,
    REASONING_MARKS,
    HealingReport,
)
from penstock.messages import Message
from penstock.wires import WireName, error_statuses, find_habits, find_wire
from penstock.wires.shared.decode_response.reports import KEEP_ALIVE
from penstock.wires.shared.decode_response.text_frames import ReadText, ReadTexts
from penstock.wires.shared.encode_request.foreign_blocks import content_of

T = TypeVar("T")

_RARE = {ToolCall, Unknown, Finish, Usage, Opaque, Error}
ANY_DIALECT = ("hermes",)
"""Where no tool can be called, only reasoning is looked for; a parser has at least one dialect."""


class ResponseContext(Struct, frozen=True, kw_only=True):
    """What of a request is needed to read its response.

    `fields` are those of the body that have no other place. `estimate` is the usage of a server that sends none. If no
    `calls_allowed`, the client has forbidden calls: what looks like one in the text is text.
    """

    wire: WireName
    client_wire: str
    tools: tuple[ToolDeclaration, ...]
    messages: Sequence[Message]
    fields: Mapping[str, Any]
    id_prefix: str
    healing: Healing
    report: HealingReport
    estimate: Usage | None
    calls_allowed: bool = True


class HealedDecoding:
    """The stages of one response, each for the events of one network read at a time."""

    def __init__(self, context: ResponseContext) -> None:
        self._context = context
        self._report = context.report
        self._decoder = Decoder(context.wire, context.tools, id_prefix=context.id_prefix)
        self._habits = Habits(context.wire, context.report)
        reasons = FinishReasons(context.wire, context.report, heals=context.healing.finish_reasons)
        self._calls = CallHealing(context.healing.repair, context.report, reasons, ToolNames(context.tools))
        self._texts = self._text_stage()
        self._tail = self._reasoning_tail()  # until something else comes
        self.output = Output()
        self.progress: Callable[[], Progress] = self._decoder.progress

    def feed(self, data: bytes) -> list[StreamChunk]:
        """The healed events that these bytes complete."""
        chunks = self._decoder.feed(data)
        if len(chunks) != 1 or type(chunks[0]) is not Text:
            self._habits.feed(data)
            return self._heal(self._read_text(chunks))
        self._habits.feed_text(data)  # as nearly all reads are while a model writes text
        self._tail = None
        chunks = self._read_text(chunks)
        if len(chunks) == 1 and type(text := chunks[0]) is Text:
            self.output.size += len(text.text)
            return chunks
        return self._heal(chunks)

    def text_flow(self) -> TextFlow | None:
        """How text that flows is read; None if the next bytes have to be fed."""
        read, read_several, texts = self._decoder.read_text, self._decoder.read_texts, self._texts
        if read is None or self._habits.is_keeping:
            return None
        if texts is None:
            return TextFlow(read, read_several, _take_any, _take_any, self.output)
        lane = texts.lane
        return None if lane is None else TextFlow(read, read_several, lane.take_text, lane.take_texts, self.output)

    def close(self) -> list[StreamChunk]:
        """The events that were held back."""
        chunks = self._heal(self._read_text(self._decoder.close()))
        self._habits.close()
        return chunks

    def _text_stage(self) -> WholeCalls | None:
        """The stage that reads the text, if there is anything to find in it."""
        context, healing = self._context, self._context.healing
        has_tools = any(tool.hosted is None for tool in context.tools)
        dialects = healing.dialects if has_tools and context.calls_allowed else ()
        if not dialects and not healing.reasoning:
            return None
        return WholeCalls(
            dialects or ANY_DIALECT, context.tools if dialects else (), reasoning=healing.reasoning,
            inside_reasoning=healing.inside_reasoning, id_prefix=f"{context.id_prefix}text_",
            provenance=Provenance([] if healing.quoted else context.messages, {} if healing.quoted else context.fields),
            repair=self._calls.repaired,
            stays_text=self._note_text(has_tools=has_tools),
        )  # fmt: skip

    def _note_text(self, *, has_tools: bool) -> StaysText:
        """How a call that stays text is noted."""
        context, report = self._context, self._report
        if not has_tools or (context.calls_allowed and context.healing.dialects):
            return report.note_text
        return report.note_unwanted if context.calls_allowed else report.note_forbidden

    def _reasoning_tail(self) -> ReasoningTail | None:
        """What looks for calls in reasoning, if calls in the text count."""
        context = self._context
        has_tools = context.calls_allowed and any(tool.hosted is None for tool in context.tools)
        dialects = context.healing.dialects
        return ReasoningTail(dialects, context.tools, context.report) if has_tools and dialects else None

    def _heal(self, chunks: list[StreamChunk]) -> list[StreamChunk]:
        """The events, after their text was read."""
        if not chunks:
            return chunks
        chunks = self._calls.feed(chunks)
        if self._tail is not None and not self._tail.add(chunks):
            self._tail = None
        if self._context.estimate is not None:
            self.output.add(chunks)
        return chunks if _RARE.isdisjoint(map(type, chunks)) else [*self._noted(chunks)]

    def _read_text(self, chunks: list[StreamChunk]) -> list[StreamChunk]:
        """The events, with those in the text; notes the first reasoning there, unless the server marks it itself."""
        if self._texts is None or not chunks:
            return chunks
        events = self._texts.feed(chunks)
        if not self.output.has_reasoning and Reasoning in map(type, events):
            self.output.has_reasoning = True
            if Reasoning not in map(type, chunks):
                self._report.add(REASONING_MARKS)
        return events

    def _noted(self, chunks: list[StreamChunk]) -> Iterator[StreamChunk]:
        """The events, with an estimate of the usage before the end if there is none."""
        for chunk in chunks:
            match chunk:
                case ToolCall() if chunk.origin != "native":
                    self._report.add(CALL_IN_TEXT)
                case Unknown() if chunk.note == KEEP_ALIVE:
                    self._report.add(DATA_KEEP_ALIVE)
                case Unknown():
                    self._report.note_unknown(chunk)
                case Opaque() if chunk.wire != self._context.client_wire and content_of(chunk):
                    self._report.note(f"left out of the response: {chunk.kind}, which the client has no form for")
                case Error() if self._context.client_wire != self._context.wire:
                    status = error_statuses().get(chunk.code)  # the client does not know the codes of this protocol
                    yield chunk if status is None else replace(chunk, code=str(status))
                    continue
                case Usage():
                    self.output.has_usage = True
                case Finish() if self._context.estimate is not None and not self.output.has_usage:
                    self.output.has_usage = True
                    self._report.note("the usage is an estimate: the server sent none")
                    yield replace(self._context.estimate, output_tokens=tokens_of(self.output.size))
                case _:
                    pass
            yield chunk


class TextFlow(Struct, frozen=True):
    """A text that flows through all stages as it comes, until other bytes are fed.

    If `read` returns a text for some bytes, and `take` returns a text for it, the bytes are a piece of text and nothing
    else, and the second text is to be sent. `read_several` and `take_several` are the same for several pieces. Bytes
    count as fed when the number of characters was added to `output`.
    """

    read: ReadText
    read_several: ReadTexts
    take: Callable[[str], str | None]
    take_several: Callable[[list[str]], list[str] | None]
    output: Output


def _take_any(text: T) -> T:
    return text


class Output:
    """What has come of a response so far: how many characters, and whether there was reasoning and usage."""

    __slots__ = ("has_reasoning", "has_usage", "size")

    def __init__(self) -> None:
        self.size = 0
        self.has_reasoning = False
        self.has_usage = False

    def add(self, chunks: list[StreamChunk]) -> None:
        for chunk in chunks:
            kind = type(chunk)
            if kind is Text or kind is Reasoning:
                self.size += len(chunk.text)  # type: ignore[union-attr]
            elif kind is ToolCall:
                self.size += len(chunk.name) + len(chunk.arguments_raw)  # type: ignore[union-attr]


# Finds the habits of a server: the quirks of its frames that decoding healed.
#
# Frames are examined at the end of a response, and only if it has calls, so that a stream of text costs nearly nothing.


MAX_EXAMINED = 256 * 1024
"""How many bytes of a response are looked at, from its first call on."""
_STARTS = (b"data", b"event", b":", b"{", b"[")
_CALLS, _LEGACY = b'"tool_calls"', b'"function_call"'
LONGEST_SIGN = max(len(_CALLS), len(_LEGACY)) - 1


class Habits:
    """Keeps the part of a response with calls, and reports its habits, independent of how the bytes are cut."""

    def __init__(self, wire: WireName, report: HealingReport) -> None:
        self._find = find_habits(wire)
        self._framing: FramingName = find_wire(wire).framing
        self._report = report
        self._kept: list[bytes] = []
        self._size = 0
        self._line: list[bytes] = []  # the reads since the last line break: a frame that has not ended
        self._line_size = 0
        self._last = b""  # the last read with text, or the end of other reads: a sign may be or begin in it

    @property
    def is_keeping(self) -> bool:
        """Whether a call has come, from which on everything is kept."""
        return bool(self._kept)

    def feed_text(self, data: bytes) -> None:
        """Skip a network read that contains only text, and perhaps the start of another frame."""
        if self._kept:
            self.feed(data)
        else:
            self._line, self._line_size, self._last = [data], len(data), data

    def feed(self, data: bytes) -> None:
        """Look at the bytes of a network read."""
        if self._find is None or self._size >= MAX_EXAMINED:
            return
        if self._kept:
            self._kept.append(data)
            self._size += len(data)
            return
        seen = self._last + data
        if _CALLS in seen or _LEGACY in seen:
            self._kept, self._size = [*self._line, data], self._line_size + len(data)
            return
        self._last = seen[-LONGEST_SIGN:]
        if ended := data.rfind(b"\n") + 1:
            self._line, self._line_size = [data[ended:]], len(data) - ended
        elif self._line_size < MAX_EXAMINED:
            self._line.append(data)
            self._line_size += len(data)

    def close(self) -> None:
        """Report the habits."""
        if self._find is None or not self._kept:
            return
        body, data = Body(self._framing), b"".join(self._kept)
        if not data.startswith(_STARTS):  # the first read began in the middle of a frame
            data = data.partition(b"\n")[2]
        framed = body.feed(data) + body.close()
        payloads = [payload for frames in framed if isinstance(frames, Frames) for payload in frames.data]
        for quirk, count in self._find(filter(None, map(_value, payloads))).items():
            if count:
                self._report.add(quirk, count)


def _value(payload: bytes) -> object:
    try:
        return msgspec.json.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


# Finds calls in reasoning that nothing follows, a common reason why an agent stops.
#
# They are noted, and do not run: the model may only have considered them.


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

"""Decodes and heals one response: bytes to events, the calls in its text, its reasoning marks, and its calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from penstock.declarations import ToolDeclaration
from penstock.dialects.conversation import KeptTexts
from penstock.dialects.provenance import Provenance
from penstock.dialects.whole_calls import StaysText, WholeCalls
from penstock.events import (
    Error,
    Fault,
    Finish,
    Opaque,
    Progress,
    Reasoning,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallDelta,
    Unknown,
    Usage,
)
from penstock.healing.calls import CallHealing
from penstock.healing.estimate import estimate_input, tokens_of
from penstock.healing.finish_reasons import FinishReasons
from penstock.healing.habits import Habits
from penstock.healing.ids import CallIds
from penstock.healing.in_text import InTextCalls, InTextNotes
from penstock.healing.names import ToolNames
from penstock.healing.parts import PART_CHARACTERS, EventParts
from penstock.healing.reasoning_tail import ReasoningTail
from penstock.healing.report import (
    CALL_IN_REASONING,
    CALL_IN_TEXT,
    DATA_KEEP_ALIVE,
    ESTIMATED,
    REASONING_MARKS,
    HealingReport,
)
from penstock.healing.settings import Healing
from penstock.messages import Message
from penstock.wires import WireName, error_statuses
from penstock.wires.shared.decode_response.piece_frames import ReadPiece, ReadText, ReadTexts
from penstock.wires.shared.decode_response.reports import KEEP_ALIVE
from penstock.wires.shared.encode_request.foreign_blocks import content_of

T = TypeVar("T")

_RARE = {ToolCall, Unknown, Finish, Usage, Opaque, Error}
ANY_DIALECT = ("hermes",)
"""Where no tool can be called, only reasoning is looked for; a parser has at least one dialect."""


class ResponseContext(Struct, frozen=True, kw_only=True):
    """What of a request is needed to read its response.

    `fields` are those of the body that have no other place. `estimate` is the usage of a server that sends none. If no
    `calls_allowed`, the client has forbidden calls: what looks like one in the text is text. With `in_text`, calls were
    asked for in the text. Without a `client_wire`, the events are not encoded again. `watch` gets the
    calls and the end.
    """

    wire: WireName
    client_wire: str
    tools: tuple[ToolDeclaration, ...]
    messages: Sequence[Message]
    fields: Mapping[str, Any] | KeptTexts
    id_prefix: str
    healing: Healing
    report: HealingReport
    estimate: Usage | None
    calls_allowed: bool = True
    in_text: InTextCalls | None = None
    watch: Callable[[ToolCall | Finish], None] | None = None


def response_context(
    wire: WireName,
    tools: tuple[ToolDeclaration, ...],
    messages: Sequence[Message],
    healing: Healing,
    *,
    fields: Mapping[str, Any] | None = None,
    id_prefix: str = "call_",
) -> ResponseContext:
    """The context of a response whose events are read as they are, and not encoded for another client."""
    estimate = Usage(estimate_input(messages, tools)) if healing.usage and messages else None
    return ResponseContext(
        wire=wire, client_wire="", tools=tools, messages=messages, fields=fields or {}, id_prefix=id_prefix,
        healing=healing, report=HealingReport(), estimate=estimate,
    )  # fmt: skip


class ResponseDecoder(Protocol):
    """Decodes one response: `penstock.decoder.Decoder`, or one with more stages behind it."""

    @property
    def read_text(self) -> ReadText | None: ...
    def read_texts(self, data: bytes, /) -> list[Text] | None: ...
    @property
    def read_piece(self) -> ReadPiece | None: ...
    def feed(self, data: bytes, /) -> list[StreamChunk]: ...
    def feed_any(self, item: Any, /) -> list[StreamChunk]: ...
    def close(self) -> list[StreamChunk]: ...
    def progress(self) -> Progress: ...


class HealedDecoding:
    """The stages of one response, each for the events of one network read at a time. None of them does any I/O."""

    def __init__(self, decoder: ResponseDecoder, context: ResponseContext) -> None:
        self._context = context
        self._report = context.report
        self._report.begin()
        in_text = context.in_text if context.calls_allowed and _callable(context.tools) else None
        self._in_text = in_text
        self._refused = context.healing.refused_tools(context.tools) if in_text is None else frozenset[str]()
        self._in_text_notes = None if in_text is None else InTextNotes(in_text, context.tools, context.report)
        self._decoder = decoder
        self._habits = Habits(context.wire, context.report)
        reasons = FinishReasons(context.wire, context.report, heals=context.healing.finish_reasons)
        ids = CallIds(context.messages, context.report)
        self._calls = CallHealing(context.healing.repair, context.report, reasons, ToolNames(context.tools), ids)
        self._texts = self._text_stage()
        self._tail = self._reasoning_tail()  # until something else comes
        self._deferred = None if self._texts is None else self._texts.deferred
        self.parts = EventParts() if self._deferred is None else None  # else a thread reads what takes long
        is_long = self._deferred is not None or (self._tail is not None and self._tail.is_long)
        self.is_slow = self._takes_long if is_long else None
        self.output = Output()
        self.progress: Callable[[], Progress] = self._decoder.progress

    def feed(self, data: bytes) -> list[StreamChunk]:
        """The healed events that these bytes complete."""
        if self.parts is not None and self.parts.has_more:
            return self._heal(self._read_text(self.parts.next()))
        chunks = self._decoder.feed(data)
        if self._deferred is not None:
            chunks = self._deferred.take(chunks)
        if len(chunks) != 1 or type(chunks[0]) is not Text or len(chunks[0].text) > PART_CHARACTERS:
            self._habits.feed(data)
            return self._heal(self._read_text(chunks if self.parts is None else self.parts.first(chunks)))
        self._habits.feed_text(data)  # as nearly all reads are while a model writes text
        self._tail = None
        chunks = self._read_text(chunks)
        if len(chunks) == 1 and type(text := chunks[0]) is Text:
            self.output.size += len(text.text)
            return chunks
        return self._heal(chunks)

    def feed_any(self, item: Any) -> list[StreamChunk]:
        """The healed events of bytes, text or a parsed frame; the habits of a server show only in its bytes."""
        return self.feed(item) if isinstance(item, bytes) else self._heal(self._read_text(self._decoder.feed_any(item)))

    def text_flow(self) -> TextFlow | None:
        """How text that flows is read; None if the next bytes have to be fed."""
        read, read_several, texts = self._decoder.read_text, self._decoder.read_texts, self._texts
        if read is None or self._habits.is_keeping or (self._deferred is not None and self._deferred.is_waiting):
            return None
        if self._in_text_notes is not None:  # which reads all text
            return None
        if texts is None:
            return TextFlow(read, read_several, _take_any, _take_any, self.output)
        lane = texts.lane
        return None if lane is None else TextFlow(read, read_several, lane.take_text, lane.take_texts, self.output)

    def call_flow(self, last: ToolCallDelta) -> CallFlow | None:
        """How the pieces after this one, the only event of the last bytes, are read; None if bytes have to be fed."""
        read, take = self._decoder.read_piece, self._calls.taking(last.block)
        return None if read is None or take is None else CallFlow(read, take, self._habits.skip, last.block)

    def _takes_long(self, _data: bytes) -> bool:
        """Whether it takes long to read what is fed next: calls in the text are compared with the conversation."""
        is_due = self._deferred is not None and self._deferred.is_due()
        return is_due or (self._tail is not None and self._tail.is_slow)

    def close(self) -> list[StreamChunk]:
        """The events that were held back."""
        waiting = [] if self._deferred is None else self._deferred.close()
        chunks = self._heal(self._read_text(waiting + self._decoder.close()))
        self._habits.close()
        return chunks

    def _text_stage(self) -> WholeCalls | None:
        """The stage that reads the text, if there is anything to find in it."""
        context, healing = self._context, self._context.healing
        has_tools, in_text = _callable(context.tools), self._in_text
        dialects = self._dialects if has_tools and context.calls_allowed else ()
        if not dialects and not healing.reasoning:
            return None
        is_own = in_text is not None and in_text.is_own
        return WholeCalls(
            dialects or ANY_DIALECT, context.tools if dialects else (), reasoning=healing.reasoning,
            inside_reasoning=healing.inside_reasoning,
            id_prefix=f"{context.id_prefix}{'text' if in_text is None else 'call'}_",
            provenance=self._provenance(),
            repair=self._calls.repaired,
            stays_text=self._note_text(has_tools=has_tools),
            unsettled=None if is_own else self._report.note_unsettled,
            only_declared=not is_own,
        )  # fmt: skip

    @property
    def _dialects(self) -> tuple[str, ...]:
        """The dialects in which calls count: those that were asked for, or those that are rescued."""
        return self._context.healing.dialects if self._in_text is None else self._in_text.dialects

    def _note_text(self, *, has_tools: bool) -> StaysText:
        """How a call that stays text is noted."""
        context, report = self._context, self._report
        if not has_tools or (context.calls_allowed and self._dialects):
            return self._note_limited if self._refused else report.note_text
        return report.note_unwanted if context.calls_allowed else report.note_forbidden

    def _note_limited(self, name: str, fault: Fault | None) -> None:
        if fault == "quoted" and name in self._refused:
            self._report.note_limited(name)
        else:
            self._report.note_text(name, fault)

    def _reasoning_tail(self) -> ReasoningTail | None:
        """What looks for calls in reasoning, if calls in the text count."""
        context, healing = self._context, self._context.healing
        has_tools = context.calls_allowed and _callable(context.tools)
        if not has_tools or not self._dialects:
            return None
        provenance = self._provenance() if healing.reasoning_calls else None
        return ReasoningTail(
            self._dialects, context.tools, context.report, provenance, f"{context.id_prefix}reasoning_"
        )

    def _provenance(self) -> Provenance:
        """What calls in the text are compared with."""
        context = self._context
        is_compared = not context.healing.quoted
        return Provenance(
            context.messages if is_compared else [], context.fields if is_compared else {}, refused=self._refused
        )

    def _heal(self, chunks: list[StreamChunk]) -> list[StreamChunk]:
        """The events, after their text was read."""
        if not chunks:
            return chunks
        if self._tail is not None:
            chunks = self._tail.feed(chunks)
            self._tail = self._tail if self._tail.is_open else None
        chunks = self._calls.feed(chunks)
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
        return events if self._in_text_notes is None else self._in_text_notes.feed(events)

    def _is_rescued(self, call: ToolCall) -> bool:
        """Whether a call was found where none was asked for."""
        return call.origin != "native" and (self._in_text is None or CALL_IN_REASONING in call.quirks)

    def _noted(self, chunks: list[StreamChunk]) -> Iterator[StreamChunk]:
        """The events, with an estimate of the usage before the end if there is none."""
        watch = self._context.watch
        for chunk in chunks:
            if watch is not None and isinstance(chunk, ToolCall | Finish):
                watch(chunk)
            match chunk:
                case ToolCall() if self._is_rescued(chunk):
                    self._report.add(CALL_IN_REASONING if CALL_IN_REASONING in chunk.quirks else CALL_IN_TEXT)
                    self._report.rescue(chunk)
                case Unknown() if chunk.note == KEEP_ALIVE:
                    self._report.add(DATA_KEEP_ALIVE)
                case Unknown() if self._context.client_wire:
                    self._report.note_unknown(chunk)
                case Opaque() if self._context.client_wire not in ("", chunk.wire) and content_of(chunk):
                    self._report.note(f"left out of the response: {chunk.kind}, which the client has no form for")
                case Error() if self._context.client_wire not in ("", self._context.wire):
                    status = error_statuses().get(chunk.code)  # the client does not know the codes of this protocol
                    yield chunk if status is None else replace(chunk, code=str(status))
                    continue
                case Usage():
                    self.output.has_usage = True
                case Finish() if self._context.estimate is not None and not self.output.has_usage:
                    self.output.has_usage = True
                    self._report.note(ESTIMATED)
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


class CallFlow(Struct, frozen=True):
    """The arguments of a call that flow through all stages, until other bytes are fed.

    If `read` returns a piece for some bytes, they are that piece and nothing else, and they count as fed. `take` then
    returns how much of the arguments can be sent, of the call with this `block`. `skip` gets the number of the bytes.
    """

    read: ReadPiece
    take: Callable[[str], str]
    skip: Callable[[int], None]
    block: int


def _callable(tools: Sequence[ToolDeclaration]) -> bool:
    """Whether there is a tool that a call in the text can name."""
    return any(tool.hosted is None for tool in tools)


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

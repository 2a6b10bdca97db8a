"""`WholeCalls`: finds calls in a text for readers that must not see half a call: other programs, in any language.

A call is emitted when it is whole. A call that must not run is turned back into its original text, unless it can be
repaired: readers of a response cannot tell the model's own call from a call that somebody else wrote into the text.

`WholeCalls` has a fast lane for pieces in which no mark can begin, while nothing is held back: they are emitted at
once, and the parser gets them later, with the next piece that is not of this kind. A piece that ends with the first
letters of a mark is emitted up to there, as the parser does. The reference is the slow lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from msgspec.structs import replace

from penstock.dialects.provenance import Provenance
from penstock.dialects.reading.marks import is_half_word
from penstock.dialects.reading.reader import Reader
from penstock.dialects.sources.deferred_text import DeferredText
from penstock.dialects.stage import TextCalls
from penstock.dialects.unmarked import Unsettled
from penstock.events import (
    Fault,
    Finish,
    Reasoning,
    Refusal,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
)

MAX_UNREAD = 1024
"""How many characters are emitted before the parser gets them."""

Repair = Callable[[ToolCallInvalid], ToolCall | None]
"""Returns the call that an invalid one was meant to be, or None."""
StaysText = Callable[[str, Fault | None], None]
"""Is called for a call that stays text: the name of its tool, and what is wrong; None if nobody declared the tool."""


class WholeCalls:
    """Finds whole calls in the text of an event stream, for the events of one read at a time.

    Only calls of declared tools are found, unless `only_declared` is False; `unsettled` is that of `TextCalls`.
    """

    def __init__(
        self,
        dialects: Iterable[str],
        tools: Iterable[Any],
        *,
        reasoning: bool,
        inside_reasoning: bool,
        id_prefix: str,
        provenance: Provenance,
        repair: Repair,
        stays_text: StaysText,
        unsettled: Unsettled | None,
        only_declared: bool = True,
    ) -> None:
        self._calls = TextCalls(
            dialects, tools, only_declared=only_declared, reasoning=reasoning, inside_reasoning=inside_reasoning,
            id_prefix=id_prefix, provenance=provenance, restores=self._restores,
            undeclared=lambda name: stays_text(name, None), unsettled=unsettled,
        )  # fmt: skip
        self.deferred = DeferredText.of(self._calls, provenance)
        self._repair = repair
        self._stays_text = stays_text
        self._repaired: dict[str, ToolCall] = {}  # by the ids of the calls
        self._lane: Lane | None = None

    def feed(self, chunks: Iterable[StreamChunk]) -> list[StreamChunk]:
        """The events, with the calls that were found in the text."""
        events: list[StreamChunk] = []
        for chunk in chunks:
            lane = self._lane
            if type(chunk) is not Text or lane is None or lane.is_left or (text := lane.take(chunk)) is None:
                events += self._read(chunk)
            elif text:
                events.append(lane.kind(lane.block, text))
        return events

    @property
    def lane(self) -> Lane | None:
        """The fast lane, if text is passed on as it is at present; it can be used until the next event is fed."""
        lane = self._lane
        return lane if lane is not None and lane.kind is Text and lane.block == lane.source else None

    def close(self) -> list[StreamChunk]:
        self._leave_lane()
        return self._whole(self._calls.close())

    def _read(self, chunk: StreamChunk) -> list[StreamChunk]:
        """Reads an event in the slow lane."""
        lane = self._lane
        if lane is not None and isinstance(chunk, Text) and chunk.block == lane.source and not chunk.choice:
            self._lane = None
            events = lane.without_emitted(self._calls.feed(Text(chunk.block, lane.unread + chunk.text)))
        else:
            self._leave_lane()
            events = self._calls.feed(chunk)
        if isinstance(chunk, Text):
            self._lane = self._new_lane(chunk, events)
        if isinstance(chunk, Text | Finish | Reasoning | Refusal):
            return self._whole(events)
        return [*self._whole(events[:-1]), *events[-1:]]  # the last is a call of its own

    def _new_lane(self, chunk: Text, events: list[StreamChunk]) -> Lane | None:
        """The fast lane after an event, if its text was emitted up to its end."""
        last = events[-1] if events else None
        reader = self._calls.reader() if not chunk.choice else None
        if reader is None or not isinstance(last, Text | Reasoning) or not chunk.text.endswith(last.text):
            return None
        if not reader.flows:
            return None
        return Lane(chunk.block, type(last), last.block, reader)

    def _leave_lane(self) -> None:
        """Gives the parser what it has not read yet."""
        lane, self._lane = self._lane, None
        if lane is not None and lane.unread:
            self._calls.feed(Text(lane.source, lane.unread))  # which emits the same text

    def _restores(self, event: ToolCallInvalid) -> bool:
        call = self._repair(event)
        if call is None:
            self._stays_text(event.name, event.why)
        else:
            self._repaired[event.id] = call
        return call is None

    def _whole(self, events: list[StreamChunk]) -> list[StreamChunk]:
        """The events of a text, without the pieces of its calls."""
        kept: list[StreamChunk] = []
        for event in events:
            match event:
                case ToolCallStart() | ToolCallDelta() | ToolCallClosed():
                    pass
                case ToolCall() | ToolCallInvalid():
                    call = self._repaired.pop(event.id, event)
                    kept += [ToolCallStart(event.block, event.id, event.name, event.choice), call]
                case _:
                    kept.append(event)
        return kept


class Lane:
    """The fast lane: text that is emitted as it comes, and that the parser has not read yet.

    It `is_left` after a piece that it did not take: the parser has to read that, and the lane is not asked again.
    """

    __slots__ = ("_find_start", "_held", "block", "is_left", "kind", "source", "unread")

    def __init__(self, source: int, kind: type[Text | Reasoning], block: int, reader: Reader) -> None:
        self.source = source  # the block of the text
        self.kind = kind  # what it becomes
        self.block = block  # and its block
        self.is_left = False
        self.unread = ""  # one text: a list of its pieces takes several times the memory
        self._held = ""  # the end of it that is not emitted: it may begin a mark
        self._find_start = reader.find_start

    def without_emitted(self, events: list[StreamChunk]) -> list[StreamChunk]:
        """The events of the parser for what it has not read and more, without the text that was emitted."""
        size, rest = len(self.unread) - len(self._held), iter(events)
        while size:
            event: Any = next(rest)
            if len(event.text) > size:
                return [replace(event, text=event.text[size:]), *rest]
            size -= len(event.text)
        return [*rest]

    def take(self, chunk: Text) -> str | None:
        """The text that can be emitted now, with what was held back; None if the parser has to read the piece.

        A piece that is taken is kept for the parser.
        """
        return self.take_text(chunk.text) if chunk.block == self.source and not chunk.choice else None

    def take_text(self, piece: str) -> str | None:
        """The same for a piece that is known to be one of this text."""
        text = self._held + piece if self._held else piece
        start = self._find_start(text)
        if len(self.unread) > MAX_UNREAD or (start is not None and not is_half_word(start)):
            self.is_left = True
            return None
        self.unread += piece
        if start is None:
            self._held = ""
            return text
        self._held = start[0]
        return text[: start.start()]

    def take_texts(self, pieces: list[str]) -> list[str] | None:
        """The same for several pieces; either all of them are taken, or none."""
        state = self.unread, self._held
        texts: list[str] = []
        for piece in pieces:
            if (text := self.take_text(piece)) is None:
                self.unread, self._held = state
                self.is_left = False  # the first pieces may be taken one by one
                return None
            texts.append(text)
        return texts

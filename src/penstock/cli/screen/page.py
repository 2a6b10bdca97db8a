"""What is on the screen of a run: its words and its calls, in the order in which the model said them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, assert_never

from penstock.cli.screen.call_card import Card, Phase, Progress, Span, spin
from penstock.cli.screen.flowing_text import Kind, Words
from penstock.cli.screen.rows import Row
from penstock.cli.screen.terminal import one_line
from penstock.events import (
    Error,
    Finish,
    Opaque,
    Reasoning,
    Refusal,
    Retry,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    Unknown,
    Usage,
)
from penstock.run.events import (
    ApprovalRequest,
    Done,
    StepEnd,
    StepStart,
    StreamEvent,
    ToolEnd,
    ToolEnding,
    ToolProgress,
    ToolStart,
)

ENDINGS: dict[ToolEnding, Phase] = {
    "done": "done", "failed": "failed", "declined": "failed", "cancelled": "void", "discarded": "void",
}  # fmt: skip

Block = Words | Card


class Page:
    """What is on the screen: the blocks that are not settled, in order."""

    def __init__(self, spans: Mapping[str, Span]) -> None:
        self._spans = spans
        self._blocks: list[Block] = []
        self._last: Block | None = None  # the last one of which something stands
        self._cards: dict[int, Card] = {}  # of this answer, by block
        self._running: dict[str, Card] = {}  # by the key of the execution
        self._asked: float | None = None  # since when nothing came of an answer

    def rows(self, width: int, now: float) -> tuple[list[Row], list[Row]]:
        """The rows that stand from now on, and those that move."""
        for card in self._running.values():
            if span := self._spans.get(card.progress.call_id):
                card.progress.seconds = span.seconds
        standing = self.take(width, now)
        moving: list[Row] = []
        above = self._last
        for block in self._blocks:
            rows = block.rows(width) if isinstance(block, Words) else block.rows(width, now)
            if rows:
                moving += [*_gap(above, block), *rows]
                above = block
        if self._asked is not None:
            waited = f"{spin(now)} {now - self._asked:.1f} s"
            moving += [*([()] if above else []), ((waited, "busy"), ("  the model is asked", "aside"))]
        return standing, moving

    def settle(self, why: str) -> None:
        """Nothing will come any more."""
        self._asked = None
        for block in self._blocks:
            if isinstance(block, Words):
                block.is_settled = True
            elif block.progress.phase == "asking":
                block.end("left", block.progress.told)
            elif not block.is_settled:
                block.end("void", why)

    def add(self, event: StreamEvent, now: float) -> None:
        """Take an event in."""
        self._asked = None
        match event:
            case StepStart():
                self._asked = now
                self._close_words()
                self._cards = {}
            case ToolStart():
                self._started(event, now)
            case ToolProgress():
                if event.key in self._running:
                    self._running[event.key].progress.report = event.data
            case ToolEnd():
                self._ended(event, now)
            case ApprovalRequest():
                card = self._card_of(event.call_id, event.name, event.arguments)
                wants = "waits for you" if event.kind == "approval" else "waits for its result from elsewhere"
                card.progress = Progress("asking", told=wants)
            case Done():
                self._done(event)
            case StepEnd():
                self._close_words()
            case _:
                self._chunk(event)

    def _chunk(self, event: StreamChunk) -> None:
        match event:
            case Text() | Reasoning() | Refusal():
                self._words(event.type, event.block).write(event.text)
            case ToolCallStart():
                self._new_card(event.block, event.id, event.name)
            case ToolCallDelta():
                self._card(event.block).write(event.piece)
            case ToolCallClosed() | ToolCall():
                self._whole(event)
            case ToolCallInvalid():
                card = self._card(event.block, event.id, event.name)
                card.end("failed", f"{event.why.replace('_', ' ')}: {one_line(event.message)}")
            case Error():
                self._note(f"✗ {one_line(f'{event.code} {event.message}'.strip(), 400)}", "bad")
            case Retry():
                self._note(f"↻ begun anew ({one_line(event.reason)}): what the model said above is void")
                self._cards = {}
            case Unknown() | Opaque() | Usage() | Finish():
                pass  # they say nothing to a person, or `Done` says it
            case _:
                assert_never(event)

    def _words(self, kind: Kind, number: int) -> Words:
        last = self._blocks[-1] if self._blocks else None
        if isinstance(last, Words) and (last.kind, last.block) == (kind, number) and not last.is_settled:
            return last
        self._close_words()
        begun = Words(kind, number)
        self._blocks.append(begun)
        return begun

    def _close_words(self) -> None:
        for block in self._blocks:
            if isinstance(block, Words):
                block.is_settled = True

    def _note(self, text: str, style: str = "odd") -> None:
        self._close_words()
        self._blocks.append(Words("note", style=style, rest=text, is_settled=True))

    def _new_card(self, block: int, id: str, name: str) -> Card:
        self._close_words()
        card = self._cards[block] = Card(id, name)
        self._blocks.append(card)
        return card

    def _card(self, block: int, id: str = "", name: str = "") -> Card:
        """The card of this block, also if the call was never announced."""
        return self._cards.get(block) or self._new_card(block, id, name)

    def _card_of(self, call_id: str, name: str, arguments: Mapping[str, Any] | None = None) -> Card:
        """The card of this call, also if nothing of it was shown, as in a run that was resumed."""
        found = next((card for card in reversed(self._cards.values()) if card.id == call_id), None)
        if found is None:
            found = self._new_card(-1 - len(self._cards), call_id, name)
            if arguments is not None:
                found.state(arguments)
        return found

    def _whole(self, event: ToolCall | ToolCallClosed) -> None:
        card = self._card(event.block, event.id, event.name)
        card.id, card.name = event.id, event.name
        card.state(event.arguments)
        if card.progress.phase == "writing":
            card.progress.phase = "held"

    def _started(self, event: ToolStart, now: float) -> None:
        card = self._card_of(event.call_id, event.name, event.arguments)
        card.progress = Progress("running", event.call_id, now, event.is_early)
        self._running[event.key] = card

    def _ended(self, event: ToolEnd, now: float) -> None:
        started = self._running.pop(event.key, None)
        card = started or self._card_of(event.result.call_id, event.result.name)
        span = self._spans.get(card.progress.call_id) if started else None
        took = span.seconds if span else now - card.progress.began if started else None
        if not card.is_settled:
            card.end(ENDINGS[event.ending], event.result.text, took)

    def _done(self, event: Done) -> None:
        self._close_words()
        if event.reason != "answered":
            why = f": {one_line(event.why)}" if event.why else ""
            self._note(f"■ {event.reason}{why}", "bad" if event.reason == "error" else "odd")

    def take(self, width: int, now: float) -> list[Row]:
        """The rows that stand from now on."""
        standing: list[Row] = []
        while self._blocks:
            block = self._blocks[0]
            if isinstance(block, Words):
                has_begun = block.has_stood
                rows = block.take(width)
            else:
                has_begun = False
                rows = block.rows(width, now) if block.is_settled else []
            if rows:
                standing += [*([] if has_begun else _gap(self._last, block)), *rows]
                self._last = block
            if not block.is_settled:
                break
            self._blocks.pop(0)
        return standing


def _gap(above: Block | None, below: Block) -> list[Row]:
    """The blank row between two blocks; calls stand close together, and so does text that goes on."""
    is_close = above is None or above is below or (isinstance(above, Card) and isinstance(below, Card))
    return [] if is_close else [()]

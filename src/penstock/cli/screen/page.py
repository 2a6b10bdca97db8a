"""A page: the blocks of text, calls and notes that the events of a response or a run have produced."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from penstock.cli.screen.call_card import CallCard, spin
from penstock.cli.screen.rows import Row, Styled, Width
from penstock.cli.screen.text_block import Kind, Note, TextBlock
from penstock.events import (
    ArgumentDelta,
    Error,
    Finish,
    Opaque,
    OutputDelta,
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
from penstock.inspector.excerpts import excerpt

AnyEvent = TypeVar("AnyEvent")


class Page(ABC, Generic[AnyEvent]):
    """Turns events into `blocks`."""

    def __init__(self, *, is_raw: bool) -> None:
        self._is_raw = is_raw
        self.blocks = Blocks()
        self._cards: dict[int, CallCard] = {}  # calls of the current response, by block number
        self._waiting_since: float | None = None  # when the model was asked, until something arrives

    @abstractmethod
    def add(self, event: AnyEvent, now: float) -> None:
        """Adds an event."""

    def close(self) -> None:
        """Adds closing blocks after the last event."""

    @abstractmethod
    def _add_detail(self, event: ToolCallClosed | ToolCall | Unknown | Opaque | Usage | Finish) -> None:
        """Adds an event that a response and a run show differently."""

    def _add_chunk(self, event: StreamChunk) -> None:
        match event:
            case Text() | Reasoning() | Refusal():
                self.blocks.text(event.type, event.block).write(event.text)
            case ToolCallStart():
                self._new_card(event.block, event.id, event.name)
            case ToolCallDelta():
                self._card(event.block).write(event.piece)
            case ToolCallInvalid():
                self._invalid(event)
            case Error():
                self._error(event)
            case Retry():
                self._retry(event)
            case ArgumentDelta() | OutputDelta():
                pass  # derived from what is shown
            case _:
                self._add_detail(event)

    def _error(self, event: Error) -> None:
        code = f" {excerpt(event.code, 60)}" if event.code else ""
        retryable = "  can be retried" if event.retryable else ""
        self._note("error", "✗ ", (f"error{code}: {excerpt(event.message, 400)}", "bad"), (retryable, "aside"))
        if self._is_raw and event.raw is not None:
            self._note("error", "  ", (excerpt(event.raw), "aside"))

    def _invalid(self, event: ToolCallInvalid) -> None:
        card = self._card(event.block, event.id, event.name)
        if card.is_blank and event.arguments_raw:
            card.write(event.arguments_raw)
        repaired = "" if event.repaired is None else f"\nprobably meant: {excerpt(event.repaired, 400)}"
        card.end("failed", f"{event.why.replace('_', ' ')}: {excerpt(event.message)}{repaired}")

    def _retry(self, event: Retry) -> None:
        for card in self._cards.values():
            if card.progress.phase in ("writing", "held"):
                card.end("void", "withdrawn")
        self._cards = {}
        self._note("note", "↻ ", (f"retry ({excerpt(event.reason)}): ignore the response above", "odd"))

    def _note(self, group: str, mark: str, *texts: Styled) -> None:
        self.blocks.append(Note(group, mark, texts))

    def _new_card(self, number: int, id: str, name: str) -> CallCard:
        card = self._cards[number] = CallCard(id, name, is_raw=self._is_raw)
        self.blocks.append(card)
        return card

    def _card(self, number: int, id: str = "", name: str = "") -> CallCard:
        """The card of this call; a new one if the call had no start event."""
        return self._cards.get(number) or self._new_card(number, id, name)

    def settle(self, reason: str) -> None:
        """Settles everything: no event will follow."""
        self._waiting_since = None
        self.blocks.settle_text()
        for card in self.blocks.open_cards:
            waits_for = card.progress.message if card.progress.phase in ("asking", "held") else ""
            card.end("left" if waits_for else "void", waits_for or reason)

    def interrupt(self) -> None:
        """Settles everything after Ctrl-C, with a mark in an open call or at the end."""
        has_open_call = bool(self.blocks.open_cards)
        self.settle("interrupted")
        if not has_open_call:
            self._note("finish", "■ ", ("interrupted", "odd"))

    def moving(self, width: Width, now: float) -> list[Row]:
        """The rows that have not been taken."""
        rows = self.blocks.moving(width, now)
        if self._waiting_since is not None:
            waited = f"{spin(now)} {now - self._waiting_since:.1f} s"
            has_above = bool(rows) or self.blocks.last is not None
            rows += [*([()] if has_above else []), ((waited, "busy"), ("  waiting for the model", "aside"))]
        return rows


# The blocks of a page: text, calls and notes, in the order in which they began, and the rows that are taken of them.
#
# A block that is settled does not change any more. Rows are taken in order, as soon as all rows before them are taken,
# and the rest can be drawn again and again.


Block = TextBlock | CallCard | Note


class Blocks:
    """The blocks of which rows are left. `last` is the one of which rows were taken last."""

    def __init__(self) -> None:
        self.last: Block | None = None
        self._blocks: list[Block] = []

    @property
    def open_cards(self) -> list[CallCard]:
        """The calls that are not settled."""
        return [block for block in self._blocks if isinstance(block, CallCard) and not block.is_settled]

    def text(self, kind: Kind, number: int) -> TextBlock:
        """The block for a piece of text: the last one if it is of this kind and number, else a new one."""
        last = self._blocks[-1] if self._blocks else None
        if isinstance(last, TextBlock) and (last.kind, last.number) == (kind, number) and not last.is_settled:
            return last
        block = TextBlock(kind, number, rest="refusal: " if kind == "refusal" else "")
        self.append(block)
        return block

    def append(self, block: Block) -> None:
        """Adds a block; the text before it is settled."""
        self.settle_text()
        self._blocks.append(block)

    def settle_text(self) -> None:
        """Settles the text: more text is another block."""
        for block in self._blocks:
            if isinstance(block, TextBlock):
                block.is_settled = True

    def take(self, width: Width, now: float) -> list[Row]:
        """Takes the rows that will not change any more."""
        taken: list[Row] = []
        while self._blocks:
            block = self._blocks[0]
            has_begun = isinstance(block, TextBlock) and block.has_begun
            rows = _taken(block, width, now)
            if rows:
                taken += [*([] if has_begun else _gap(self.last, block)), *rows]
                self.last = block
            if not _is_settled(block):
                break
            self._blocks.pop(0)
        return taken

    def take_line_start(self) -> tuple[list[Row], Row]:
        """Takes the start of a line that is not complete: the blank row before it, if any, and the start."""
        block = self._blocks[0] if self._blocks else None
        if not isinstance(block, TextBlock):
            return [], ()
        gap = [] if block.has_begun else _gap(self.last, block)
        start = block.take_line_start()
        if not start:
            return [], ()
        self.last = block
        return gap, start

    def moving(self, width: Width, now: float) -> list[Row]:
        """The rows that have not been taken."""
        rows: list[Row] = []
        above = self.last
        for block in self._blocks:
            if drawn := block.rows(width, now) if isinstance(block, CallCard) else block.rows(width):
                rows += [*_gap(above, block), *drawn]
                above = block
        return rows


def _is_settled(block: Block) -> bool:
    return isinstance(block, Note) or block.is_settled


def _taken(block: Block, width: Width, now: float) -> list[Row]:
    match block:
        case TextBlock():
            return block.take(width)
        case CallCard():
            return block.rows(width, now) if block.is_settled else []
        case Note():
            return block.rows(width)


def _gap(above: Block | None, below: Block) -> list[Row]:
    """The blank row between two blocks; none between calls, or between notes of one group."""
    match above, below:
        case (None, _) | (CallCard(), CallCard()):
            return []
        case Note(), Note() if above.group == below.group:
            return []
        case _:
            return [] if above is below else [()]

"""The blocks of a page: text, calls and notes, in the order in which they began, and the rows that are taken of them.

A block that is settled does not change any more. Rows are taken in order, as soon as all rows before them are taken,
and the rest can be drawn again and again.
"""

from __future__ import annotations

from penstock.cli.screen.call_card import CallCard
from penstock.cli.screen.rows import Row, Width
from penstock.cli.screen.text_block import Kind, Note, TextBlock

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

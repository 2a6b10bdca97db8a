"""Blocks of text on a page: text that is still growing, and notes."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from penstock.cli.screen.rows import Row, Styled, Width, hang, plain, wrap
from penstock.jsontext.shown_text import settled

Kind = Literal["text", "reasoning", "refusal"]

GUTTERS: dict[Kind, str] = {"text": "", "reasoning": "┊ ", "refusal": "▌ "}
TEXT_STYLES: dict[Kind, str] = {"text": "", "reasoning": "reasoning", "refusal": "bad"}


class TextBlock(Struct):
    """Text of the model. `rest` is the part that has not been taken yet.

    Rows that are taken do not change any more. `is_mid_line` says that the start of the current line was taken too.
    """

    kind: Kind
    number: int = 0
    rest: str = ""
    is_settled: bool = False
    has_begun: bool = False
    is_mid_line: bool = False

    def write(self, text: str) -> None:
        """Appends text; newlines at the start of the block are dropped."""
        self.rest += text if self.rest or self.has_begun else text.lstrip("\n")

    def rows(self, width: Width) -> list[Row]:
        """The rows that have not been taken."""
        return [self._row(line) for line in self._lines(width)]

    def take(self, width: Width) -> list[Row]:
        """Takes the rows that will not change any more."""
        lines = self._lines(width)
        count = len(lines)
        if not self.is_settled and lines:
            count -= 1
            while count and not lines[-1].strip() and not lines[count - 1].strip():
                count -= 1  # blank lines at the end are dropped if nothing follows
        self.rest = "" if self.is_settled else "\n".join(lines[count:])
        rows = [self._row(line) for line in lines[:count]]
        if rows and self.is_mid_line:
            rows[0] = rows[0][1:]
            self.is_mid_line = False
        self.has_begun = self.has_begun or bool(rows)
        return rows

    def take_line_start(self) -> Row:
        """Takes the start of the last line, if lines are not broken; call `take` first."""
        start = settled(self.rest).rstrip()  # spaces may turn out to be the end of the block
        if not start or "\n" in self.rest:
            return ()
        row = self._row(start)[1 if self.is_mid_line else 0 :]
        self.rest, self.has_begun, self.is_mid_line = self.rest[len(start) :], True, True
        return row

    def _lines(self, width: Width) -> list[str]:
        text = self.rest.rstrip() if self.is_settled else self.rest
        if not text and not (self.is_mid_line and self.is_settled):
            return []
        inner = None if width is None else width - len(GUTTERS[self.kind])
        return [plain(row) for row in wrap([(text, "")], inner)]

    def _row(self, line: str) -> Row:
        style = TEXT_STYLES[self.kind]
        return ((GUTTERS[self.kind], style), (line, style))


class Note(Struct, frozen=True):
    """A remark about the response or the run. Notes of one group have no blank line between them."""

    group: str
    mark: str
    texts: tuple[Styled, ...]

    def rows(self, width: Width) -> list[Row]:
        return hang((self.mark, self.texts[0][1]), self.texts, width)

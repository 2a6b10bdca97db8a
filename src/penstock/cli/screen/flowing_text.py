"""Text that flows: the lines that are full stand, the last one grows."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from penstock.cli.screen.rows import Row, wrapped

Kind = Literal["text", "reasoning", "refusal", "note"]

GUTTERS: dict[Kind, str] = {"text": "", "reasoning": "┊ ", "refusal": "▌ ", "note": ""}
WORD_STYLES: dict[Kind, str] = {"text": "", "reasoning": "reasoning", "refusal": "bad", "note": "odd"}


class Words(Struct):
    """A piece of what the model says, or of what is to be said about the run; `rest` is what does not stand yet."""

    kind: Kind
    block: int = 0
    style: str = ""
    rest: str = ""
    is_settled: bool = False
    has_stood: bool = False

    def write(self, text: str) -> None:
        self.rest += text if self.rest or self.has_stood else text.lstrip("\n")

    def rows(self, width: int) -> list[Row]:
        """What does not stand yet."""
        return [self._row(line) for line in self._lines(width)]

    def take(self, width: int) -> list[Row]:
        """The rows that will not change any more; from now on they stand."""
        lines = self._lines(width)
        standing = lines if self.is_settled else lines[:-1]
        while not self.is_settled and standing and not standing[-1].strip():
            standing = standing[:-1]  # blank lines at the end may turn out to be the end
        self.rest = "" if self.is_settled else "\n".join(lines[len(standing) :])
        self.has_stood = self.has_stood or bool(standing)
        return [self._row(line) for line in standing]

    def _lines(self, width: int) -> list[str]:
        text = self.rest.rstrip() if self.is_settled else self.rest
        return wrapped(text, width - len(GUTTERS[self.kind])) if text else []

    def _row(self, line: str) -> Row:
        style = self.style or WORD_STYLES[self.kind]
        return ((GUTTERS[self.kind], style), (line, style))

"""The report of a measurement: tables for people, rows for programs, and missed targets."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Report:
    """The results of one measurement."""

    tables: list[Table] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def judge(self, what: str, value: float, target: float | None) -> str:
        """Formats a value and its target, if any; records a missed target."""
        if target is None:
            return f"{value:.2f} no target"
        if value <= target:
            return f"{value:.2f} ≤ {target} ✓"
        self.missed.append(f"{what}: {value:.2f}, and at most {target} is wanted")
        return f"{value:.2f} > {target} ✗"

    def __str__(self) -> str:
        parts = [str(table) for table in self.tables]
        if self.notes:
            parts.append("\n".join(f"  note: {note}" for note in self.notes))
        return "\n\n".join(parts) + "\n"


@dataclass(frozen=True)
class Table:
    """A table with a title; the first `labels` columns are text, the others numbers."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    labels: int = 1

    def __str__(self) -> str:
        lines = [self.columns, *self.rows]
        widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
        lines.insert(1, ["─" * width for width in widths])
        return "\n".join([self.title, "", *(self._line(cells, widths) for cells in lines)])

    def _line(self, cells: Sequence[str], widths: Sequence[int]) -> str:
        aligned = (
            cell.ljust(width) if column < self.labels else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        )
        return f"  {'  '.join(aligned)}".rstrip()


def say(step: str) -> None:
    """Prints what is being done."""
    print(f"==> {step}", file=sys.stderr, flush=True)

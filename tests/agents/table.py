"""The table of the agents: for each upstream, agent and wire, whether the agent came to the right end, and how fast.

Results are kept in a file beside the agents, so that a run of some cells adds to those of earlier runs.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec import Struct

from tests.agents.agents import AGENTS, FOLDER

RESULTS, REPORT = FOLDER / "results.json", FOLDER / "report.md"
COLUMNS = [f"{name} {wire}" for name, agent in AGENTS.items() for wire in agent.wires]


class Cell(Struct, frozen=True):
    """One agent on one wire with one upstream behind the gateway."""

    is_right: bool
    seconds: float

    def __str__(self) -> str:
        return f"{'right' if self.is_right else 'WRONG'} {self.seconds:.0f} s"


Table = dict[str, dict[str, Cell]]
"""Cells by upstream, then by column."""


def read_table(path: Path = RESULTS) -> Table:
    """The results so far."""
    return msgspec.json.decode(path.read_bytes(), type=Table) if path.exists() else {}


def add_cell(upstream: str, column: str, cell: Cell) -> None:
    """Keep a result, and write the report again."""
    table = read_table()
    table.setdefault(upstream, {})[column] = cell
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_bytes(msgspec.json.encode(table))
    REPORT.write_text(render(table), encoding="utf-8")


def render(table: Table) -> str:
    """The table in Markdown, with a dash for what has not run, and the counts below."""
    cells = [cell for row in table.values() for cell in row.values()]
    lines = [f"| upstream | {' | '.join(COLUMNS)} |", "|---|" + "---|" * len(COLUMNS)]
    for upstream, row in table.items():
        lines.append(f"| {upstream} | {' | '.join(str(row.get(column, '–')) for column in COLUMNS)} |")
    right = sum(cell.is_right for cell in cells)
    return "\n".join([*lines, "", f"{right} of {len(cells)} cells are right.", ""])

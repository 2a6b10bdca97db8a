"""Runs of a log as a table or as labelled lines, in a terminal or in a pipe, and as JSON."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.cli.human_time import ago, duration_text
from penstock.cli.runs.owners import parse_owner
from penstock.jsontext.shown_text import escape
from penstock.log.store import RunPhase, RunRow

STYLES: dict[RunPhase, str] = {"ready": "cyan", "running": "green", "waiting": "yellow", "over": "dim",
                                "damaged": "red", "parked": "red"}  # fmt: skip
MAX_ID = 20
"""Longer ids are truncated to a prefix that is unique in the table."""
SHORT_ID = 8
"""The minimum length of such a prefix."""


def print_table(console: Console, rows: Sequence[RunRow], now: float) -> None:
    """Prints runs, one per line; in a pipe with whole ids, and nothing is truncated."""
    is_terminal = console.is_terminal
    ids = short_ids([row.id for row in rows]) if is_terminal else [row.id for row in rows]
    cells: dict[str, list[str]] = {
        "id": ids,
        "state": [str(row.state) for row in rows],
        "agent": [row.agent for row in rows],
        "thread": [row.thread for row in rows],
        "tenant": [row.tenant for row in rows],
        "events": [f"{row.seq:,}" for row in rows],
        "last event": [ago(row.updated, now) for row in rows],
        "owner": [owner_text(row, now) for row in rows],
    }
    columns = {head: [*map(escape, column)] for head, column in cells.items() if any(column)}
    if is_terminal:
        _print_rich(console, columns, [row.state for row in rows])
    else:
        _print_plain(console, columns)


def _print_rich(console: Console, columns: Mapping[str, Sequence[str]], states: Sequence[RunPhase]) -> None:
    table = Table(box=SIMPLE_HEAD, header_style="bold", pad_edge=False, padding=(0, 1))
    for head in columns:
        is_number, is_whole = head == "events", head in ("id", "state", "events", "last event")
        table.add_column(head, justify="right" if is_number else "left", no_wrap=is_whole, overflow="fold")
    for cells, state in zip(zip(*columns.values(), strict=True), states, strict=True):
        styled = {"id": "bold", "state": STYLES[state], "last event": "dim"}
        table.add_row(*(Text(cell, styled.get(head, "")) for head, cell in zip(columns, cells, strict=True)))
    console.print(table)


def _print_plain(console: Console, columns: Mapping[str, Sequence[str]]) -> None:
    widths = [max(len(head), *map(len, cells)) for head, cells in columns.items()]
    for cells in ([*columns], *zip(*columns.values(), strict=True)):
        line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()
        console.file.write(f"{escape(line)}\n")


def short_ids(ids: Sequence[str]) -> list[str]:
    """The ids; long ones truncated to an unambiguous prefix."""
    order = sorted(ids)
    shared = dict.fromkeys(ids, 0)
    for before, after in pairwise(order):
        length = next(
            (index for index, pair in enumerate(zip(before, after, strict=False)) if pair[0] != pair[1]), len(before)
        )
        shared[before], shared[after] = max(shared[before], length), max(shared[after], length)
    return [id if len(id) <= MAX_ID else id[: max(SHORT_ID, shared[id] + 1)] for id in ids]


def owner_text(row: RunRow, now: float) -> str:
    """The owner of a run, and since when its lease has expired."""
    if row.state != "running":
        return ""
    owner = parse_owner(row.owner)
    if row.lease_until < now:
        return f"{owner.text} (lost {ago(row.lease_until, now)})"
    return f"{owner.text} ({owner.condition})" if owner.condition else owner.text


def print_details(console: Console, details: Mapping[str, str]) -> None:
    """Prints labelled lines, without the empty ones."""
    for label, text in details.items():
        if text:
            console.print(Text(f"{label:<11}", "dim") + Text(escape(text)), soft_wrap=True)


def details_of(row: RunRow, now: float) -> dict[str, str]:
    """The row of a run, as labelled lines."""
    lease = f", for {duration_text(row.lease_until - now)}" if row.lease_until > now else ""
    owner = owner_text(row, now)
    return {
        "run": row.id,
        "agent": row.agent,
        "state": row.state,
        "owner": f"{owner}{lease}" if owner else "",
        "thread": row.thread,
        "tenant": row.tenant,
        "started": _time_text(row.created, now),
        "last event": f"{_time_text(row.updated, now)}, number {row.seq:,}",
        "owners": f"{row.epoch} so far" if row.epoch > 1 else "",
    }


def as_json(row: RunRow) -> dict[str, Any]:
    """A run as JSON; times are seconds since 1970."""
    owner = parse_owner(row.owner) if row.state == "running" else None
    fields: dict[str, Any] = {name: getattr(row, name) for name in row.__struct_fields__ if name != "owner"}
    return {**fields, "owner": {"host": owner.host, "pid": owner.pid or None} if owner else None}


def _time_text(at: float, now: float) -> str:
    return f"{ago(at, now)} ({time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(at))})"

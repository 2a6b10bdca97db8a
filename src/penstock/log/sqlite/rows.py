"""Statements on many rows at once. A statement per row costs a SQLite log about three times as much per event."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import cache

MAX_ROWS = 64
"""How many rows a statement has at most: with more, an event does not cost less."""


def execute_rows(
    connection: sqlite3.Connection, statement: str, width: int, values: Sequence[object]
) -> list[sqlite3.Cursor]:
    """Execute a statement with `{rows}` for rows of this width, whose values stand one after the other.

    The numbers of rows are powers of two, so that there are few statements, which are prepared once per connection.
    """
    end = len(values)
    begin = 0
    cursors: list[sqlite3.Cursor] = []
    while begin < end:
        rows = min(MAX_ROWS, 1 << (((end - begin) // width).bit_length() - 1))
        cursors.append(connection.execute(_statement(statement, width, rows), values[begin : begin + rows * width]))
        begin += rows * width
    return cursors


@cache
def _statement(statement: str, width: int, rows: int) -> str:
    row = f"({', '.join('?' * width)})"
    return statement.replace("{rows}", ", ".join([row] * rows))

"""The connection of a SQLite log, for tests that look behind the store."""

from __future__ import annotations

import sqlite3

from penstock.log.sqlite.file import SQLiteFile


def connection_of(file: SQLiteFile) -> sqlite3.Connection:
    """The connection of this thread."""
    return file.read(lambda connection: connection)

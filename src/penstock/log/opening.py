"""Stores by their address: a path, a URL, or memory."""

from __future__ import annotations

from pathlib import Path

from penstock.errors import UsageError
from penstock.log.in_memory import MAX_BYTES, MemoryStore
from penstock.log.store import LEASE, Store

SCHEMA = "penstock"
"""The schema of the tables in a PostgreSQL database, unless another is named."""


def open(path_or_url: str | Path, *, lease: float = LEASE, schema: str = SCHEMA) -> Store:  # noqa: A001  # `penstock.log.open`
    """A store of logs: a SQLite file (one machine) or a PostgreSQL database (`postgresql://…`, many machines).

    What does not exist yet, the file or the tables, is created, and tables of an earlier version are brought up to
    this one. A worker owns a run for `lease` seconds after it last wrote to its log. `schema` is for PostgreSQL.
    """
    address = str(path_or_url)
    scheme, separator, _ = address.partition("://")
    if separator and scheme in ("postgresql", "postgres"):
        from penstock.log.postgres import PostgresStore

        return PostgresStore(address, schema=schema, lease=lease)
    if separator:
        raise UsageError(f"open takes the path of a file or a postgresql:// URL, not {scheme}://…")
    if address in ("", ":memory:"):
        raise UsageError("for a log in memory, use penstock.log.memory()")
    from penstock.log.sqlite import SQLiteStore

    return SQLiteStore(address, lease=lease)


def memory(*, max_bytes: int = MAX_BYTES, lease: float = LEASE) -> Store:
    """A store in the memory of this process. When it is full, the runs that are over are deleted, the oldest first."""
    return MemoryStore(max_bytes=max_bytes, lease=lease)

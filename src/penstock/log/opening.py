"""Stores by their address: a path, a URL, or memory."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any, Literal, get_args

from penstock.errors import UsageError
from penstock.log.in_memory import MAX_BYTES, MemoryStore
from penstock.log.retention.keep import Keep
from penstock.log.store import LEASE, Store

SCHEMA = "penstock"
"""The schema of the tables in a PostgreSQL database, unless another is named."""


Show = Literal["committed", "flushed"]


def open(  # noqa: A001  # `penstock.log.open`
    path_or_url: str | Path,
    *,
    lease: float = LEASE,
    schema: str = SCHEMA,
    keep: Keep | None = None,
    show: Show = "committed",
) -> Store:
    """A store of logs: a SQLite file (one machine) or a PostgreSQL database (`postgresql://…`, many machines).

    Missing files and tables are created, and tables of an earlier version are upgraded. A worker owns a run for `lease`
    seconds after it last wrote to its log. `schema` is for PostgreSQL. Behind a pooler in transaction mode, such as
    PgBouncer, add `?pooler=transaction` to the URL. Workers and servers delete the runs that `keep` does not keep.

    With `show="flushed"`, readers see only what is on disk, so that no crash of the database or the machine takes back
    what they have seen: text is flushed as everything else is, and comes later by the time that takes. All processes
    that drive runs must open the log so.
    """
    _expect_lease(lease)
    _expect_keep(keep)
    if show not in get_args(Show):
        raise UsageError(f"show must be 'committed' or 'flushed', not {show!r:.60}")
    store = _open(path_or_url, lease, schema, is_flushed=show == "flushed")
    store.keep = keep
    return store


def _open(path_or_url: str | Path, lease: float, schema: str, *, is_flushed: bool) -> Store:
    address: Any = path_or_url
    if isinstance(address, os.PathLike):
        address = os.fspath(address)
    if not isinstance(address, str) or "\0" in address:
        raise UsageError(f"open takes the path of a file or a postgresql:// URL, not {path_or_url!r:.60}")
    scheme, separator, _ = address.partition("://")
    if separator and scheme in ("postgresql", "postgres"):
        from penstock.log.postgres.store import PostgresStore

        return PostgresStore(address, schema=schema, lease=lease, is_flushed=is_flushed)
    if separator:
        raise UsageError(f"open takes the path of a file or a postgresql:// URL, not {scheme}://…")
    if address in ("", ":memory:"):
        raise UsageError("for a log in memory, use penstock.log.memory()")
    from penstock.log.sqlite.store import SQLiteStore

    return SQLiteStore(address, lease=lease, is_flushed=is_flushed)


def memory(*, max_bytes: int = MAX_BYTES, lease: float = LEASE) -> Store:
    """A store in the memory of this process. When it is full, finished runs are deleted, the oldest first."""
    _expect_lease(lease)
    return MemoryStore(max_bytes=max_bytes, lease=lease)


def _expect_keep(keep: Any) -> None:
    """Raise a `UsageError` for anything but a `Keep`, such as a number of days."""
    if keep is not None and not isinstance(keep, Keep):
        raise UsageError(f"keep must be a penstock.log.Keep, as in Keep(days=30), not {keep!r:.60}")


def _expect_lease(lease: Any) -> None:
    """Raise a `UsageError` for a lease that is not positive or not finite."""
    if not isinstance(lease, int | float) or not 0 < lease < math.inf:
        raise UsageError(f"lease must be a number of seconds, more than 0, not {lease!r}")

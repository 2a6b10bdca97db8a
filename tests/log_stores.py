"""Stores of every kind, for tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from penstock.log.in_memory import MemoryStore
from penstock.log.postgres import PostgresStore
from penstock.log.sqlite import SQLiteStore
from penstock.log.store import Store
from tests.postgres import drop, new_schema


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def open_store(
    kind: str, folder: Path, url: str, *, lease: float, clock: Callable[[], float] | None = None
) -> Iterator[Store]:
    """An empty store of a kind; `url` is that of a PostgreSQL server."""
    schema = new_schema() if kind == "postgres" else ""
    store: Store
    match kind:
        case "sqlite":
            store = SQLiteStore(folder / "runs.db", lease=lease, clock=clock or time.time)
        case "postgres":
            store = PostgresStore(url, schema=schema, lease=lease, clock=clock)
        case _:
            store = MemoryStore(lease=lease, clock=clock or time.time)
    try:
        yield store
    finally:
        store.close()
        if schema:
            drop(url, schema)

"""The log of a run: its events in a store, from which any process can read and continue it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.log.opening import memory, open  # noqa: A004  # `penstock.log.open`
    from penstock.log.position import Position
    from penstock.log.postgres.store import PostgresStore
    from penstock.log.retention.keep import Keep
    from penstock.log.retention.survey import RunCounts, WorkerRow
    from penstock.log.sqlite.store import SQLiteStore
    from penstock.log.store import RunRow, Store

_HOMES = {
    "Keep": "retention.keep", "Position": "position", "PostgresStore": "postgres.store",
    "RunCounts": "retention.survey", "RunRow": "store", "SQLiteStore": "sqlite.store", "Store": "store",
    "WorkerRow": "retention.survey",
}  # fmt: skip

if not TYPE_CHECKING:  # imported when they are first used, as those of `penstock` are

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module 'penstock.log' has no attribute {name!r}")
        home = import_module(f"penstock.log.{_HOMES.get(name, 'opening')}")
        value = globals()[name] = getattr(home, name)
        return value


__all__ = [
    "Keep", "Position", "PostgresStore", "RunCounts", "RunRow", "SQLiteStore", "Store", "WorkerRow", "memory", "open",
]  # fmt: skip

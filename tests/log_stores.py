"""Stores of every kind, for tests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock import Agent, Model, Runs, tool
from penstock.log import PostgresStore, RunRow, SQLiteStore, Store
from penstock.log.in_memory import MemoryStore
from penstock.log.take_up import read_log
from penstock.testing import Crashed, Reply, Scripted, call, crash_at
from tests.postgres import drop, new_schema


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Desk:
    """An agent with a tool that writes down each call, on a store."""

    def __init__(self, store: Store, **options: Any) -> None:
        self.store = store
        self.sent: list[str] = []

        @tool
        def send() -> str:
            """Send."""
            self.sent.append("sent")
            return "sent"

        def answer(request: Any) -> Reply | str:
            return "Sent." if request.results else Reply("I send it.", call("send"))

        self.agent = Agent(Model("openai:gpt-5", via=Scripted(answer)), tools=[send], name="desk", **options)
        self.runs = Runs(store, {"desk": self.agent})

    def log(self, run_id: str) -> list[str]:
        return [event.type for _, _, event in read_log(self.store, run_id)]


def interrupted_desk(store: Store, clock: Clock) -> Desk:
    """A desk with the run `r`, whose worker has died before its tool started."""
    desk = Desk(store)
    desk.runs.start("desk", "Send it.", run_id="r")
    with crash_at("before_append", "tool_start"), pytest.raises(Crashed):
        desk.runs.drive("r")
    clock.now += store.lease + 1
    return desk


def rows_of(store: Store, run_id: str) -> tuple[RunRow | None, list[Any], list[Any]]:
    """All that a store has of a run."""
    return store.find(run_id), store.read(run_id), store.inputs([run_id])


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

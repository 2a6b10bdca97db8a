"""How the operations of a store cost with many finished runs: `python -m tests.log_growth --runs 1000000`.

The runs are made by a few SQL statements, and measured at 10,000 runs and at the number that is asked for.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from msgspec import Struct

from penstock.log import PostgresStore, SQLiteStore
from penstock.log.retention.survey import WorkerRow
from penstock.log.store import Batch, RunRow
from tests.postgres import new_schema, server

SMALL = 10_000
"""The number of runs that others are compared with."""

EVENTS = 10
"""The number of events of each run."""

AGENTS, TENANTS, THREADS = 5, 50, 200
OLD = 1_000_000.0
"""When the first run was created; each later one comes a second after it."""

Growing = SQLiteStore | PostgresStore

_SQLITE = """
WITH RECURSIVE places (place) AS (VALUES ({first}) UNION ALL SELECT place + 1 FROM places WHERE place < {last})
"""
_SQLITE_RUNS = f"""
INSERT INTO runs (
    number, id, agent, thread, tenant, version, state, owner, begun, lease_until, lease, wake_at, created, ended
)
{_SQLITE}
SELECT {{runs}} + place, 'old-' || place, 'agent-' || (place % {AGENTS}), 'thread-' || (place % {THREADS}),
    'tenant-' || (place % {TENANTS}), 1, 'over', 'gone', 1, 0, 15, 0, {OLD} + place, {OLD} + place FROM places
"""
_SQLITE_HEADS = f"""
INSERT INTO heads {_SQLITE}
SELECT {{runs}} + place, 1, {EVENTS}, {{events}} + place * {EVENTS}, {OLD} + place FROM places
"""
_SQLITE_EVENTS = f"""
INSERT INTO events (number, run_id, seq, at, body, previous)
{_SQLITE}, seqs (seq) AS (VALUES (1) UNION ALL SELECT seq + 1 FROM seqs WHERE seq < {EVENTS})
SELECT {{events}} + (place - 1) * {EVENTS} + seq, 'old-' || place, seq, {OLD} + place, x'7b7d',
    CASE seq WHEN 1 THEN 0 ELSE {{events}} + (place - 1) * {EVENTS} + seq - 1 END
FROM places CROSS JOIN seqs
"""
_POSTGRES_RUNS = f"""
INSERT INTO {{schema}}.runs (
    id, agent, thread, tenant, version, state, epoch, owner, lease_until, seq, created, updated, open_inputs, ended
)
SELECT 'old-' || place, 'agent-' || place % {AGENTS}, 'thread-' || place % {THREADS}, 'tenant-' || place % {TENANTS},
    1, 'over', 1, 'gone', 0, {EVENTS}, {OLD} + place, {OLD} + place, 0, {OLD} + place
FROM generate_series({{first}}, {{last}}) AS place
"""
_POSTGRES_EVENTS = f"""
INSERT INTO {{schema}}.events
SELECT 'old-' || place, seq, {OLD} + place, '{{{{}}}}'
FROM generate_series({{first}}, {{last}}) AS place, generate_series(1, {EVENTS}) AS seq
"""


def add_finished_runs(store: Growing, first: int, last: int) -> None:
    """Add finished runs with these places to a store."""
    if isinstance(store, SQLiteStore):
        runs, events = store._file.read(
            lambda connection: [
                connection.execute(f"SELECT coalesce(max(number), 0) FROM {table}").fetchone()[0]
                for table in ("runs", "events")
            ]
        )
        numbers = {"runs": runs - first + 1, "events": events - (first - 1) * EVENTS}
        for statement in (_SQLITE_RUNS, _SQLITE_HEADS, _SQLITE_EVENTS):
            filled = statement.format(first=first, last=last, **numbers)
            store._file.write(lambda connection, filled=filled: connection.execute(filled).rowcount, durable=False)  # type: ignore[misc]
        return
    for statement in (_POSTGRES_RUNS, _POSTGRES_EVENTS):
        store._connections.maintain(statement.format(schema=store._schema, first=first, last=last))
    for table in ("runs", "events"):
        store._connections.maintain(f"ANALYZE {store._schema}.{table}")


class Operations(Struct):
    """The operations of a store that workers, servers and people repeat; each call of one uses new runs."""

    store: Growing
    count: int = 0

    def by_name(self) -> dict[str, Callable[[], Any]]:
        store = self.store
        return {
            "start": self.start,
            "claim, nothing to do": lambda: store.claim_next("worker", agents=["agent-0", "agent-1"], limit=8),
            "start, claim and end": self.run,
            "claimable": lambda: store.claimable(agents=["agent-0"]),
            "list the newest": store.list,
            "list by tenant": lambda: store.list(tenant="tenant-7"),
            "list by agent": lambda: store.list(agent="agent-1"),
            "list by thread": lambda: store.list(thread="thread-7"),
            "list waiting runs": lambda: store.list(state="waiting"),
            "list by prefix": lambda: store.list(prefix="old-10000"),
            "survey": self.survey,
            "prune nothing": lambda: store.prune(before=OLD),
            "prune ten runs": lambda: store.prune(before=time.time() - 1e6, limit=10),
        }

    def start(self) -> str:
        self.count += 1
        run_id = f"new-{self.count}"
        self.store.create(RunRow(id=run_id, agent="parked"), b"{}")
        return run_id

    def survey(self) -> None:
        self.count += 1
        run_id = f"back-{self.count}"
        self.store.create(RunRow(id=run_id, agent="given back"), b"{}")
        claim = self.store.claim("worker", run_id=run_id)
        assert claim is not None
        self.store.append([Batch(run_id, claim.epoch, claim.seq, [b"{}"], "ready")], durable=True)
        self.store.survey.beat(WorkerRow(owner="worker", kind="worker"))
        self.store.survey.counts()
        self.store.survey.workers()

    def run(self) -> None:
        self.count += 1
        self.store.create(RunRow(id=f"run-{self.count}", agent="agent-0"), b"{}")
        [claim] = self.store.claim_next("worker", agents=["agent-0"])
        assert self.store.append([Batch(claim.run_id, claim.epoch, claim.seq, [b"{}"], "over")], durable=True) == [True]


def measure(store: Growing, rounds: int) -> dict[str, float]:
    """The median of the milliseconds of each operation."""
    times: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, operation in Operations(store, int(time.time() * 1e6)).by_name().items():
            began = time.perf_counter()
            operation()
            times.setdefault(name, []).append((time.perf_counter() - began) * 1000)
    return {name: median(values) for name, values in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    missed = 0
    with tempfile.TemporaryDirectory() as folder, server("growth") as url:
        for store in (SQLiteStore(Path(folder) / "runs.db"), PostgresStore(url, schema=new_schema())):
            add_finished_runs(store, 1, SMALL)
            small = measure(store, options.rounds)
            began = time.perf_counter()
            for first in range(SMALL + 1, options.runs + 1, 100_000):
                add_finished_runs(store, first, min(first + 99_999, options.runs))
            seconds = time.perf_counter() - began
            print(f"\n{type(store).__name__}: {options.runs:,} runs of {EVENTS} events, made in {seconds:.0f} s")  # noqa: T201
            for name, large in measure(store, options.rounds).items():
                ratio = large / small[name]
                missed += (is_slow := ratio > 3 and large > 1.0)
                row = f"  {name:22} {small[name]:8.2f} ms {large:8.2f} ms  {ratio:5.2f}"
                print(f"{row}  missed" if is_slow else row)  # noqa: T201
            store.close()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

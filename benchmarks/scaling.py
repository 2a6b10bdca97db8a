"""The arithmetic of docs/scaling.md: `python -m benchmarks.scaling` prints its tables.

Unit costs were measured by `python -m benchmarks serve` and `python -m benchmarks log`; the load is assumed. A test
compares the page with what this prints. Change a number here, and write the page again with `--write`.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "scaling.md"
BEGIN, END = "<!-- numbers -->", "<!-- end -->"


@dataclass(frozen=True)
class Costs:
    """What was measured, on two virtual cores that other programs used too."""

    deliver_micros: float = 0.0  # CPU per event and reader, in the server, with the run and its log
    drive_micros: float = 0.0  # CPU per event of a run, with SQLite
    stream_kb: float = 0.0  # memory per open stream
    run_kb: float = 60.0  # memory per run that is driven, assumed: the history is on top of it
    commits: float = 0.0  # per second and process, at most: micro-batches of 10 ms
    reconnect_micros: float = 0.0  # CPU per reader that comes back
    idle_kb: float = 90_000.0  # memory of a process without runs


@dataclass(frozen=True)
class Load:
    """What is assumed of the runs."""

    events: float = 10.0  # per second and run, over the whole run: 20 while the model streams, none while tools run
    readers: float = 1.1  # per run
    use: float = 0.6  # of a core, so that nobody waits
    database_commits: float = 5_000.0  # per second that one PostgreSQL server does with group commit, assumed
    database_events: float = 100_000.0  # rows per second that it takes, assumed
    cores: int = 8  # per machine


@dataclass(frozen=True)
class Plan:
    """What so many runs at once need."""

    runs: int
    processes: int
    machines: int
    memory_gb: float
    events: float
    commits: float
    databases: int
    storm_seconds: float


COSTS = Costs(deliver_micros=42.0, drive_micros=60.0, stream_kb=19.0, commits=100.0, reconnect_micros=1250.0)
LOAD = Load()


def plan(runs: int, costs: Costs = COSTS, load: Load = LOAD) -> Plan:
    """What so many runs at once need."""
    events = runs * load.events
    cpu = events * (costs.drive_micros + load.readers * costs.deliver_micros) / 1e6
    processes = math.ceil(cpu / load.use)
    kilobytes = processes * costs.idle_kb + runs * (costs.run_kb + load.readers * costs.stream_kb)
    commits = processes * costs.commits
    databases = math.ceil(max(commits / load.database_commits, events / load.database_events))
    storm = runs * load.readers * costs.reconnect_micros / 1e6 / processes
    return Plan(
        runs, processes, math.ceil(processes / load.cores), kilobytes / 1024**2, events, commits, databases, storm
    )


def page() -> str:
    """The tables of the page."""
    costs, load = COSTS, LOAD
    unit = [
        ("CPU per event and reader, with the run and its log", f"{costs.deliver_micros:.0f} µs"),
        ("CPU per event of a run with SQLite, without readers", f"{costs.drive_micros:.0f} µs"),
        ("memory per open stream", f"{costs.stream_kb:.0f} KB"),
        ("commits per second and process, at most (micro-batches of 10 ms)", f"{costs.commits:.0f}"),
        ("CPU per reader that comes back and gets 30 events", f"{costs.reconnect_micros / 1000:.1f} ms"),
    ]
    lines = ["| measured | |", "|---|--:|", *(f"| {name} | {value} |" for name, value in unit), ""]
    lines += ["| assumed | |", "|---|--:|"]
    assumed = [
        ("events per second and run, on average", f"{load.events:g}"), ("readers per run", f"{load.readers:g}"),
        ("use of a core", f"{load.use:.0%}"), ("cores per machine", f"{load.cores}"),
        ("memory of a process without runs", f"{costs.idle_kb / 1000:.0f} MB"),
        ("memory per run, without its history", f"{costs.run_kb:.0f} KB"),
        ("commits per second of one PostgreSQL server", f"{load.database_commits:,.0f}"),
        ("events per second that it takes", f"{load.database_events:,.0f}"),
    ]  # fmt: skip
    lines += [*(f"| {name} | {value} |" for name, value in assumed), ""]
    plans = [plan(1_000), plan(10_000), plan(100_000)]
    rows = [
        ("processes", [f"{each.processes:,}" for each in plans]),
        ("machines", [f"{each.machines:,}" for each in plans]),
        ("memory in all, GB", [f"{each.memory_gb:.1f}" for each in plans]),
        ("events per second", [f"{each.events:,.0f}" for each in plans]),
        ("commits per second", [f"{each.commits:,.0f}" for each in plans]),
        ("PostgreSQL servers", [f"{each.databases}" for each in plans]),
        ("seconds of CPU per process when all readers come back", [f"{each.storm_seconds:.1f}" for each in plans]),
    ]
    lines += ["| runs at once | " + " | ".join(f"{each.runs:,}" for each in plans) + " |", "|---|--:|--:|--:|"]
    return "\n".join([*lines, *(f"| {name} | " + " | ".join(values) + " |" for name, values in rows)])


def main() -> None:
    if "--write" in sys.argv:
        text = PAGE.read_text(encoding="utf-8")
        head, tail = text.partition(BEGIN)[0], text.partition(END)[2]
        PAGE.write_text(f"{head}{BEGIN}\n\n{page()}\n\n{END}{tail}", encoding="utf-8")
    print(page())


if __name__ == "__main__":
    main()

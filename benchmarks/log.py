"""The cost of a log: CPU time per event of many runs at once, compared with the version before there were logs.

Each crowd of runs has a process of its own. The kinds of them alternate, what is compared is compared within a round,
and the median of the rounds counts: a slow minute of the machine makes all kinds of its round slower.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.clock import cpu_seconds
from benchmarks.environment import HOME, ROOT
from benchmarks.log_crowd import EVENTS, EVENTS_PER_RUN, config, start
from benchmarks.report import Report, Table, say
from penstock.agent.agent_run import AsyncAgentRun
from penstock.log.bodies import body_of, event_of
from penstock.log.sqlite.store import SQLiteStore
from penstock.log.take_up import read_log
from penstock.run.rebuild import rebuild

BEFORE = "80d110c"
"""The last commit without logs."""
RUNS = 200
ROUNDS = 5
NOISE = 1.1
"""How many times what it cost before logs an event without a log may cost: differences of a tenth are noise."""
TARGETS = {"SQLite": 25.0, "PostgreSQL": 40.0}
"""How many µs more than without a log an event may cost."""
COMMITS_TARGET = 250.0
"""How many commits per second there may be, whatever the number of runs."""
FOLD_TARGET = 5.0
"""How many µs an event may cost when a run is rebuilt."""


def measure() -> Report:
    report = Report()
    with _postgres(report) as url:
        kinds = {"no log": "none", "SQLite": "sqlite", **({"PostgreSQL": url} if url else {})}
        results = _race(kinds, _sources(report))
    micros = {name: [_micros(result) for result in many] for name, many in results.items()}
    commits = {name: max(_commits(result) for result in results[name]) for name in kinds if name != "no log"}
    lines = [[name, f"{median(micros[name]):.1f}", "", "", ""] for name in micros if name not in TARGETS]
    if "before" in micros:
        ratio = [ours / before for ours, before in zip(micros["no log"], micros["before"], strict=True)]
        lines[-1][2:4] = [report.judge("no log, times the version before", median(ratio), NOISE), _range(ratio)]
    more: dict[str, list[float]] = {}
    for name, most in commits.items():
        more[name] = [with_log - without for with_log, without in zip(micros[name], micros["no log"], strict=True)]
        cell = report.judge(f"{name}, µs per event more", median(more[name]), TARGETS[name])
        rate = report.judge(f"{name}, commits per second", most, COMMITS_TARGET)
        lines.append([name, f"{median(micros[name]):.1f}", cell, _range(more[name]), rate])
    fold, count = _fold()
    lines.append(["rebuild a run", f"{fold:.1f}", report.judge("rebuild, µs per event", fold, FOLD_TARGET), "", ""])
    report.rows.append({"micros": micros, "more": more, "commits": commits, "fold": fold, "folded": count})
    report.tables.append(
        Table(
            f"Log: {RUNS} runs of {EVENTS} texts at once, CPU per event, the median of {ROUNDS} rounds",
            ["", "µs per event", "µs more, or times", "rounds", "commits per second"],
            lines,
        )
    )
    return report


def _race(kinds: dict[str, str], before: Path | None) -> dict[str, list[dict[str, float]]]:
    """The results of each kind of crowd, in turns."""
    results: dict[str, list[dict[str, float]]] = {"before": []} if before else {}
    results |= {name: [] for name in kinds}
    for number in range(ROUNDS):
        say(f"{RUNS} runs at once, with and without a log: round {number + 1} of {ROUNDS}")
        for name, many in results.items():
            source = before if name == "before" and before is not None else ROOT / "src"
            many.append(_crowd(source, kinds.get(name, "none"), RUNS))
    return results


def _crowd(source: Path, where: str, runs: int) -> dict[str, float]:
    """What a crowd costs, in a process of its own with this source."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(source), str(ROOT)])}
    command = [sys.executable, "-m", "benchmarks.log_crowd", where, str(runs)]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def _micros(result: dict[str, float]) -> float:
    return result["cpu"] / (RUNS * EVENTS_PER_RUN) * 1e6


def _range(values: Sequence[float]) -> str:
    """The least and the greatest value of the rounds."""
    return f"{min(values):.2f} to {max(values):.2f}"


def _commits(result: dict[str, float]) -> float:
    return result["commits"] / result["seconds"]


def _sources(report: Report) -> Path | None:
    """The source of the version before, unpacked under `.bench`; None without the history of the repository."""
    folder = HOME / f"before-logs-{BEFORE}"
    if not folder.is_dir():
        found = subprocess.run(["git", "archive", BEFORE, "src"], cwd=ROOT, check=False, capture_output=True)
        if found.returncode:
            report.skipped.append(f"the version before logs: no commit {BEFORE} here")
            return None
        with tarfile.open(fileobj=io.BytesIO(found.stdout)) as archive:
            archive.extractall(folder, filter="data")
    return folder / "src"


@contextmanager
def _postgres(report: Report) -> Iterator[str]:
    """The URL of a PostgreSQL server; empty if there is none."""
    from tests.postgres import NoServer, server

    try:
        with server("bench") as url:
            yield url
            return
    except NoServer as error:
        report.skipped.append(str(error))
    yield ""


def _fold() -> tuple[float, int]:
    """µs per event to rebuild a run from the bodies of its events, and how many events."""
    with tempfile.TemporaryDirectory() as folder:
        store = SQLiteStore(Path(folder) / "runs.db")

        async def run_once() -> None:
            run, owned = await asyncio.to_thread(start, store, "run")
            async with AsyncAgentRun(config(), run, None, owned) as running:
                async for _ in running:
                    pass

        asyncio.run(run_once())
        bodies = [body_of(event) for _, _, event in read_log(store, "run")]
        store.close()
    head, texts, end = bodies[:3], bodies[3:-3], bodies[-3:]
    many = [*head, *(texts * 50), *end]
    seconds = min(cpu_seconds(lambda: rebuild((event_of("run", 1, body) for body in many), {})) for _ in range(ROUNDS))
    return seconds / len(many) * 1e6, len(many)

"""Many concurrent streams: the CPU time of `Model.astream` per chunk, as a multiple of raw aiohttp's."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchmarks import peers
from benchmarks.content import words
from benchmarks.environment import ROOT, InstallFailed
from benchmarks.process import ProcessFailed, ask
from benchmarks.report import Report, Table, say
from benchmarks.streams import openai_chat_text

STREAMS = 1000
CHUNKS = 100
CPU = 1.4
LAG = 2.0
"""The targets: CPU time per chunk, and the mean lag of the event loop, as multiples of those of raw aiohttp."""
RAW, OURS = "aiohttp_alone", "penstock_astream"
LABELS = {
    RAW: "aiohttp alone, no decoding",
    OURS: "penstock, Model.astream()",
    "openai_create": "openai, create(stream=True)",
    "litellm_acompletion": "litellm, acompletion(stream=True)",
}
PEERS = {"openai": "openai_create", "litellm": "litellm_acompletion"}
COLUMNS = ["", "CPU µs", "× aiohttp", "mean lag ms", "× aiohttp", "longest ms", "lost"]

Costs = Mapping[str, float]


def measure() -> Report:
    """Raw aiohttp and penstock, in turns."""
    report = Report()
    if not _allows_files():
        report.skipped.append(f"the system does not allow a process {_FILES} open files")
        return report
    with _server() as port:
        say(f"concurrent, {STREAMS} streams of {CHUNKS} chunks")
        costs = _crowd(sys.executable, port, RAW, OURS)
    lines = [_line(name, costs[name], costs[RAW], report, is_judged=name == OURS) for name in costs]
    if lost := costs[OURS]["lost"]:
        report.missed.append(f"{LABELS[OURS]}: {lost} streams were lost")
    report.tables.append(Table(_title(), COLUMNS, lines))
    return report


def measure_peers() -> Report:
    """The peers on the same bytes, each in its own environment."""
    report = measure()
    if report.skipped:
        return report
    raw, (table,) = report.rows[0], report.tables
    lines = list(table.rows)
    with _server() as port:
        for name, client in PEERS.items():
            try:
                costs = _crowd(_python_of(name), port, client)
            except (InstallFailed, ProcessFailed) as failure:
                report.notes.append(f"{LABELS[client]}: not measured, {failure}")
            else:
                lines.append(_line(client, costs[client], raw, report, is_judged=False))
    report.tables = [Table(_title(), COLUMNS, lines)]
    return report


def _title() -> str:
    return f"Concurrent: {STREAMS} streams of {CHUNKS} chunks in one loop, CPU time for a chunk and lag of the loop"


def _line(name: str, costs: Costs, raw: Costs, report: Report, *, is_judged: bool) -> list[str]:
    label = LABELS[name]
    cpu, lag = costs["cpu_seconds"] / raw["cpu_seconds"], costs["lag_mean"] / raw["lag_mean"]
    report.rows.append({"client": label, "cpu_ratio": cpu, "lag_ratio": lag, **costs})
    return [
        label,
        f"{costs['cpu_seconds'] / _FRAMES * 1e6:.1f}",
        report.judge(f"{label}, CPU", cpu, CPU if is_judged else None),
        f"{costs['lag_mean'] * 1e3:.1f}",
        report.judge(f"{label}, mean lag", lag, LAG if is_judged else None),
        f"{costs['lag_most'] * 1e3:.0f}",
        str(costs["lost"]),
    ]


_FRAMES = STREAMS * len(openai_chat_text(words(CHUNKS)).frames)
_FILES = 2 * STREAMS + 100  # in one process


def _allows_files() -> bool:
    """Raises the limit of open files of this process and its children, if the system allows it."""
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if now < _FILES and (most == resource.RLIM_INFINITY or most >= _FILES):
        resource.setrlimit(resource.RLIMIT_NOFILE, (_FILES, most))
        return True
    return now >= _FILES


@contextmanager
def _server() -> Iterator[int]:
    """The port of a server in its own process."""
    command = [sys.executable, "-m", "benchmarks.crowd_server", str(CHUNKS)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline())
        process.communicate()  # it ends when its input is closed


def _crowd(python: str | Path, port: int, *names: str) -> dict[str, Costs]:
    """The CPU time of the streams of these clients, in one process of that Python."""
    found: dict[str, Costs] = ask(python, "crowd", port, STREAMS, CHUNKS, *names)
    return found


def _python_of(name: str) -> Path:
    python = peers.python_of(next(peer for peer in peers.PEERS if peer.name == name))
    say(f"concurrent, {name}: {STREAMS} streams of {CHUNKS} chunks")
    return python

"""The cost of serving: CPU per delivered event, the delay of a log, readers that stop, and a storm of readers.

CPU time is that of the server process, compared with a bare ASGI app that sends frames of the same size to the same
readers at the same times. The kinds alternate, and the median of five rounds counts.
"""

from __future__ import annotations

import time
from statistics import median

from benchmarks.report import Report, Table, say
from benchmarks.serve_readers import Server, open_readers, read_all, read_heads, server

ROUNDS = 5
RUNS, EACH, EVENTS, INTERVAL = 100, 10, 40, 0.25
"""1,000 readers of 100 runs, which get four events per second each."""
DELAY_RUNS, DELAY_EVENTS, DELAY_INTERVAL = 200, 60, 0.05
"""200 runs with 20 events per second."""
STUCK = 100
STUCK_EVENTS = 400
CPU_TARGET = 1.5
"""How many times the CPU of the bare app an event may cost."""
DELAY_TARGET = 10.0
"""How many milliseconds later than without a log an event may come."""
MEMORY_TARGET = 256.0
"""How many KB a reader may hold that does not read."""
OWN_EVENTS = 6
"""Events of a run besides its texts: its start, its worker, the step, its end, the reason, `done`."""


def measure() -> Report:
    report = Report()
    crowd = _crowd(report)
    delay = _delay(report)
    stuck = _stuck(report)
    storm = _storm(report)
    report.rows.append({**crowd, **delay, **stuck, **storm})
    return report


def _start(at: Server, kind: str, count: int) -> list[str]:
    if kind == "bare":
        return [f"run-{number}" for number in range(count)]
    return [at.post("/runs", {"prompt": "Go."})["id"] for _ in range(count)]


def _crowd(report: Report) -> dict[str, float]:
    """1,000 readers of 100 runs in one process."""
    micros: dict[str, list[float]] = {"bare": [], "sqlite": []}
    memory: list[float] = []
    missing = 0
    for number in range(ROUNDS):
        say(f"{RUNS * EACH} readers of {RUNS} runs: round {number + 1} of {ROUNDS}")
        for kind, found in micros.items():
            with server(kind, EVENTS, INTERVAL) as at:
                run_ids = _start(at, kind, RUNS)
                empty = at.memory
                readers = open_readers(at, run_ids, EACH)
                read_heads(readers)
                full, before = at.memory, at.cpu
                at.post("/go")
                read_all(readers)
                used = at.cpu - before
            wanted = EVENTS if kind == "bare" else EVENTS + OWN_EVENTS
            missing += sum(len(reader.delays) != EVENTS or reader.frames < wanted for reader in readers)
            found.append(used / sum(reader.frames for reader in readers) * 1e6)
            if kind == "sqlite":
                memory.append((full - empty) / (RUNS * EACH) / 1024)
    ratio = median(ours / bare for ours, bare in zip(micros["sqlite"], micros["bare"], strict=True))
    values = {kind: median(found) for kind, found in micros.items()}
    lines = [
        ["bare ASGI app", f"{values['bare']:.0f}", ""],
        ["penstock.serve", f"{values['sqlite']:.0f}", report.judge("CPU, times a bare app", ratio, CPU_TARGET)],
        ["readers that missed an event", str(missing), report.judge("readers that missed an event", missing, 0)],
    ]  # fmt: skip
    title = f"Serve: {RUNS * EACH} readers of {RUNS} runs in one process, CPU per delivered event"
    report.tables.append(Table(title, ["", "µs", "compared"], lines))
    return {"bare_micros": values["bare"], "micros": values["sqlite"], "ratio": ratio, "stream_kb": median(memory)}


def _delay(report: Report) -> dict[str, float]:
    """How late events come at 200 runs with 20 events per second."""
    delays: dict[str, list[float]] = {"bare": [], "none": [], "sqlite": []}
    for number in range(ROUNDS):
        say(f"{DELAY_RUNS} runs with {1 / DELAY_INTERVAL:.0f} events per second: round {number + 1} of {ROUNDS}")
        for kind, found in delays.items():
            with server(kind, DELAY_EVENTS, DELAY_INTERVAL) as at:
                readers = open_readers(at, _start(at, kind, DELAY_RUNS), 1)
                read_heads(readers)
                at.post("/go")
                read_all(readers)
            found.append(median(delay for reader in readers for delay in reader.delays) * 1e3)
    values = {kind: median(found) for kind, found in delays.items()}
    behind = median(ours - bare for ours, bare in zip(delays["sqlite"], delays["bare"], strict=True))
    lines = [
        ["bare ASGI app", f"{values['bare']:.1f}", ""],
        ["runs in memory", f"{values['none']:.1f}", ""],
        ["runs in SQLite", f"{values['sqlite']:.1f}", report.judge("ms behind a bare app", behind, DELAY_TARGET)],
    ]  # fmt: skip
    title = f"Serve: {DELAY_RUNS} runs × {1 / DELAY_INTERVAL:.0f} events per second, delay of an event (median)"
    report.tables.append(Table(title, ["", "ms", "later"], lines))
    return {"delay_ms": values["sqlite"], "bare_delay_ms": values["bare"], "behind_ms": behind}


def _stuck(report: Report) -> dict[str, float]:
    """Readers that do not read, beside others that do."""
    say(f"{STUCK} readers that do not read")
    found: dict[int, tuple[float, float]] = {}
    for stuck in (0, STUCK):
        with server("sqlite", STUCK_EVENTS, 0.01) as at:
            run_ids = _start(at, "sqlite", 10)
            readers = open_readers(at, run_ids, 2)
            read_heads(readers)
            sleeping = open_readers(at, run_ids, stuck // 10, receive=2048) if stuck else []
            before = at.memory
            at.post("/go")
            read_all(readers)
            late = median(delay for reader in readers for delay in reader.delays) * 1e3
            found[stuck] = (at.memory - before) / 1024, late
            for reader in sleeping:
                reader.connection.close()
    held = max(0.0, found[STUCK][0] - found[0][0]) / STUCK
    later = found[STUCK][1] - found[0][1]
    lines = [
        ["memory per reader that does not read, KB", report.judge("KB per stuck reader", held, MEMORY_TARGET)],
        ["others get events later, ms", report.judge("ms later beside stuck readers", later, DELAY_TARGET)],
    ]
    report.tables.append(Table(f"Serve: {STUCK} readers that do not read", ["", ""], lines))
    return {"stuck_kb": held, "stuck_later_ms": later}


def _storm(report: Report) -> dict[str, float]:
    """1,000 readers come back at once, and each gets what it missed."""
    say("1,000 readers that come back at once")
    with server("sqlite", 50, 0.02) as at:
        run_ids = _start(at, "sqlite", RUNS)
        at.post("/go")
        read_all(open_readers(at, run_ids, 1))
        before, began = at.cpu, time.monotonic()
        readers = open_readers(at, run_ids, EACH, after=20)
        read_all(readers)
        seconds, used = time.monotonic() - began, at.cpu - before
    missing = sum(len(reader.delays) < 30 for reader in readers)
    micros = used / len(readers) * 1e6
    lines = [["seconds until all have everything", f"{seconds:.1f}"], ["CPU per reader, µs", f"{micros:.0f}"],
             ["readers that missed an event", report.judge("storm: missed", missing, 0)]]  # fmt: skip
    report.tables.append(Table("Serve: 1,000 readers that come back at once", ["", ""], lines))
    return {"storm_seconds": seconds, "storm_micros": micros}

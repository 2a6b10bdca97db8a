"""Runs `penstock demo --crash`: a worker is killed while a tool runs, another continues, and the reader reconnects."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Struct, field
from rich.console import Console

from penstock.cli.demo.crash_agent import BOOKED, LEDGER, NAME, PROMPT, SPEED, Entry, agent, read_ledger
from penstock.cli.demo.performance import command_name
from penstock.cli.demo.timeline import Plot
from penstock.cli.model_options import FailureError
from penstock.cli.runs.owners import parse_owner
from penstock.cli.screen.output import render_run
from penstock.cli.screen.remark import Remark, Shown
from penstock.cli.screen.rows import Row, Styled, Width, fit, paragraph, write_rows
from penstock.cli.screen.terminal import MAX_WIDTH, open_console, write_lines
from penstock.log.follow import follow
from penstock.log.opening import open as open_store
from penstock.log.take_up import read_log
from penstock.run.events import Done, LogEvent, StepEnd, StepStart, Taken, ToolEnd, ToolProgress, ToolStart, encode
from penstock.runs.runs import Runs

WORKERS = 2
START = 60.0
"""How many seconds the workers may take to start."""
_LEASE = 2.0  # seconds; the least that `penstock worker` takes is 1
_OUTAGE = 1.0  # seconds without a reader
_TARGET = "penstock.cli.demo.crash_agent:agent"


class Crash(Struct):
    """The kill and the reconnection, beside the events of the run. Times are in seconds since 1970."""

    run_id: str
    victim: int = 0
    heir: int = 0
    killed: float = 0.0
    taken_over: float = 0.0
    reconnected: float = 0.0
    after: int = 0
    """The number of the last event that the reader had when it reconnected."""
    numbers: list[int] = field(default_factory=list[int])
    done: Done | None = None

    @property
    def is_right(self) -> bool:
        """Whether the reader got each event once, and the run was answered."""
        is_answered = self.done is not None and self.done.reason == "answered"
        return is_answered and self.numbers == [*range(1, len(self.numbers) + 1)]


class Stage:
    """The workers of the demo, their log and their ledger, in a folder that is deleted afterwards."""

    def __init__(self, folder: Path, speed: float) -> None:
        self.log = folder / "runs.db"
        self.ledger = folder / "ledger.jsonl"
        self.outage = _OUTAGE / speed
        self._folder = folder
        self._speed = speed
        self.workers: list[subprocess.Popen[bytes]] = []

    def start_workers(self) -> None:
        """Starts the workers, and waits until they look for runs."""
        open_store(self.log).close()  # so that the workers do not create the tables at the same time
        logs = [self._start_worker(number) for number in range(WORKERS)]
        end = time.monotonic() + START
        while not all(log.stat().st_size for log in logs):
            if time.monotonic() > end or any(worker.poll() is not None for worker in self.workers):
                errors = " ".join(log.read_text(encoding="utf-8", errors="replace").strip() for log in logs)
                raise FailureError(f"the workers of the demo did not start: {errors}")
            time.sleep(0.02)

    def _start_worker(self, number: int) -> Path:
        lease = max(1.0, _LEASE / self._speed)
        command = [
            sys.executable,
            "-m",
            "penstock.cli",
            "worker",
            _TARGET,
            "--log",
            str(self.log),
            "--lease",
            str(lease),
        ]
        env = {**os.environ, LEDGER: str(self.ledger), SPEED: str(self._speed), "PYTHONIOENCODING": "utf-8"}
        log = self._folder / f"worker-{number}.log"
        with log.open("wb") as errors:
            worker = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, env=env)
        self.workers.append(worker)
        return log

    def kill(self, pid: int) -> None:
        """Kills a worker, as `kill -9` does."""
        next(worker for worker in self.workers if worker.pid == pid).kill()

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
            worker.wait()


@contextmanager
def open_stage(speed: float) -> Generator[Stage]:
    """The workers, while the demo runs."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-", ignore_cleanup_errors=True))
        stage = Stage(Path(folder), speed)
        stack.callback(stage.close)
        stage.start_workers()
        yield stage


def events_of(stage: Stage, crash: Crash) -> Iterator[tuple[int, Shown]]:
    """The events of the run with their numbers, and remarks: the worker is killed, and the reader reconnects."""
    for number, event in _read(stage, crash):
        yield number, event
        if isinstance(event, Taken):
            crash.victim = parse_owner(event.owner).pid
        if isinstance(event, ToolProgress) and event.data == BOOKED:
            stage.kill(crash.victim)
            crash.killed = time.time()
            dead = f"kill -9 {crash.victim}: the worker dies while {event.name} runs. Its reader loses the connection"
            yield 0, Remark(dead, "bad", "✗ ")
            break
    time.sleep(stage.outage)
    crash.after, crash.reconnected = crash.numbers[-1], time.time()
    yield 0, Remark(f"the reader is back, and asks for the events after number {crash.after}", "aside", "↻ ")
    for number, event in _read(stage, crash):
        if isinstance(event, Taken):
            crash.heir, crash.taken_over = parse_owner(event.owner).pid, time.time()
        yield number, event
        crash.done = event if isinstance(event, Done) else None


def _read(stage: Stage, crash: Crash) -> Iterator[tuple[int, LogEvent]]:
    """A reader of the log with its own connection, after the events of the previous one."""
    store = open_store(stage.log)
    try:
        for number, event in follow(store, crash.run_id, crash.numbers[-1] if crash.numbers else 0):
            crash.numbers.append(number)
            yield number, event
    finally:
        store.close()


def start_run(stage: Stage) -> Crash:
    """Starts the run, which a worker takes."""
    store = open_store(stage.log)
    try:
        return Crash(Runs(store, {NAME: agent}).start(NAME, PROMPT, run_id="order-1042"))
    finally:
        store.close()


# -- the output ----------------------------------------------------------------------------------------------------


def write_crash(speed: float) -> bool:
    """Runs the demo, and writes one event per line as JSON, with its number."""
    with open_stage(speed) as stage:
        crash = start_run(stage)
        for number, event in events_of(stage, crash):
            if not isinstance(event, Remark):
                write_lines([b'{"number":%d,"event":%b}' % (number, encode(event))])
    return crash.is_right


def show_crash(speed: float, console: Console | None = None, *, is_plain: bool = False) -> bool:
    """Runs the demo, shows the run, and then its timeline; returns whether all went well."""
    console = console or open_console(is_plain=is_plain)
    width = max(min(console.width - 1, MAX_WIDTH), 1)
    edge = width if console.is_terminal else None
    with open_stage(speed) as stage:
        write_rows(console, [*paragraph(_title(stage), "aside", edge), ()])
        crash = start_run(stage)
        with render_run(console, is_plain=is_plain) as print_event:
            for _, event in events_of(stage, crash):
                print_event(event, time.monotonic())
        if crash.is_right:
            write_rows(console, [(), *_timeline(stage, crash, width)])
        write_rows(console, [(), *_summary(crash, read_ledger(stage.ledger), edge)])
    write_rows(console, [(), *paragraph(_next_steps(), "aside", edge)])
    return crash.is_right


def _title(stage: Stage) -> str:
    pids = " and ".join(str(worker.pid) for worker in stage.workers)
    return f"penstock demo --crash · workers {pids} share the log {stage.log.name}"


def _timeline(stage: Stage, crash: Crash, width: int) -> list[Row]:
    store = open_store(stage.log)
    try:
        return crash_chart(CrashTimeline(read_log(store, crash.run_id), crash.killed, crash.reconnected), width)
    finally:
        store.close()


def _summary(crash: Crash, ledger: list[Entry], edge: Width) -> list[Row]:
    """The summary of the demo, with its counts."""
    refunds, mails = (sum(entry.tool == name for entry in ledger) for name in ("refund", "send_mail"))
    if not crash.is_right:
        return paragraph("The demo went wrong: the run has no answer, or its reader missed an event.", "bad", edge)
    head = f"The run survived kill -9: {refunds} refund, {mails} mail, events 1 to {len(crash.numbers)} read once each."
    text = (
        f"Worker {crash.victim} was killed while refund ran, after the bank had booked it. When its lease had ended, "
        f"{crash.taken_over - crash.killed:.1f} s later, worker {crash.heir} took the run over and continued where the "
        f"log ends. refund is idempotent: it ran again with the same key, and the bank did not book it twice. The "
        f"reader came back with the number {crash.after}, and missed nothing."
    )
    style = "good" if (refunds, mails) == (1, 1) else "bad"
    return [*paragraph(head, style, edge), *paragraph(text, "aside", edge)]


def _next_steps() -> str:
    command = f'{command_name()} run agent.py "…" --log runs.db'
    return f"Try it with your own agent: {command}, kill it, and repeat the command."


SIGNS = {"✗": "kill -9", "┄": "interrupted", "│": "taken over"}
"""The meaning of each sign in the chart."""


class Segment(Struct):
    """A period of activity."""

    begin: float
    end: float


class Lane(Struct):
    """One row: a worker, a response, a tool or the reader. `end` is the sign at its end."""

    name: str
    style: str
    segments: list[Segment] = field(default_factory=list[Segment])
    end: str = ""

    def begin(self, at: float) -> None:
        self.segments.append(Segment(at, at))


class CrashTimeline:
    """Collects the lanes of a run from its log. Times are in seconds since its first event.

    `killed` is when the first worker was killed, `reconnected` when the reader was back.
    """

    def __init__(self, events: Iterable[tuple[int, float, LogEvent]], killed: float, reconnected: float) -> None:
        self.lanes: list[Lane] = []
        self.end = 0.0
        self.taken_over = 0.0
        self._tools: dict[str, Lane] = {}  # that run, by execution key
        self._zero: float | None = None
        for _, at, event in events:
            self._zero = at if self._zero is None else self._zero
            self.end = at - self._zero
            self.killed = min(killed - self._zero, self.end)
            self._add(event, self.end)
        assert self._zero is not None
        reader = Lane("reader", "busy", [Segment(0, self.killed), Segment(reconnected - self._zero, self.end)], "✓")
        self.lanes.append(reader)

    def _add(self, event: LogEvent, now: float) -> None:
        match event:
            case Taken():
                self._take(event, now)
            case StepStart():
                self.lanes.append(Lane(f"response {event.step}", "response", [Segment(now, now)]))
            case StepEnd():
                self._lane(f"response {event.step}").segments[-1].end = now
            case ToolStart():
                lane = self._tools[event.key] = Lane(event.name, "good", [Segment(now, now)])
                self.lanes.append(lane)
            case ToolEnd() if event.key in self._tools:
                lane = self._tools.pop(event.key)
                lane.segments[-1].end, lane.end = now, "✓"
            case Done():
                worker = self._workers[-1]
                worker.segments[-1].end, worker.end = now, "✓"
            case _:
                pass

    def _take(self, event: Taken, now: float) -> None:
        """Start the lane of a worker; activities of the killed worker end and begin again."""
        if event.epoch > 1:
            self.taken_over = now
            for lane in (self._workers[-1], *self._tools.values()):
                lane.segments[-1].end = self.killed
            for lane in self._tools.values():
                lane.begin(now)
        name = f"worker {event.epoch}, pid {parse_owner(event.owner).pid}"
        self.lanes.insert(len(self._workers), Lane(name, "name", [Segment(now, now)]))

    @property
    def _workers(self) -> list[Lane]:
        return [lane for lane in self.lanes if lane.name.startswith("worker")]

    def _lane(self, name: str) -> Lane:
        return next(lane for lane in reversed(self.lanes) if lane.name == name)


def crash_chart(timeline: CrashTimeline, width: int) -> list[Row]:
    """The timeline, at most this wide."""
    name = min(max(len(lane.name) for lane in timeline.lanes) + 2, max(width - 20, 2))
    plot = Plot(timeline.end, width - name)
    rows: list[Row] = [((" " * name, ""), (plot.axis(), "axis"))]
    for lane in timeline.lanes:
        label = (fit(lane.name, name - 1).ljust(name), lane.style if lane.style == "name" else "title")
        rows.append((label, *_cells(lane, timeline, plot)))
    legend = " " * name + "   ".join(f"{sign} {meaning}" for sign, meaning in SIGNS.items())
    return [*rows, ((legend, "axis"),)] if len(legend) <= width else rows


def _cells(lane: Lane, timeline: CrashTimeline, plot: Plot) -> Row:
    cells: list[Styled] = [(" ", "")] * plot.width
    taken_over, killed = plot.column(timeline.taken_over), plot.column(timeline.killed)
    cells[taken_over] = ("│", "axis")
    last: int | None = None
    for segment in lane.segments:
        begin, end = plot.column(segment.begin), plot.column(segment.end)
        if last is not None:
            cells[last + 1 : begin] = [("┄", "axis")] * (begin - last - 1)
        cells[begin : end + 1] = [("━", lane.style)] * (end + 1 - begin)
        if end == killed and (segment is not lane.segments[-1] or not lane.end) and lane.name != "reader":
            cells[end] = ("✗", "bad")
        last = end
    if lane.end and last is not None:
        cells[last] = (lane.end, lane.style)
    return tuple(cells)

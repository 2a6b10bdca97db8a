"""Partial values: how time and memory grow when arguments, or an output, are read after every piece."""

from __future__ import annotations

import asyncio
import gc
import math
import statistics
import time
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import penstock
from benchmarks.clock import race
from benchmarks.content import cut, document, edits
from benchmarks.report import Report, Table, say
from benchmarks.streams import CALL_STREAMS, TOOL, openai_chat_text
from benchmarks.wires import known
from penstock.events import ToolCallDelta
from penstock.testing import Hang, Raw, Reset, Scripted
from penstock.testing.reply import Wait
from penstock.testing.response import Response
from penstock.transport.commands import OpenRequest

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
SHAPES = {"many fields": edits, "one long field": document}
OUTPUT = "run.partial"
GROWING = "penstock.Growing"
FIRST_LINE = 5.0
"""The target for the milliseconds from the request to the first line of an argument of 1 MB in a `prepare` function."""
TRIALS = 20
EXPONENT = 1.1
MEMORY = 4.0
"""The targets: the exponent of the time, and the peak memory relative to the length of the largest text."""
ROUNDS = 2
LAPS = {size: max(1, 200_000 // size) for size in SIZES}

Run = Callable[[], object]


@dataclass
class Edit:
    line: int
    old: str
    new: str


@dataclass
class Edits:
    path: str
    edits: list[Edit]


@dataclass
class Document:
    path: str
    content: str


OUTPUTS: dict[str, type] = {"many fields": Edits, "one long field": Document}


@dataclass(frozen=True)
class Scenario:
    """Values of one shape, parsed directly, `through` the decoder of a wire, or as the output of an agent."""

    shape: str
    through: str = ""

    def __str__(self) -> str:
        return f"{self.shape}, through {self.through}" if self.through else self.shape

    @property
    def is_memory_judged(self) -> bool:
        """False where two trees of many small values exist: the partial view, and the arguments of the call."""
        return not self.through

    def prepare(self, size: int) -> Run:
        """The run at this size; its input is created now, outside of the measurement."""
        arguments = SHAPES[self.shape](size)
        if self.through == GROWING:
            return partial(
                _read_growing, _pieces(b"".join(CALL_STREAMS["openai-chat"]("one tool", [arguments]).frames))
            )
        if self.through == OUTPUT:
            return partial(_read_output, OUTPUTS[self.shape], b"".join(openai_chat_text(cut(arguments)).frames))
        if self.through:
            return partial(_read_response, self.through, CALL_STREAMS[self.through]("one tool", [arguments]).frames)
        return partial(_read, cut(arguments))


def measure() -> Report:
    report = Report()
    wires = ["", *known(CALL_STREAMS, report), OUTPUT, GROWING]
    lines = [_line(Scenario(shape, wire), report) for wire in wires for shape in SHAPES]
    columns = ["value", *(f"{size // 1000} KB" for size in SIZES), "exponent", "peak ÷ text"]
    title = "CPU µs for an 8-character piece with `value` read after each, and peak memory at the largest size"
    report.tables.append(Table(f"Partial view: {title}", columns, lines))
    report.tables.append(_first_line(report))
    return report


def _first_line(report: Report) -> Table:
    """How long after the request the first line of a long argument is in the hands of `prepare`."""
    say("partial, first line")
    body = b"".join(CALL_STREAMS["openai-chat"]("one tool", [document(SIZES[-1])]).frames)
    median = statistics.median(_read_growing(_pieces(body)) for _ in range(TRIALS)) * 1000
    report.rows.append({"first_line_ms": median})
    row = [GROWING, report.judge("first line of a growing argument, ms", median, FIRST_LINE)]
    return Table(
        f"First line of an argument of 1 MB, ms after the request (median of {TRIALS})", ["read by", "ms"], [row]
    )


def _line(scenario: Scenario, report: Report) -> list[str]:
    say(f"partial, {scenario}")
    runs = {size: scenario.prepare(size) for size in SIZES}
    seconds = race(runs, rounds=ROUNDS, laps=LAPS)
    slope = exponent(seconds)
    memory = peak(runs[SIZES[-1]]) / SIZES[-1]
    report.rows.append(
        {
            "arguments": scenario.shape,
            "through": scenario.through,
            "cpu_seconds": seconds,
            "exponent": slope,
            "peak_over_text": memory,
        }
    )
    return [
        str(scenario),
        *(f"{time / (size / 8) * 1e6:.2f}" for size, time in seconds.items()),
        report.judge(f"{scenario}, exponent", slope, EXPONENT),
        report.judge(f"{scenario}, memory", memory, MEMORY if scenario.is_memory_judged else None),
    ]


def exponent(seconds: Mapping[int, float]) -> float:
    """The least-squares slope of log time over log size: 1 is linear, 2 is quadratic."""
    xs = [math.log(size) for size in seconds]
    ys = [math.log(time) for time in seconds.values()]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    shared = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    return shared / sum((x - x_mean) ** 2 for x in xs)


def peak(run: Run) -> int:
    """The peak of allocated bytes, relative to the start."""
    gc.collect()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _read(pieces: Sequence[str]) -> None:
    view = penstock.PartialJSON()
    for piece in pieces:
        view.feed(piece)
        _ = view.value
    _check(view)


def _read_response(wire: str, frames: Sequence[bytes]) -> None:
    decoder = penstock.Decoder(wire)
    view = penstock.PartialJSON()
    for frame in frames:
        for event in decoder.feed(frame):
            if type(event) is ToolCallDelta:
                view.feed(event.piece)
                _ = view.value
    decoder.close()
    _check(view)


def _read_output(kind: type, body: bytes) -> None:
    agent = penstock.Agent(penstock.Model("openai-compatible:m", via=Scripted([Raw(body)])), output=kind)
    with agent.stream("Go.") as run:
        for _ in run:
            _ = run.partial
    if not isinstance(run.output, kind):
        raise AssertionError(f"the output should be a {kind.__name__}, and is {run.output!r}")


def _pieces(body: bytes) -> tuple[bytes | Wait, ...]:
    """A body in pieces of 4 KB, which a connection would bring one by one."""
    return tuple(action for at in range(0, len(body), 4096) for action in (body[at : at + 4096], Wait(0.0)))


class _Pieces(Scripted):
    """Sends these pieces, and notes when it began. They are cut before, so that their memory is not measured."""

    def __init__(self, pieces: tuple[bytes | Wait, ...]) -> None:
        super().__init__([Raw(b"data: [DONE]\n\n"), "Done."])
        self.pieces = pieces
        self.began = 0.0

    def _respond(self, command: OpenRequest) -> Response | Hang | Reset:
        played = super()._respond(command)
        if len(self.requests) > 1 or not isinstance(played, Response):
            return played
        self.began = time.perf_counter()
        return Response(played.status, played.headers, self.pieces)


def _read_growing(pieces: tuple[bytes | Wait, ...]) -> float:
    """Let `prepare` read the arguments; returns the seconds until it had the first line."""
    script = _Pieces(pieces)
    first: list[float] = []
    read: list[str] = []

    async def receive(arguments: penstock.Growing) -> int:
        async for place, piece in arguments:
            if not first and isinstance(piece, str) and "\n" in piece:
                first.append(time.perf_counter() - script.began)
            if place == ("content",):
                read.append(piece)
        return sum(map(len, read))

    def write(context: penstock.Context[Any], **arguments: Any) -> str:
        if "content" in arguments and len(arguments["content"]) != context.prepared:
            raise AssertionError("prepare should have read the whole text")
        return "written"

    schema = {"type": "object"}
    tool = penstock.Tool.from_schema(TOOL, "Write.", schema, write, prepare=receive)
    agent = penstock.Agent(penstock.Model("openai-compatible:m", via=script), [tool])
    asyncio.run(agent.arun("Go."))
    return first[0] if first else math.inf


def _check(view: penstock.PartialJSON) -> None:
    if not view.is_complete:
        raise AssertionError(f"the view should be complete, and says: {view.error or 'no error'}")

"""Arguments while they are written: how time and memory grow when `PartialJSON.value` is read after every piece."""

from __future__ import annotations

import gc
import math
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import penstock
from benchmarks.clock import race
from benchmarks.content import cut, document, edits
from benchmarks.report import Report, Table, say
from benchmarks.streams import CALL_STREAMS
from penstock.errors import UnknownWireError
from penstock.events import ToolCallDelta

SIZES = (10_000, 30_000, 100_000, 300_000, 1_000_000)
EXPONENT = 1.1
MEMORY = 4.0
"""The target: the peak of memory over the length of the text, at the largest size."""
ROUNDS = 3

Run = Callable[[], object]


def measure() -> Report:
    report = Report()
    times: list[list[str]] = []
    peaks: list[list[str]] = []
    scenarios: list[tuple[str, Callable[[int], Run]]] = [
        ("PartialJSON, many fields", lambda size: partial(_read, cut(edits(size)))),
        ("PartialJSON, one long field", lambda size: partial(_read, cut(document(size)))),
        *((f"through {wire}, many fields", partial(_response, wire)) for wire in CALL_STREAMS if _is_known(wire, report)),
    ]
    for name, prepare in scenarios:
        say(f"partial {name}")
        runs = {size: prepare(size) for size in SIZES}
        seconds = race(runs, rounds=ROUNDS, laps={size: max(1, 100_000 // size) for size in SIZES})
        memory = {size: peak(run) / size for size, run in runs.items()}
        slope = exponent(seconds)
        times.append([name, *_per_piece(seconds), report.judge(f"partial, {name}, exponent", slope, EXPONENT)])
        verdict = report.judge(f"partial, {name}, memory", memory[SIZES[-1]], MEMORY)
        peaks.append([name, *(f"{memory[size]:.2f}" for size in SIZES[:-1]), verdict])
        report.rows.append({"scenario": name, "cpu_seconds": seconds, "exponent": slope, "peak_over_text": memory})
    heads = [f"{size // 1000} KB" for size in SIZES]
    title = "CPU time in µs for an 8-character piece, `value` read after each; the exponent is fitted to the whole times"
    report.tables.append(Table(f"Partial view: {title}", ["", *heads, "exponent"], times))
    report.tables.append(Table("Partial view: peak memory (tracemalloc) over the text's length", ["", *heads], peaks))
    return report


def exponent(seconds: Mapping[int, float]) -> float:
    """The slope of the line through (log size, log time) with the least squares: 1 is linear, 2 is quadratic."""
    xs = [math.log(size) for size in seconds]
    ys = [math.log(time) for time in seconds.values()]
    x_mean, y_mean = sum(xs) / len(xs), sum(ys) / len(ys)
    shared = sum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    return shared / sum((x - x_mean) ** 2 for x in xs)


def peak(run: Run) -> int:
    """The most bytes that were in use at once, beyond those in use before."""
    gc.collect()
    tracemalloc.start()
    try:
        run()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def _per_piece(seconds: Mapping[int, float]) -> list[str]:
    return [f"{time / (size / 8) * 1e6:.2f}" for size, time in seconds.items()]


def _read(pieces: Sequence[str]) -> None:
    view = penstock.PartialJSON()
    for piece in pieces:
        view.feed(piece)
        _ = view.value
    if not view.is_complete:
        raise AssertionError(f"the view is not complete: {view.error}")


def _response(wire: str, size: int) -> Run:
    return partial(_read_response, wire, CALL_STREAMS[wire]("one tool", [edits(size)]).frames)


def _read_response(wire: str, frames: Sequence[bytes]) -> None:
    decoder = penstock.Decoder(wire)
    view = penstock.PartialJSON()
    for frame in frames:
        for event in decoder.feed(frame):
            if isinstance(event, ToolCallDelta):
                view.feed(event.piece)
                _ = view.value
    decoder.close()
    if not view.is_complete:
        raise AssertionError(f"the view is not complete: {view.error}")


def _is_known(wire: str, report: Report) -> bool:
    try:
        penstock.Decoder(wire)
    except UnknownWireError as error:
        report.notes.append(f"partial through {wire}: skipped, {error}")
        return False
    return True

"""Bytes to events: the CPU time of `penstock.Decoder`, as a multiple of the floor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import penstock
from benchmarks.clock import race
from benchmarks.floor import floor
from benchmarks.report import Report, Table, say
from benchmarks.streams import FRAMES, READS, Stream, standard
from benchmarks.wires import known

TARGETS = {READS: 1.3, FRAMES: 2.3}
ROUNDS = 30
LAPS = 3


def measure() -> Report:
    report = Report()
    streams = standard()
    wires = known((stream.wire for stream in streams), report)
    lines = [_line(stream, report) for stream in streams if stream.wire in wires]
    columns = ["wire", "stream", "frames", "floor µs", *(head for way in TARGETS for head in (f"{way} µs", "× floor"))]
    report.tables.append(
        Table("Decode: CPU time for a frame, and as a multiple of the floor", columns, lines, labels=2)
    )
    return report


def _line(stream: Stream, report: Report) -> list[str]:
    what = f"{stream.wire}, {stream.name}"
    say(f"decode, {what}")
    wrong = [way for way, reads in stream.ways.items() if not _is_right(stream, reads)]
    report.missed += [f"{what}, {way}: the result is wrong, so that its time means nothing" for way in wrong]

    runners: dict[str, Callable[[], object]] = {"floor": partial(floor, stream.body)}
    runners |= {way: partial(_run, stream.wire, reads) for way, reads in stream.ways.items()}
    laps = dict.fromkeys(runners, LAPS)
    count = len(stream.frames)
    micros = {name: seconds / count * 1e6 for name, seconds in race(runners, rounds=ROUNDS, laps=laps).items()}
    report.rows.append(
        {"wire": stream.wire, "stream": stream.name, "frames": count, "micros_per_frame": micros, "wrong": wrong}
    )

    line = [stream.wire, stream.name, str(count), f"{micros['floor']:.2f}"]
    for way, target in TARGETS.items():
        verdict = report.judge(f"{what}, {way}", micros[way] / micros["floor"], target)
        line += [f"{micros[way]:.2f}", "wrong" if way in wrong else verdict]
    return line


def _run(wire: str, reads: Sequence[bytes]) -> None:
    decoder = penstock.Decoder(wire)
    feed = decoder.feed
    for data in reads:
        feed(data)
    decoder.close()


def _is_right(stream: Stream, reads: Sequence[bytes]) -> bool:
    decoder = penstock.Decoder(stream.wire)
    events = [event for data in reads for event in decoder.feed(data)]
    turn = penstock.collect(events + decoder.close())
    return stream.is_answered_by(turn.text, [call.arguments for call in turn.tool_calls])

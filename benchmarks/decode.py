"""Bytes to events: the CPU time of `penstock.Decoder`, as a multiple of the floor."""

from __future__ import annotations

from collections.abc import Sequence

import penstock
from benchmarks.clock import race
from benchmarks.floor import floor
from benchmarks.report import Report, Table, say
from benchmarks.streams import Stream, standard
from penstock.errors import UnknownWireError

READ = 64 * 1024
TARGETS = {"64 KiB reads": 1.6, "frame by frame": 2.5}
JUDGED = ("openai-chat", "openai-responses", "anthropic")
"""The wires on which the targets hold; the others are shown."""
ROUNDS = 40


def measure() -> Report:
    report = Report()
    lines = [line for stream in standard() if (line := _line(stream, report))]
    columns = ["wire", "stream", "frames", "floor µs", *(head for name in TARGETS for head in (f"{name} µs", "× floor"))]
    report.tables.append(Table("Decode: CPU time for a frame, and as a multiple of the floor", columns, lines, labels=2))
    return report


def _line(stream: Stream, report: Report) -> list[str] | None:
    """A stream's line of the table; None if there is no such wire."""
    what = f"decode {stream.wire}, {stream.name}"
    say(what)
    reads = {"64 KiB reads": stream.reads(READ), "frame by frame": list(stream.frames)}
    try:
        penstock.Decoder(stream.wire)
    except UnknownWireError as error:
        report.notes.append(f"{what}: skipped, {error}")
        return None
    if not all(_is_right(stream, pieces) for pieces in reads.values()):
        report.missed.append(f"{what}: the result is wrong, so its time means nothing")
        return None

    body, count = stream.body, len(stream.frames)
    best = race(
        {
            "floor": lambda: floor(body),
            "64 KiB reads": lambda: _run(stream.wire, reads["64 KiB reads"]),
            "frame by frame": lambda: _run(stream.wire, reads["frame by frame"]),
        },
        rounds=ROUNDS,
    )
    micros = {name: seconds / count * 1e6 for name, seconds in best.items()}
    report.rows.append({"wire": stream.wire, "stream": stream.name, "frames": count, "micros_per_frame": micros})

    line = [stream.wire, stream.name, str(count), f"{micros['floor']:.2f}"]
    for name, target in TARGETS.items():
        ratio = micros[name] / micros["floor"]
        is_judged = stream.wire in JUDGED
        line += [f"{micros[name]:.2f}", report.judge(f"{what}, {name}", ratio, target) if is_judged else f"{ratio:.2f}    "]
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

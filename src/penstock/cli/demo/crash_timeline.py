"""The timeline of a run that outlives a worker: its workers, tools and reader."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from penstock.cli.demo.timeline import Plot
from penstock.cli.runs.owners import parse_owner
from penstock.cli.screen.rows import Row, Styled, fit
from penstock.run.events import Done, LogEvent, StepEnd, StepStart, Taken, ToolEnd, ToolStart

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

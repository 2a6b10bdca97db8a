"""The timeline of a run: when each response and each tool began and ended, drawn as a chart."""

from __future__ import annotations

import math
from typing import Literal

from msgspec import Struct

from penstock.cli.screen.rows import Row, Styled, Width, fit, paragraph
from penstock.events import ToolCall, ToolCallClosed
from penstock.run.early_starts import LateTool, ToolRun, last_late_tool
from penstock.run.events import CallOrdering, Done, StepEnd, StepStart, StreamEvent, ToolEnd, ToolStart

Lane = Literal["response", "done", "failed"]

LANES: dict[Lane, str] = {"response": "response", "done": "good", "failed": "bad"}
"""The style of each lane."""
SIGNS = {"◆": "arguments complete", "┄": "waiting", "│": "end of the response"}
"""The meaning of each sign in the chart."""
_NAME = 24  # columns for the names, at most
_NUMBERS = 8  # columns for each of the three numbers
_TICK = 6  # columns between two seconds of the axis, at least
_LEAST_PLOT = 20  # columns for the bars, at least
_WIDE_PLOT = 30  # with less, the numbers are left out

_LITTLE = 0.1  # a lead shorter than this part of the time of the tools is explained


class Bar(Struct):
    """One row: a response of the model, or a tool. `closed` is when the arguments of the call were complete."""

    name: str
    lane: Lane
    begin: float
    end: float
    closed: float | None = None
    order: CallOrdering = "effect"

    @property
    def ran(self) -> ToolRun:
        """The tool with rounded times, so that what is shown adds up."""
        return ToolRun(self.name, self.order, round(self.begin, 2), round(self.end - self.begin, 2))


class Wait(Struct, frozen=True):
    """The time between a response with calls and the next request.

    `left` is when that request was sent. Had all tools started at the end of the response, it would have been sent at
    `late`, when `last` would have ended. `closed` is when the first call had all its arguments: no tool could start
    before.
    """

    response_end: float
    last: LateTool
    left: float
    closed: float

    @property
    def late(self) -> float:
        return round(self.last.end, 2)

    @property
    def lead(self) -> float:
        """How long the response continued once a tool could start: the most that can be saved."""
        return round(max(self.response_end - self.closed, 0.0), 2)

    @property
    def saved(self) -> float:
        return round(self.late - self.left, 2)


class Timeline:
    """Collects the bars and the waits of a run. Times are in seconds since the first event.

    `epoch` is the time since 1970 at which the clock of the events was 0: tools have their own times, because the end
    of a tool that started early is reported when its call is confirmed.
    """

    def __init__(self, epoch: float) -> None:
        self.bars: list[Bar] = []
        self.waits: list[Wait] = []
        self.end = 0.0
        self._epoch = epoch
        self._zero: float | None = None
        self._closed: dict[str, float] = {}  # when the calls of this response closed, by call id
        self._tools: dict[str, Bar] = {}  # bars of the tools of this response, by execution key
        self._response = Bar("", "response", 0, 0)

    def add(self, event: StreamEvent, at: float) -> None:
        """Adds an event that arrived at this time."""
        self._zero = at if self._zero is None else self._zero
        now = self.end = at - self._zero
        match event:
            case StepStart():
                self._start_step(event.step, now)
            case StepEnd():
                self._response.end = now
            case ToolCallClosed() | ToolCall():
                self._closed.setdefault(event.id, now)
            case ToolStart():
                bar = Bar(event.name, "done", now, now, self._closed.get(event.call_id), event.order)
                self._tools[event.key] = bar
                self.bars.append(bar)
            case ToolEnd() if event.key in self._tools:
                self._end_tool(self._tools[event.key], event, now)
            case Done():
                self._response.end = self._response.end or now
            case _:
                pass

    def _start_step(self, step: int, now: float) -> None:
        if self._tools:
            end = round(self._response.end, 2)
            last = last_late_tool((bar.ran for bar in self._tools.values()), end)
            assert last is not None
            closed = min(bar.begin if bar.closed is None else bar.closed for bar in self._tools.values())
            self.waits.append(Wait(end, last, round(now, 2), round(closed, 2)))
        self._tools, self._closed = {}, {}
        self._response = Bar(f"response {step}", "response", now, 0)
        self.bars.append(self._response)

    def _end_tool(self, bar: Bar, event: ToolEnd, now: float) -> None:
        assert self._zero is not None
        bar.lane = "done" if event.ending == "done" else "failed"
        bar.end = now
        if event.started is not None and event.seconds is not None:
            bar.begin = event.started - self._epoch - self._zero
            bar.end = bar.begin + event.seconds
            if bar.closed is not None:  # the tool starts before its events reach the reader, who timed `closed`
                bar.closed = min(bar.closed, bar.begin)


# -- the chart -----------------------------------------------------------------------------------------------------


def chart(timeline: Timeline, width: int) -> list[Row]:
    """The timeline, at most this wide."""
    longest = max((len(bar.name) for bar in timeline.bars), default=0)
    name = min(longest + 2, _NAME, max(width - _LEAST_PLOT, 2))
    has_numbers = width - name - 3 * _NUMBERS >= _WIDE_PLOT
    plot = Plot(timeline.end, width - name - (3 * _NUMBERS if has_numbers else 0))
    rows: list[Row] = [((" " * name, ""), (plot.axis(), "axis"), (_heads() if has_numbers else "", "axis"))]
    end: int | None = None  # the column of the end of the last response
    for bar in timeline.bars:
        label = (fit(bar.name, name - 1).ljust(name), "title" if bar.lane == "response" else "name")
        numbers = (_numbers(bar) if has_numbers else "", "aside")
        rows.append((label, *plot.bar(bar, end, is_last=bar is timeline.bars[-1]), numbers))
        end = plot.column(bar.end) if bar.lane == "response" else end
    return [*rows, *_legend(rows, name, width)]


def _legend(rows: list[Row], indent: int, width: int) -> list[Row]:
    """The meaning of the signs in the chart; nothing if that does not fit."""
    drawn = {"│" if text in "┑┿" else text for row in rows for text, _ in row if text}
    legend = " " * indent + "   ".join(f"{sign} {meaning}" for sign, meaning in SIGNS.items() if sign in drawn)
    return [((legend, "axis"),)] if legend.strip() and len(legend) <= width else []


class Plot:
    """Converts seconds to columns."""

    def __init__(self, seconds: float, width: int) -> None:
        self.width = max(width, 2)
        self._scale = (self.width - 1) / (seconds or 1)
        self._seconds = seconds

    def axis(self) -> str:
        """The labels of the axis, in seconds."""
        step = _step(_TICK / self._scale)
        line = ""
        for count in range(math.floor(self._seconds / step) + 1):
            label, column = f"{count * step:g} s", self.column(count * step)
            if column + len(label) <= self.width:
                line = line.ljust(column) + label
        return line.ljust(self.width)

    def bar(self, bar: Bar, response_end: int | None, *, is_last: bool) -> Row:
        """A bar: dotted while the call waits, heavy while it runs; ◆ is where its arguments were complete.

        A line goes down from the end of a response, through the bars of its calls, to the next response.
        """
        style = LANES[bar.lane]
        cells = [(" ", "")] * self.width
        begin, end = self.column(bar.begin), self.column(bar.end)
        cells[begin : end + 1] = [("━", style)] * (end + 1 - begin)
        closed = begin if bar.closed is None else min(self.column(bar.closed), begin)
        cells[closed:begin] = [("┄", "busy")] * (begin - closed)
        if response_end is not None:
            cells[response_end] = _crossed(cells[response_end])
        if bar.closed is not None:
            cells[closed] = ("◆", "busy" if closed < begin else style)
        if bar.lane != "response":
            cells[end] = ("✓" if bar.lane == "done" else "✗", style)
        elif not is_last:
            cells[end] = ("┑", style)
        return tuple(cells)

    def column(self, seconds: float) -> int:
        return min(max(round(seconds * self._scale), 0), self.width - 1)


def _crossed(cell: Styled) -> Styled:
    """A cell with the line from the end of a response through it."""
    text, style = cell
    return ("┿", style) if text == "━" else ("│", "axis")


def savings(waits: list[Wait], width: Width) -> list[Row]:
    """The time that the early start saved, and how it is computed."""
    saved = round(sum(wait.saved for wait in waits), 2)
    head = f"The early start saved {saved:.2f} s." if saved > 0 else "The early start saved nothing in this run."
    explanation = " ".join(f"{_computation(wait, number)}{_little_saved(wait)}" for number, wait in enumerate(waits, 2))
    return [*paragraph(head, "good" if saved > 0 else "odd", width), *paragraph(explanation, "aside", width)]


def _computation(wait: Wait, request: int) -> str:
    chain = wait.last.chain
    begin = wait.late - sum(tool.seconds for tool in chain)
    tools = " + ".join(f"{tool.seconds:.2f} ({tool.name})" for tool in chain)
    return (
        f"Request {request} was sent at {wait.left:.2f} s. Had the tools waited for the end of the response at "
        f"{wait.response_end:.2f} s, it would have been sent at {begin:.2f} + {tools} = {wait.late:.2f} s."
    )


def _little_saved(wait: Wait) -> str:
    """Why there was little to save, if so: the calls came near the end of the response."""
    if wait.lead >= _LITTLE * (wait.late - wait.response_end):
        return ""
    return f" There was little to save: the calls came at the very end, {wait.lead:.2f} s before the response ended."


def _heads() -> str:
    return "".join(word.rjust(_NUMBERS) for word in ("closed", "start", "end"))


def _numbers(bar: Bar) -> str:
    numbers = (bar.closed, bar.begin, bar.end)
    return "".join(("" if number is None else f"{number:.2f}").rjust(_NUMBERS) for number in numbers)


def _step(least: float) -> float:
    """A round number of seconds that is not less than this."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)

"""A timeline as rows: one bar an answer or a tool, and what starting early has saved."""

from __future__ import annotations

import math

from penstock.cli.rows import Row, fitted, paragraph
from penstock.cli.timeline import Bar, Timeline, Wait

STYLES = {"answer": "answer", "done": "good", "failed": "bad"}
_NAME = 24  # columns for the names, at most
_NUMBERS = 8  # columns for each of the three numbers
_TICK = 6  # columns between two seconds of the axis, at least
_LEAST_PLOT = 20  # columns for the bars, at least
_ROOMY_PLOT = 30  # with less than this, the numbers are left out

_LITTLE = 0.1  # of the longest tool's time: a lead shorter than this is worth an explanation


def chart(timeline: Timeline, width: int) -> list[Row]:
    """The timeline, at most this wide."""
    longest = max((len(bar.name) for bar in timeline.bars), default=0)
    name = min(longest + 2, _NAME, max(width - _LEAST_PLOT, 2))
    has_numbers = width - name - 3 * _NUMBERS >= _ROOMY_PLOT
    plot = Plot(timeline, width - name - (3 * _NUMBERS if has_numbers else 0))
    rows: list[Row] = [((" " * name, ""), (plot.axis(), "axis"), (_heads() if has_numbers else "", "axis"))]
    for bar in timeline.bars:
        label = (fitted(bar.name, name - 1).ljust(name), "title" if bar.lane == "answer" else "name")
        numbers = (_numbers(bar) if has_numbers else "", "aside")
        rows.append((label, *plot.bar(bar), numbers))
    return rows


class Plot:
    """Seconds to columns."""

    def __init__(self, timeline: Timeline, width: int) -> None:
        self._width = max(width, 2)
        self._scale = (self._width - 1) / (timeline.end or 1)
        self._seconds = timeline.end
        self._ends = {self._column(wait.answer_end) for wait in timeline.waits}

    def axis(self) -> str:
        """The seconds, a few of them."""
        step = _step(_TICK / self._scale)
        line = ""
        for count in range(math.floor(self._seconds / step) + 1):
            label, column = f"{count * step:g} s", self._column(count * step)
            if column + len(label) <= self._width:
                line = line.ljust(column) + label
        return line.ljust(self._width)

    def bar(self, bar: Bar) -> Row:
        """A bar: dotted while the call waits, heavy while it runs; ◆ is where its arguments closed."""
        cells = [("┊", "axis") if column in self._ends else (" ", "") for column in range(self._width)]
        begin, end = self._column(bar.begin), self._column(bar.end)
        for column in range(begin, end + 1):
            cells[column] = ("━", STYLES[bar.lane])
        if bar.closed is not None:
            closed = min(self._column(bar.closed), begin)
            cells[closed:begin] = [("┄", "busy")] * (begin - closed)
            cells[closed] = ("◆", "busy" if closed < begin else STYLES[bar.lane])
        if bar.lane != "answer":
            cells[end] = ("✓" if bar.lane == "done" else "✗", STYLES[bar.lane])
        return tuple(cells)

    def _column(self, seconds: float) -> int:
        return min(max(round(seconds * self._scale), 0), self._width - 1)


def savings(waits: list[Wait], width: int) -> list[Row]:
    """What the early start has saved, and how that is reckoned."""
    saved = round(sum(wait.saved for wait in waits), 2)
    head = f"The early start saved {saved:.2f} s." if saved > 0 else "The early start saved nothing in this run."
    reckoned = " ".join(f"{_reckoned(wait, at)}{_excuse(wait)}" for at, wait in enumerate(waits, 2))
    return [*paragraph(head, "good" if saved > 0 else "odd", width), *paragraph(reckoned, "aside", width)]


def _reckoned(wait: Wait, request: int) -> str:
    return (
        f"Request {request} left at {wait.left:.2f} s. Had the tools waited for the end of the answer at "
        f"{wait.answer_end:.2f} s, it would have left at {wait.answer_end:.2f} + {wait.longest_seconds:.2f} "
        f"({wait.longest}, the longest) = {wait.late:.2f} s."
    )


def _excuse(wait: Wait) -> str:
    """Why there was little to save, if so: the calls came when the answer was as good as over."""
    if wait.lead >= _LITTLE * wait.longest_seconds:
        return ""
    return f" There was little to save: the calls came at the very end, {wait.lead:.2f} s before the answer was over."


def _heads() -> str:
    return "".join(word.rjust(_NUMBERS) for word in ("closed", "start", "end"))


def _numbers(bar: Bar) -> str:
    numbers = (bar.closed, bar.begin, bar.end)
    return "".join(("" if number is None else f"{number:.2f}").rjust(_NUMBERS) for number in numbers)


def _step(least: float) -> float:
    """A round number of seconds that is not less than this."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)

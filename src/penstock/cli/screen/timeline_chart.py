"""A timeline as rows: one bar an answer or a tool, and what starting early has saved."""

from __future__ import annotations

import math

from penstock.cli.screen.rows import Row, fitted, paragraph
from penstock.cli.screen.terminal import Styled
from penstock.cli.screen.timeline import Bar, Lane, Timeline, Wait

LANES: dict[Lane, str] = {"answer": "answer", "done": "good", "failed": "bad"}
"""The style of each lane."""
SIGNS = {"◆": "its arguments closed", "┄": "it waits", "│": "the answer ends"}
"""What a sign among the bars means."""
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
    end: int | None = None  # the column at which the last answer has ended
    for bar in timeline.bars:
        label = (fitted(bar.name, name - 1).ljust(name), "title" if bar.lane == "answer" else "name")
        numbers = (_numbers(bar) if has_numbers else "", "aside")
        rows.append((label, *plot.bar(bar, end, is_last=bar is timeline.bars[-1]), numbers))
        end = plot.column(bar.end) if bar.lane == "answer" else end
    return [*rows, *_legend(rows, name, width)]


def _legend(rows: list[Row], indent: int, width: int) -> list[Row]:
    """What the signs that were drawn mean; nothing, if that does not fit."""
    drawn = {"│" if text in "┑┿" else text for row in rows for text, _ in row if text}
    told = " " * indent + "   ".join(f"{sign} {meaning}" for sign, meaning in SIGNS.items() if sign in drawn)
    return [((told, "axis"),)] if told.strip() and len(told) <= width else []


class Plot:
    """Seconds to columns."""

    def __init__(self, timeline: Timeline, width: int) -> None:
        self._width = max(width, 2)
        self._scale = (self._width - 1) / (timeline.end or 1)
        self._seconds = timeline.end

    def axis(self) -> str:
        """The seconds, a few of them."""
        step = _step(_TICK / self._scale)
        line = ""
        for count in range(math.floor(self._seconds / step) + 1):
            label, column = f"{count * step:g} s", self.column(count * step)
            if column + len(label) <= self._width:
                line = line.ljust(column) + label
        return line.ljust(self._width)

    def bar(self, bar: Bar, answer_end: int | None, *, is_last: bool) -> Row:
        """A bar: dotted while the call waits, heavy while it runs; ◆ is where its arguments closed.

        A line goes down from the end of an answer, through the bars of its calls, to the next answer.
        """
        style = LANES[bar.lane]
        cells = [(" ", "")] * self._width
        begin, end = self.column(bar.begin), self.column(bar.end)
        cells[begin : end + 1] = [("━", style)] * (end + 1 - begin)
        closed = begin if bar.closed is None else min(self.column(bar.closed), begin)
        cells[closed:begin] = [("┄", "busy")] * (begin - closed)
        if answer_end is not None:
            cells[answer_end] = _crossed(cells[answer_end])
        if bar.closed is not None:
            cells[closed] = ("◆", "busy" if closed < begin else style)
        if bar.lane != "answer":
            cells[end] = ("✓" if bar.lane == "done" else "✗", style)
        elif not is_last:
            cells[end] = ("┑", style)
        return tuple(cells)

    def column(self, seconds: float) -> int:
        return min(max(round(seconds * self._scale), 0), self._width - 1)


def _crossed(cell: Styled) -> Styled:
    """The cell where the line from the end of an answer goes through it."""
    text, style = cell
    return ("┿", style) if text == "━" else ("│", "axis")


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

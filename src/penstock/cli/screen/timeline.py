"""When what happened in a run: a fold over events and the moments at which they came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from penstock.cli.screen.call_card import Span
from penstock.events import ToolCall, ToolCallClosed
from penstock.run.events import Done, StepEnd, StepStart, StreamEvent, ToolEnd, ToolStart

Lane = Literal["answer", "done", "failed"]


class Bar(Struct):
    """One row: an answer of the model, or a tool. `closed` is when the arguments were all there."""

    name: str
    lane: Lane
    begin: float
    end: float
    closed: float | None = None
    call_id: str = ""


class Wait(Struct, frozen=True):
    """What lay between an answer with calls and the next request.

    `left` is when that request left. Had all tools started only when the answer was over, it could not have left before
    `late`: the end of the answer, and then as long as the longest tool took in this very run. `closed` is when the
    first of the calls had all its arguments: before that, nothing could start.
    """

    answer_end: float
    longest: str
    longest_seconds: float
    left: float
    closed: float

    @property
    def late(self) -> float:
        return round(self.answer_end + self.longest_seconds, 2)

    @property
    def lead(self) -> float:
        """For how long the answer went on once a tool could start: what can be saved at most."""
        return round(max(self.answer_end - self.closed, 0.0), 2)

    @property
    def saved(self) -> float:
        return round(self.late - self.left, 2)


class Timeline:
    """Adds up the bars and the waits of a run. Times are in seconds from the first event.

    `spans` says when tools really ran, by the ids of their calls: the end of a tool that started early is told when its
    call is confirmed, and not before. Without it, the events are all there is to go by.
    """

    def __init__(self, spans: Mapping[str, Span] | None = None) -> None:
        self.bars: list[Bar] = []
        self.waits: list[Wait] = []
        self.end = 0.0
        self._spans = {} if spans is None else spans
        self._zero: float | None = None
        self._closed: dict[str, float] = {}  # of this answer, by the ids of the calls
        self._tools: dict[str, Bar] = {}  # of this answer, by the keys of the executions
        self._answer = Bar("", "answer", 0, 0)

    def add(self, event: StreamEvent, at: float) -> None:
        """Take an event in, with the moment at which it came."""
        self._zero = at if self._zero is None else self._zero
        now = self.end = at - self._zero
        match event:
            case StepStart():
                self._asked(event.step, now)
            case StepEnd():
                self._answer.end = now
            case ToolCallClosed() | ToolCall():
                self._closed.setdefault(event.id, now)
            case ToolStart():
                bar = Bar(event.name, "done", now, now, self._closed.get(event.call_id), event.call_id)
                self._tools[event.key] = bar
                self.bars.append(bar)
            case ToolEnd() if event.key in self._tools:
                self._ended(self._tools[event.key], event, now)
            case Done():
                self._answer.end = self._answer.end or now
            case _:
                pass

    def _asked(self, step: int, now: float) -> None:
        if self._tools:
            longest = max(self._tools.values(), key=lambda bar: bar.end - bar.begin)
            seconds = round(longest.end - longest.begin, 2)
            closed = min(bar.begin if bar.closed is None else bar.closed for bar in self._tools.values())
            end = round(self._answer.end, 2)
            self.waits.append(Wait(end, longest.name, seconds, round(now, 2), round(closed, 2)))
        self._tools, self._closed = {}, {}
        self._answer = Bar(f"answer {step}", "answer", now, 0)
        self.bars.append(self._answer)

    def _ended(self, bar: Bar, event: ToolEnd, now: float) -> None:
        assert self._zero is not None
        bar.lane = "done" if event.ending == "done" else "failed"
        bar.end = now
        if span := self._spans.get(bar.call_id):
            bar.begin, bar.end = span.begin - self._zero, span.end - self._zero

"""Spans of one step and of one tool, with times that their events lack."""

from __future__ import annotations

from typing import Any

from opentelemetry.trace import Span, Status, StatusCode

from penstock.events import Usage
from penstock.run.early_starts import ToolRun
from penstock.run.events import CallOrdering, ToolEnd, ToolStart
from penstock.run.limits import add_usage
from penstock.tracing import conventions as names
from penstock.tracing.instruments import Attributes
from penstock.turn import TurnBuilder


class StepSpan:
    """The request of a step and its response. Times are seconds of a monotonic clock."""

    def __init__(self, span: Span, begin: float, keeps_content: bool) -> None:
        self.span = span
        self.begin = begin
        self.first: float | None = None
        self.last = begin
        self.chunks = 0
        self.model = ""
        self.error = ""
        self.so_far: Usage | None = None  # usage of the current attempt
        self.usage: Usage | None = None  # usage of the finished attempts
        self.cost: float | None = None
        self.builder = TurnBuilder() if keeps_content else None

    def add_chunk(self, now: float) -> float | None:
        """Add a network read; returns the seconds since the previous one, if any."""
        self.chunks += 1
        gap = None if self.first is None else now - self.last
        self.first = now if self.first is None else self.first
        self.last = now
        return gap

    def add(self, usage: Usage, cost: float | None) -> None:
        """Add the usage of a finished or withdrawn attempt."""
        self.usage = usage if self.usage is None else add_usage(self.usage, usage)
        if cost is not None:
            self.cost = (self.cost or 0.0) + cost

    @property
    def timing(self) -> Attributes:
        """The timing attributes of the response."""
        if self.first is None:
            return {}
        attributes: Attributes = {
            names.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK: self.first - self.begin,
            names.PENSTOCK_CHUNKS: self.chunks,
        }
        if self.last > self.first:
            attributes[names.PENSTOCK_CHUNK_RATE] = (self.chunks - 1) / (self.last - self.first)
        return attributes


class ToolSpan:
    """An execution of a tool, which begins at this second of a monotonic clock."""

    def __init__(self, span: Span, begin: float, start: ToolStart | None) -> None:
        self.span = span
        self.begin = begin
        self.is_early = start is not None and start.is_early
        self.order: CallOrdering = "effect" if start is None else start.order

    def ran(self, end: ToolEnd, epoch: float, now: float) -> ToolRun:
        """When its function ran; until now if it did not come to its end. `epoch` is when the clock was 0."""
        if end.started is None or end.seconds is None:
            return ToolRun(end.name, self.order, self.begin, now - self.begin)
        return ToolRun(end.name, self.order, end.started - epoch, end.seconds)


def usage_attributes(usage: Usage | None) -> Attributes:
    """The token counts; cached and reasoning tokens only if there are any."""
    if usage is None:
        return {}
    parts = {name: getattr(usage, field) for field, name in names.USAGE_PARTS.items()}
    counts = {
        names.GEN_AI_USAGE_INPUT_TOKENS: usage.input_tokens,
        names.GEN_AI_USAGE_OUTPUT_TOKENS: usage.output_tokens,
    }
    return {**counts, **{name: count for name, count in parts.items() if count}}


def fail(span: Span, kind: str, message: str = "") -> None:
    """Mark a span as failed; with the message only if that has no content of the run."""
    span.set_attribute(names.ERROR_TYPE, kind)
    span.set_status(Status(StatusCode.ERROR, message or None))


def set_all(span: Span, attributes: dict[str, Any]) -> None:
    """Set the attributes that have a value."""
    span.set_attributes({name: value for name, value in attributes.items() if value is not None})

"""What the reader of a run sees of its events: line breaks, and the events that are derived from others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.agent.config import AgentConfig
from penstock.errors import AlreadyReadError
from penstock.events import Text, ToolCall, ToolCallInvalid, ToolCallStart
from penstock.output.partial import PartialView, partial_view
from penstock.run.events import StepStart, StreamEvent


class LineBreaks:
    """Begins text that follows tool calls on a line of its own (`Agent(separate_text=True)`)."""

    def __init__(self) -> None:
        self._is_due = False

    def feed(self, event: StreamEvent) -> StreamEvent:
        match event:
            case StepStart():
                self._is_due = event.step > 1
            case ToolCallStart() | ToolCall() | ToolCallInvalid():
                self._is_due = True
            case Text() if self._is_due and event.text:
                self._is_due = False
                if not event.text.startswith(("\n", "\r")):
                    return Text(event.block, "\n" + event.text, event.choice)
            case _:
                pass
        return event


class ReaderView:
    """Turns the events of a run into what its reader gets. None of it is in the log or the history of the run."""

    def __init__(self, line_breaks: LineBreaks | None, partial: PartialView | None) -> None:
        self._line_breaks = line_breaks
        self._partial = partial

    @property
    def partial(self) -> PartialView | None:
        """The structured output so far."""
        return self._partial

    def through(self, events: Iterable[StreamEvent]) -> Iterator[StreamEvent]:
        """The events for the reader: each is taken when the reader asks for it."""
        partial, line_breaks = self._partial, self._line_breaks
        for event in events:
            if line_breaks is not None:
                event = line_breaks.feed(event)
            yield event
            if partial is not None:
                if type(event) is StepStart:
                    partial.reset()
                yield from partial.feed(event)


class OneReader:
    """The place of the reader of a run, which is taken once."""

    def __init__(self) -> None:
        self._is_taken = False

    def claim(self) -> None:
        """Reserve the run for one reader."""
        if self._is_taken:
            raise AlreadyReadError("a run can be read once: start another, or keep the events in a list")
        self._is_taken = True


def through_view(view: ReaderView | None, events: Iterable[StreamEvent]) -> Iterable[StreamEvent]:
    """What a reader with this view sees of the events."""
    return events if view is None else view.through(events)


def reader_view(config: AgentConfig) -> ReaderView | None:
    """The view of a run's reader; None if the reader gets the events as they are."""
    line_breaks = LineBreaks() if config.separate_text else None
    partial = partial_view(config.output, has_arguments=config.partial_arguments)
    return None if line_breaks is None and partial is None else ReaderView(line_breaks, partial)

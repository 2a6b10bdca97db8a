"""The page of one response, as `decode`, `chat`, `record` and `replay` show it: with everything the wire says."""

from __future__ import annotations

from typing import assert_never

import msgspec

from penstock.cli.screen.page import Page
from penstock.events import (
    USAGE_PARTS,
    Error,
    Finish,
    Opaque,
    Retry,
    SealedBy,
    StreamChunk,
    ToolCall,
    ToolCallClosed,
    Unknown,
    Usage,
)
from penstock.inspector.excerpts import excerpt
from penstock.inspector.oddities import Oddities
from penstock.wires import find_wire

MAX_UNKNOWN = 10
"""The number of unknown frames that are shown; the rest are counted."""

SEALED: dict[SealedBy, str] = {
    "call_end": "the provider ended it",
    "whole": "it came in one piece",
    "finish": "the finish confirmed it",
    "done": "the end mark confirmed it",
    "caller": "the caller made it",
}
FINISH_STYLES = {"stop": "good", "tool_calls": "good", "error": "bad", "cut": "bad"}


class ResponsePage(Page[StreamChunk]):
    """Shows ids, raw arguments, finish reason, usage and unknown frames, and at the end their oddities."""

    def __init__(self, wire: str) -> None:
        super().__init__(is_raw=True)
        self._choices = Choices()
        self._oddities = Oddities(find_wire(wire).FINISH)
        self._choice = 0
        self._usage: Usage | None = None  # the last one, until it is shown
        self._unknown = 0

    def add(self, event: StreamChunk, now: float) -> None:
        self._oddities.add(event)
        for ready in self._choices.feed(event):
            self._show(ready)

    def close(self) -> None:
        """Adds the rest of the response, and its oddities."""
        for event in self._choices.close():
            self._show(event)
        if self._usage:
            self._note("finish", "  ", (f"usage  {_tokens(self._usage)}", "aside"))
        if oddities := self._oddities.build():
            self._note("oddities", "", ("odd about this stream", "odd"))
        for oddity in oddities:
            self._note("oddities", "  • ", (oddity, "odd"))

    def _show(self, event: StreamChunk) -> None:
        if not isinstance(event, Error | Retry | Unknown | Usage) and event.choice != self._choice:
            self._choice = event.choice
            self._note("choice", "── ", (f"choice {event.choice} ──", "title"))
        self._add_chunk(event)

    def _add_detail(self, event: ToolCallClosed | ToolCall | Unknown | Opaque | Usage | Finish) -> None:
        match event:
            case ToolCallClosed():
                pass  # provisional: a `ToolCall` or `ToolCallInvalid` follows
            case ToolCall():
                self._call(event)
            case Unknown():
                self._unknown_frame(event)
            case Opaque():
                size = len(msgspec.json.encode(event.data))
                message = f"{excerpt(event.kind, 40)}: {size:,} bytes of state to send back untouched"
                self._note("aside", "· ", (message, "aside"))
            case Usage():
                self._usage = event
            case Finish():
                self._finish(event)
            case _:
                assert_never(event)

    def _call(self, event: ToolCall) -> None:
        card = self._card(event.block, event.id, event.name)
        if card.is_blank:
            card.write(event.arguments_raw)
        card.id, card.name = event.id, event.name
        kind = ", free-form" if event.kind == "custom" else ""
        origin = "" if event.origin == "native" else f", found in the {event.origin}"
        card.end("whole", f"{SEALED[event.sealed_by]}{kind}{origin}")

    def _unknown_frame(self, event: Unknown) -> None:
        self._unknown += 1
        if self._unknown <= MAX_UNKNOWN:
            note = event.note or "unknown frame"
            self._note("note", "? ", (f"{note}: {excerpt(event.raw)}", "odd"))
        elif self._unknown == MAX_UNKNOWN + 1:
            self._note("note", "? ", ("… further unknown frames are only counted", "odd"))

    def _finish(self, event: Finish) -> None:
        raw = event.raw_reason
        details = [f'the provider sent "{excerpt(raw, 60)}"' if raw is not None and raw != event.reason else ""]
        details.append(excerpt(event.message))
        if self._usage and len(self._choices.numbers) == 1:  # otherwise it counts all choices, and is shown at the end
            details.append(_tokens(self._usage))
            self._usage = None
        style = FINISH_STYLES.get(event.reason, "odd")
        aside = "".join(f" · {detail}" for detail in details if detail)
        self._note("finish", "■ ", (event.reason, style), (aside, "aside"))


def _tokens(usage: Usage) -> str:
    unit = "token" if usage.input_tokens == 1 else "tokens"
    parts = {part.label: getattr(usage, part.field) for part in USAGE_PARTS}
    counts = [f"{usage.input_tokens:,} {unit} in", f"{usage.output_tokens:,} out"]
    return ", ".join([*counts, *(f"{count:,} {name}" for name, count in parts.items() if count)])


MAX_HELD = 100_000
"""The number of events that may be held back; beyond it, the choice with most of them is shown at once."""


class Choices:
    """Passes on the events of one choice, and holds back other choices until it has finished."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self._current: int | None = None
        self._held: dict[int, list[StreamChunk]] = {}

    def feed(self, event: StreamChunk) -> list[StreamChunk]:
        """The events that can be shown now."""
        if isinstance(event, Error | Retry | Unknown | Usage):
            return [event]
        self.numbers.add(event.choice)
        if self._current is None:
            self._current = event.choice
        if event.choice == self._current:
            return [event, *self._next_choices()] if isinstance(event, Finish) else [event]
        self._held.setdefault(event.choice, []).append(event)
        is_full = sum(map(len, self._held.values())) > MAX_HELD
        return self._take(max(self._held, key=lambda choice: len(self._held[choice]))) if is_full else []

    def close(self) -> list[StreamChunk]:
        """The remaining held events, choice by choice."""
        return [event for choice in sorted(self._held) for event in self._take(choice)]

    def _next_choices(self) -> list[StreamChunk]:
        """The events of the next choices, up to one that has not finished."""
        self._current = None
        out: list[StreamChunk] = []
        while self._held and self._current is None:
            out += self._take(min(self._held))
            if isinstance(out[-1], Finish):
                self._current = None
        return out

    def _take(self, choice: int) -> list[StreamChunk]:
        self._current = choice
        return self._held.pop(choice)

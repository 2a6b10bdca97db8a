"""The readable view: a fold over events whose result is what a person sees."""

from __future__ import annotations

from collections.abc import Hashable
from typing import assert_never

import msgspec
from rich.console import Console

from penstock.cli.oddities import Oddities
from penstock.cli.screen.call_lines import CallView
from penstock.cli.screen.choices import Choices
from penstock.cli.screen.flowing_text import GUTTERS, WORD_STYLES
from penstock.cli.screen.terminal import Screen, Styled, one_line
from penstock.events import (
    Error,
    Finish,
    Opaque,
    Reasoning,
    Refusal,
    Retry,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    Unknown,
    Usage,
)
from penstock.wires import find_wire

MAX_UNKNOWN = 10
"""How many unknown frames are shown as they come; the rest are counted."""

Content = (
    Text | Reasoning | Refusal | ToolCallStart | ToolCallDelta | ToolCallClosed | ToolCall | ToolCallInvalid | Opaque
    | Finish
)  # fmt: skip

FINISH_STYLES = {"stop": "good", "tool_calls": "good", "error": "bad", "cut": "bad"}


class State(msgspec.Struct):
    """What the view remembers between events."""

    choice: int = 0
    usage: Usage | None = None  # the last one, as long as it was not shown
    unknown: int = 0


class View:
    """Prints the events of one response as they come, and at the end what was odd about it."""

    def __init__(self, console: Console, wire: str) -> None:
        self._screen = Screen(console)
        self._calls = CallView(self._screen)
        self._choices = Choices()
        self._oddities = Oddities(find_wire(wire).FINISH)
        self._state = State()

    def add(self, event: StreamChunk) -> None:
        """Take one event in; it is seen after `flush`."""
        self._oddities.add(event)
        for ready in self._choices.feed(event):
            self._show(ready)

    def flush(self) -> None:
        """Let all that was taken in be seen."""
        self._screen.flush()

    def cancel(self) -> None:
        """Nobody wants to see more: leave the terminal at the start of a line."""
        self._screen.end_line()
        self._screen.flush()

    def close(self) -> None:
        """The events are over: what was odd about them."""
        for held in self._choices.close():
            self._show(held)
        if self._state.usage:
            self._note("finish", "  ", (f"usage  {_tokens(self._state.usage)}", "aside"))
        for oddity in self._oddities.build():
            if self._screen.begin("oddities"):
                self._screen.line("", ("odd about this stream", "odd"))
            self._screen.line("  • ", (oddity, "odd"))
        self._screen.flush()

    def _show(self, event: StreamChunk) -> None:
        match event:
            case Usage():
                self._state.usage = event
            case Error():
                self._error(event)
            case Retry():
                told = f"begun anew ({one_line(event.reason)}): what stands above is void"
                self._note("note", "↻ ", (told, "odd"))
            case Unknown():
                self._unknown(event)
            case _:
                self._turn_to(event.choice)
                self._content(event)

    def _content(self, event: Content) -> None:
        match event:
            case Text() | Reasoning() | Refusal():
                self._words(event)
            case ToolCallStart():
                self._calls.start(event)
            case ToolCallDelta():
                self._calls.delta(event)
            case ToolCall():
                self._calls.whole(event)
            case ToolCallInvalid():
                self._calls.invalid(event)
            case ToolCallClosed():
                pass  # it is provisional, and its verdict follows
            case Opaque():
                size = len(msgspec.json.encode(event.data))
                told = f"{one_line(event.kind, 40)}: {size:,} bytes of state to send back untouched"
                self._note("aside", "· ", (told, "aside"))
            case Finish():
                self._finish(event)
            case _:
                assert_never(event)

    def _turn_to(self, choice: int) -> None:
        if choice != self._state.choice:
            self._state.choice = choice
            self._note(("choice", choice), "── ", (f"choice {choice} ──", "title"))

    def _words(self, event: Text | Reasoning | Refusal) -> None:
        style = WORD_STYLES[event.type]
        begins = self._screen.begin((event.type, event.block), GUTTERS[event.type], style)
        if begins and isinstance(event, Refusal):
            self._screen.write("refusal: ", style)
        self._screen.write(event.text, style)

    def _error(self, event: Error) -> None:
        code = f" {one_line(event.code, 60)}" if event.code else ""
        told = f"error{code}: {one_line(event.message, 400)}"
        retryable = "  may be retried" if event.retryable else "  not worth a retry"
        self._note("error", "✗ ", (told, "bad"), (retryable, "aside"))
        if event.raw is not None:
            self._screen.line("  ", (one_line(event.raw), "aside"))

    def _unknown(self, event: Unknown) -> None:
        self._state.unknown += 1
        if self._state.unknown <= MAX_UNKNOWN:
            note = event.note or "a frame that we have no word for"
            self._note("note", "? ", (f"{note}: {one_line(event.raw)}", "odd"))
        elif self._state.unknown == MAX_UNKNOWN + 1:
            self._note("note", "? ", ("… more unknown frames, which are only counted", "odd"))

    def _finish(self, event: Finish) -> None:
        raw, usage = event.raw_reason, self._state.usage
        said = f'the provider said "{one_line(raw, 60)}"' if raw is not None and raw != event.reason else ""
        tokens = ""
        if usage and len(self._choices.seen) == 1:  # else it is the cost of all, and told at the end
            self._state.usage = None
            tokens = _tokens(usage)
        aside = "".join(f" · {told}" for told in (said, one_line(event.message), tokens) if told)
        self._note("finish", "■ ", (event.reason, FINISH_STYLES.get(event.reason, "odd")), (aside, "aside"))

    def _note(self, block: Hashable, mark: str, *texts: Styled) -> None:
        self._screen.begin(block)
        self._screen.line(mark, *texts)


def _tokens(usage: Usage) -> str:
    given = f"{usage.input_tokens:,} {'token' if usage.input_tokens == 1 else 'tokens'} in"
    counts = f"{given}, {usage.output_tokens:,} out"
    parts = {"cached": usage.cached_tokens, "reasoning": usage.reasoning_tokens}
    return ", ".join([counts, *(f"{count:,} {name}" for name, count in parts.items() if count)])

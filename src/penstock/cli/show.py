"""A run as it is shown in a terminal: words flow, calls grow, and tools run side by side below them.

What is settled stands, in the order in which the model said it; the rest is drawn anew many times a second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, assert_never

from rich.console import Console

from penstock.cli.card import Card, Phase, Progress, Span, spin
from penstock.cli.log import Log
from penstock.cli.region import Region
from penstock.cli.rows import Row
from penstock.cli.screen import MAX_WIDTH, one_line
from penstock.cli.words import Kind, Words
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
from penstock.happenings import (
    ApprovalRequest,
    Done,
    StepEnd,
    StepStart,
    StreamEvent,
    ToolEnd,
    ToolEnding,
    ToolProgress,
    ToolStart,
)

FRAME = 0.05
"""The seconds between two drawings."""
ENDINGS: dict[ToolEnding, Phase] = {
    "done": "done", "failed": "failed", "declined": "failed", "cancelled": "void", "discarded": "void",
}  # fmt: skip
_MIN_WIDTH = 20

Block = Words | Card


class Show:
    """Shows the events of a run as they come: `with Show(console) as show: show.add(event)`.

    `spans` says when tools ran, by the ids of their calls, where somebody knows it better than the events do: the end
    of a tool that started early is told when its call is confirmed, and not before. In what is no terminal, each thing
    is printed when it is settled.
    """

    def __init__(
        self,
        console: Console,
        spans: Mapping[str, Span] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = console
        self._clock = clock
        self._page = Page({} if spans is None else spans)
        self._region = Region(console, is_live(console))
        self._ticker = Ticker(self._draw) if is_live(console) else None

    def __enter__(self) -> Self:
        self._region.open()
        if self._ticker is not None:
            self._ticker.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: TracebackType | BaseException | None) -> None:
        if self._ticker is not None:
            self._ticker.stop()
        try:
            self._page.settle("broken off")
            self._draw()
        finally:
            self._region.close()

    def add(self, event: StreamEvent) -> None:
        """Show this too."""
        if self._ticker is None:
            self._page.add(event, self._clock())
            self._draw()
        else:
            with self._ticker.lock:
                self._page.add(event, self._clock())

    def _draw(self) -> None:
        width, now = max(min(self._console.width - 1, MAX_WIDTH), _MIN_WIDTH), self._clock()
        is_moving = self._ticker is not None  # elsewhere only what stands is drawn
        self._region.draw(*(self._page.rows(width, now) if is_moving else (self._page.take(width, now), [])))


@contextmanager
def shown(
    console: Console, spans: Mapping[str, Span] | None = None, *, is_plain: bool = False
) -> Generator[Callable[[StreamEvent, float], None]]:
    """What takes the events and the moments at which they came: a show, or a log where there can be none."""
    if is_plain or not console.is_terminal or console.is_dumb_terminal:
        log = Log(console)
        try:
            yield log.add
        finally:
            log.close()
    else:
        with Show(console, spans) as show:
            yield lambda event, _: show.add(event)


def is_live(console: Console) -> bool:
    """Whether what was drawn can be drawn anew."""
    return console.is_terminal and console.file.isatty() and not console.is_dumb_terminal and not console.legacy_windows


class Ticker:
    """Draws from a thread of its own, many times a second; `lock` is held while it does."""

    def __init__(self, draw: Callable[[], None]) -> None:
        self.lock = threading.Lock()
        self._draw = draw
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="penstock-show", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()

    def _tick(self) -> None:
        while not self._stopped.wait(FRAME):
            with self.lock:
                try:
                    self._draw()
                except OSError:  # the terminal is gone: the one who ends the show is told, when it draws
                    return


class Page:
    """What is on the screen: the blocks that are not settled, in order."""

    def __init__(self, spans: Mapping[str, Span]) -> None:
        self._spans = spans
        self._blocks: list[Block] = []
        self._last: Block | None = None  # the last one of which something stands
        self._cards: dict[int, Card] = {}  # of this answer, by block
        self._running: dict[str, Card] = {}  # by the key of the execution
        self._asked: float | None = None  # since when nothing came of an answer

    def rows(self, width: int, now: float) -> tuple[list[Row], list[Row]]:
        """The rows that stand from now on, and those that move."""
        for card in self._running.values():
            if span := self._spans.get(card.progress.call_id):
                card.progress.seconds = span.seconds
        standing = self.take(width, now)
        moving: list[Row] = []
        above = self._last
        for block in self._blocks:
            rows = block.rows(width) if isinstance(block, Words) else block.rows(width, now)
            if rows:
                moving += [*_gap(above, block), *rows]
                above = block
        if self._asked is not None:
            waited = f"{spin(now)} {now - self._asked:.1f} s"
            moving += [*([()] if above else []), ((waited, "busy"), ("  the model is asked", "aside"))]
        return standing, moving

    def settle(self, why: str) -> None:
        """Nothing will come any more."""
        self._asked = None
        for block in self._blocks:
            if isinstance(block, Words):
                block.is_settled = True
            elif block.progress.phase == "asking":
                block.end("left", block.progress.told)
            elif not block.is_settled:
                block.end("void", why)

    def add(self, event: StreamEvent, now: float) -> None:
        """Take an event in."""
        self._asked = None
        match event:
            case StepStart():
                self._asked = now
                self._close_words()
                self._cards = {}
            case ToolStart():
                self._started(event, now)
            case ToolProgress():
                if event.key in self._running:
                    self._running[event.key].progress.report = event.data
            case ToolEnd():
                self._ended(event, now)
            case ApprovalRequest():
                card = self._card_of(event.call_id, event.name, event.arguments)
                wants = "waits for you" if event.kind == "approval" else "waits for its result from elsewhere"
                card.progress = Progress("asking", told=wants)
            case Done():
                self._done(event)
            case StepEnd():
                self._close_words()
            case _:
                self._chunk(event)

    def _chunk(self, event: StreamChunk) -> None:
        match event:
            case Text() | Reasoning() | Refusal():
                self._words(event.type, event.block).write(event.text)
            case ToolCallStart():
                self._new_card(event.block, event.id, event.name)
            case ToolCallDelta():
                self._card(event.block).write(event.piece)
            case ToolCallClosed() | ToolCall():
                self._whole(event)
            case ToolCallInvalid():
                card = self._card(event.block, event.id, event.name)
                card.end("failed", f"{event.why.replace('_', ' ')}: {one_line(event.message)}")
            case Error():
                self._note(f"✗ {one_line(f'{event.code} {event.message}'.strip(), 400)}", "bad")
            case Retry():
                self._note(f"↻ begun anew ({one_line(event.reason)}): what the model said above is void")
                self._cards = {}
            case Unknown() | Opaque() | Usage() | Finish():
                pass  # they say nothing to a person, or `Done` says it
            case _:
                assert_never(event)

    def _words(self, kind: Kind, number: int) -> Words:
        last = self._blocks[-1] if self._blocks else None
        if isinstance(last, Words) and (last.kind, last.block) == (kind, number) and not last.is_settled:
            return last
        self._close_words()
        begun = Words(kind, number)
        self._blocks.append(begun)
        return begun

    def _close_words(self) -> None:
        for block in self._blocks:
            if isinstance(block, Words):
                block.is_settled = True

    def _note(self, text: str, style: str = "odd") -> None:
        self._close_words()
        self._blocks.append(Words("note", style=style, rest=text, is_settled=True))

    def _new_card(self, block: int, id: str, name: str) -> Card:
        self._close_words()
        card = self._cards[block] = Card(id, name)
        self._blocks.append(card)
        return card

    def _card(self, block: int, id: str = "", name: str = "") -> Card:
        """The card of this block, also if the call was never announced."""
        return self._cards.get(block) or self._new_card(block, id, name)

    def _card_of(self, call_id: str, name: str, arguments: Mapping[str, Any] | None = None) -> Card:
        """The card of this call, also if nothing of it was shown, as in a run that was resumed."""
        found = next((card for card in reversed(self._cards.values()) if card.id == call_id), None)
        if found is None:
            found = self._new_card(-1 - len(self._cards), call_id, name)
            if arguments is not None:
                found.state(arguments)
        return found

    def _whole(self, event: ToolCall | ToolCallClosed) -> None:
        card = self._card(event.block, event.id, event.name)
        card.id, card.name = event.id, event.name
        card.state(event.arguments)
        if card.progress.phase == "writing":
            card.progress.phase = "held"

    def _started(self, event: ToolStart, now: float) -> None:
        card = self._card_of(event.call_id, event.name, event.arguments)
        card.progress = Progress("running", event.call_id, now, event.is_early)
        self._running[event.key] = card

    def _ended(self, event: ToolEnd, now: float) -> None:
        started = self._running.pop(event.key, None)
        card = started or self._card_of(event.result.call_id, event.result.name)
        span = self._spans.get(card.progress.call_id) if started else None
        took = span.seconds if span else now - card.progress.began if started else None
        if not card.is_settled:
            card.end(ENDINGS[event.ending], event.result.text, took)

    def _done(self, event: Done) -> None:
        self._close_words()
        if event.reason != "answered":
            self._note(f"■ {event.reason}: {one_line(event.why)}", "bad" if event.reason == "error" else "odd")

    def take(self, width: int, now: float) -> list[Row]:
        """The rows that stand from now on."""
        standing: list[Row] = []
        while self._blocks:
            block = self._blocks[0]
            if isinstance(block, Words):
                has_begun = block.has_stood
                rows = block.take(width)
            else:
                has_begun = False
                rows = block.rows(width, now) if block.is_settled else []
            if rows:
                standing += [*([] if has_begun else _gap(self._last, block)), *rows]
                self._last = block
            if not block.is_settled:
                break
            self._blocks.pop(0)
        return standing


def _gap(above: Block | None, below: Block) -> list[Row]:
    """The blank row between two blocks; calls stand close together, and so does text that goes on."""
    is_close = above is None or above is below or (isinstance(above, Card) and isinstance(below, Card))
    return [] if is_close else [()]

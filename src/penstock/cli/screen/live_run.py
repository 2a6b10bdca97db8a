"""A run as it is shown in a terminal: words flow, calls grow, and tools run side by side below them.

What is settled stands, in the order in which the model said it; the rest is drawn anew many times a second.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Self

from msgspec.structs import replace
from rich.console import Console

from penstock.cli.screen.call_card import Span
from penstock.cli.screen.live_region import Region
from penstock.cli.screen.log import Log
from penstock.cli.screen.page import Page
from penstock.cli.screen.terminal import MAX_WIDTH, MIN_WIDTH
from penstock.events import Error
from penstock.run.events import Done, StreamEvent

FRAME = 0.05
"""The seconds between two drawings."""


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

    def __exit__(self, *_: object) -> None:
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
        width, now = max(min(self._console.width - 1, MAX_WIDTH), MIN_WIDTH), self._clock()
        is_moving = self._ticker is not None  # elsewhere only what stands is drawn
        self._region.draw(*(self._page.rows(width, now) if is_moving else (self._page.take(width, now), [])))


@contextmanager
def shown(
    console: Console, spans: Mapping[str, Span] | None = None, *, is_plain: bool = False
) -> Generator[Callable[[StreamEvent, float], None]]:
    """What takes the events and the moments at which they came: a show, or a log where there can be none."""
    with _shown(console, spans, is_plain) as see:
        said = Said()
        yield lambda event, at: see(said.feed(event), at)


@contextmanager
def _shown(
    console: Console, spans: Mapping[str, Span] | None, is_plain: bool
) -> Generator[Callable[[StreamEvent, float], None]]:
    if is_plain or not console.is_terminal or console.is_dumb_terminal:
        log = Log(console)
        try:
            yield log.add
        finally:
            log.close()
    else:
        with Show(console, spans) as show:
            yield lambda event, _: show.add(event)


class Said:
    """A stage that leaves out of the end of a run why it failed, if an error has said the same."""

    def __init__(self) -> None:
        self._error: str | None = None

    def feed(self, event: StreamEvent) -> StreamEvent:
        match event:
            case Error():
                self._error = event.message
            case Done() if event.why == self._error:
                return replace(event, why="")
            case _:
                pass
        return event


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

"""The renderer: draws a page while events arrive.

On a live terminal, rows that may still change are redrawn many times per second, below those
that are final. Elsewhere each row is printed once, when it is final; in a pipe, text is printed as it arrives.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import Generic, Self

from rich.console import Console

from penstock.cli.screen.page import AnyEvent, Page
from penstock.cli.screen.rows import Row, Width, width_of, write_rows
from penstock.cli.screen.terminal import MAX_WIDTH, MIN_WIDTH
from penstock.model.logs import screen_drawn

FRAME = 0.05
"""Seconds between two drawings."""
_UP = "\x1b[{}A\r"
_CLEAR_LINE = "\x1b[K"
_CLEAR_BELOW = "\x1b[J"


def is_live(console: Console) -> bool:
    """Whether the console can be drawn on again."""
    return console.is_terminal and console.file.isatty() and not console.is_dumb_terminal and not console.legacy_windows


class Renderer(Generic[AnyEvent]):
    """Draws a page on a console: `with Renderer(console, page) as renderer: renderer.add(event)`."""

    def __init__(
        self,
        console: Console,
        page: Page[AnyEvent],
        *,
        live: bool | None = None,
        clock: Callable[[], float] = time.monotonic,
        left: str = "interrupted",
    ) -> None:
        self._left = left  # what became of calls without an end
        self._console = console
        self._page = page
        self._clock = clock
        self._region = LiveRegion(console) if (is_live(console) if live is None else live) else None
        self._ticker = Ticker(self._draw) if self._region else None
        self._screen = ExitStack()

    def __enter__(self) -> Self:
        self._screen.enter_context(screen_drawn())
        if self._ticker is not None:
            self._console.show_cursor(False)
            self._ticker.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._ticker is not None:
            self._ticker.stop()
        try:
            if kind is None:
                self._page.close()
            if kind is KeyboardInterrupt and self._console.is_terminal:
                self._page.interrupt()
            else:
                self._page.settle(self._left)
            self._draw()
        finally:
            self._screen.close()
            if self._ticker is not None:
                self._console.show_cursor(True)

    def add(self, *events: AnyEvent) -> None:
        """Adds events that arrived together."""
        if self._ticker is None:
            self._add(events)
            self._draw()
        else:
            with self._ticker.lock:
                self._add(events)

    def _add(self, events: Iterable[AnyEvent]) -> None:
        now = self._clock()
        for event in events:
            self._page.add(event, now)

    def _draw(self) -> None:
        width, now = self._width(), self._clock()
        taken = self._page.blocks.take(width, now)
        if self._region is not None:
            self._region.draw(taken, self._page.moving(width, now))
            return
        if taken:
            write_rows(self._console, taken)
        if width is None:
            gap, start = self._page.blocks.take_line_start()
            if start:
                write_rows(self._console, [*(((("\n", ""),)) for _ in gap), start], end="")

    def _width(self) -> Width:
        if not self._console.is_terminal or self._console.is_dumb_terminal:
            return None
        return max(min(self._console.width - 1, MAX_WIDTH), MIN_WIDTH)


class LiveRegion:
    """The rows at the bottom of a terminal that are redrawn, below those that are final.

    Unchanged rows are not written again, and each drawing is one write, so that nothing flickers.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._drawn: list[Row] = []

    def draw(self, final: list[Row], moving: list[Row]) -> None:
        """Prints the final rows, and below them the moving ones: the last ones, if not all fit."""
        visible = moving[-max(self._console.height - 1, 1) :]
        kept = 0 if final else _common(self._drawn, visible)
        if final or kept < max(len(visible), len(self._drawn)):
            up = self._height_of(self._drawn[kept:])
            write_rows(
                self._console,
                [*final, *visible[kept:]],
                end=f"{_CLEAR_LINE}\n",
                before=_UP.format(up) if up else "",
                after=_CLEAR_BELOW,
            )
        self._drawn = visible

    def _height_of(self, rows: list[Row]) -> int:
        """The lines that rows take: a terminal that was made narrower wraps them."""
        width = max(self._console.width, 1)
        return sum(max(-(-width_of(row) // width), 1) for row in rows)


def _common(old: list[Row], new: list[Row]) -> int:
    """The number of rows that are the same from the top."""
    pairs = enumerate(zip(old, new, strict=False))
    return next((index for index, (before, after) in pairs if before != after), min(len(old), len(new)))


class Ticker:
    """Draws from its own thread; `lock` is held meanwhile."""

    def __init__(self, draw: Callable[[], None]) -> None:
        self.lock = threading.Lock()
        self._draw = draw
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="penstock-renderer", daemon=True)

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
                except OSError:  # the terminal is gone: the last drawing raises this in the caller's thread
                    return

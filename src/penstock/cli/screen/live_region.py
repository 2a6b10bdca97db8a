"""The rows at the bottom of a terminal that are drawn anew, below those that stand."""

from __future__ import annotations

from rich.console import Console

from penstock.cli.screen.rows import Row, print_rows, rendered, width_of

_UP = "\x1b[{}A\r"
_CLEAR_LINE = "\x1b[K"
_CLEAR_BELOW = "\x1b[J"


class Region:
    """Draws rows that move, and lets rows stand above them.

    What did not change is not written again, and each drawing is one write, so that nothing flickers. On what is no
    terminal only the rows that stand are printed.
    """

    def __init__(self, console: Console, is_live: bool) -> None:
        self._console = console
        self._is_live = is_live
        self._drawn: list[Row] = []

    def open(self) -> None:
        """Begin: the cursor would only jump about."""
        if self._is_live:
            self._console.show_cursor(False)

    def close(self) -> None:
        """Give the cursor back."""
        if self._is_live:
            self._console.show_cursor(True)

    def draw(self, standing: list[Row], moving: list[Row]) -> None:
        """Let some rows stand for good, and below them draw those that move; those at the end, if not all fit."""
        if not self._is_live:
            if standing:
                print_rows(self._console, standing)
            return
        shown = moving[-max(self._console.height - 1, 1) :]
        kept = 0 if standing else _common(self._drawn, shown)
        if standing or kept < max(len(shown), len(self._drawn)):
            rows = [*standing, *shown[kept:]]
            up = self._rows_on_screen(self._drawn[kept:])
            written = "".join(rendered(self._console, rows, f"{_CLEAR_LINE}\n"))
            self._console.file.write((_UP.format(up) if up else "") + written + _CLEAR_BELOW)
            self._console.file.flush()
        self._drawn = shown

    def _rows_on_screen(self, rows: list[Row]) -> int:
        """How many lines they take: a terminal that was made narrower breaks what it shows."""
        width = max(self._console.width, 1)
        return sum(max(-(-width_of(row) // width), 1) for row in rows)


def _common(old: list[Row], new: list[Row]) -> int:
    """How many rows are the same from the top."""
    return next(
        (at for at, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), min(len(old), len(new))
    )

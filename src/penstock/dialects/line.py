"""Where in its line the text stands: marks within code are talk about calls, not calls."""

from __future__ import annotations

FENCE = "```"


class Line:
    """The line of text that is being told, as far as it matters: its indentation, and the last character."""

    __slots__ = ("_indent", "_last")

    def __init__(self) -> None:
        self._indent = 0  # how many spaces the line is so far; negative once it is more
        self._last = ""

    def add(self, text: str) -> None:
        self._last = text[-1]
        if "\n" in text:
            text = text[text.rfind("\n") + 1 :]
            self._indent = 0
        if self._indent >= 0:
            self._indent = -1 if text.strip(" ") else self._indent + len(text)

    @property
    def may_open_fence(self) -> bool:
        """Whether a fence may stand here: at the start of a line, up to three spaces in."""
        return 0 <= self._indent <= 3

    @property
    def is_in_backticks(self) -> bool:
        """Whether what comes next directly follows a backtick, as a quoted tag does."""
        return self._last == "`"

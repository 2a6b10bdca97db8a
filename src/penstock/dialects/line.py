"""Where in its line the text stands: marks within code are talk about calls, not calls."""

from __future__ import annotations

FENCE = "```"


class Line:
    """The line of text that is being told, as far as it matters: its indentation, and the backticks in it."""

    __slots__ = ("_backticks", "_indent")

    def __init__(self) -> None:
        self._indent = 0  # how many spaces the line is so far; negative once it is more
        self._backticks = 0

    def add(self, text: str) -> None:
        if "\n" in text:
            text = text[text.rfind("\n") + 1 :]
            self._indent = self._backticks = 0
        if self._indent >= 0:
            self._indent = -1 if text.strip(" ") else self._indent + len(text)
        if "`" in text:
            self._backticks += text.count("`")

    @property
    def may_open_fence(self) -> bool:
        """Whether a fence may stand here: at the start of a line, up to three spaces in."""
        return 0 <= self._indent <= 3

    @property
    def is_in_code(self) -> bool:
        """Whether what comes next stands between backticks."""
        return self._backticks % 2 == 1

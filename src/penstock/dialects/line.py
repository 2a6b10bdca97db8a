"""Where in its line the text stands: marks within code are talk about calls, not calls."""

from __future__ import annotations

import re

FENCE = "```"
_RUNS = re.compile("`+|[^`]+")


class Line:
    """The line of text that is being told, as far as it matters: its indentation, and whether code is open in it.

    Code opens with a run of backticks and closes with another as long.
    """

    __slots__ = ("_indent", "_open", "_run")

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """A line begins."""
        self._indent = 0  # how many spaces the line is so far; negative once it is more
        self.end_code()

    def end_code(self) -> None:
        """No code is open in the line any more."""
        self._open = 0  # how many backticks opened the code
        self._run = 0  # how many backticks the text ends with

    def add(self, text: str) -> None:
        if "\n" in text:
            text = text[text.rfind("\n") + 1 :]
            self.restart()
        if self._indent >= 0:
            self._indent = -1 if text.strip(" ") else self._indent + len(text)
        if "`" in text or self._run:
            for run in _RUNS.findall(text):
                if run[0] == "`":
                    self._run += len(run)
                else:
                    self._open, self._run = self._after_run, 0

    @property
    def _after_run(self) -> int:
        """What is open once the backticks at the end are all there are."""
        if not self._run or self._run == self._open:
            return self._open if not self._run else 0
        return self._open or self._run

    @property
    def may_open_fence(self) -> bool:
        """Whether a fence may stand here: at the start of a line, up to three spaces in."""
        return 0 <= self._indent <= 3

    @property
    def is_in_code(self) -> bool:
        """Whether what comes next stands between backticks."""
        return self._after_run > 0

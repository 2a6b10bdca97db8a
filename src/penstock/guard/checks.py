"""The checks of a response: those due, those running, and the text before each."""

from __future__ import annotations

from collections import deque
from typing import Any, Literal

from penstock.guard.guard import GuardKind

BEFORE = 1000
"""How many characters before a piece its check gets."""

CheckState = Literal["open", "due", "running", "cleared", "void"]


class Check:
    """A piece of a response that the guard has to clear: a piece of text, or a call.

    It is `open` while the piece grows, `due` until it can be started, and `void` if the piece was withdrawn. For a
    call, `text` is the name, and `arguments` are set; a damaged call is checked as text, and then as `next_call`, if it
    can run with repaired arguments. `passed` is what may be passed on.
    """

    __slots__ = ("arguments", "before", "kind", "next_call", "passed", "state", "text")

    def __init__(self, kind: GuardKind) -> None:
        self.kind: GuardKind = kind
        self.state: CheckState = "open"
        self.text = ""
        self.arguments: dict[str, Any] | None = None
        self.next_call: tuple[str, dict[str, Any]] | None = None
        self.before = ""
        self.passed = ""

    @property
    def is_changed(self) -> bool:
        """Whether the guard passed another text."""
        return self.passed != self.text

    @property
    def is_settled(self) -> bool:
        """Whether the check has a verdict or was withdrawn."""
        return self.state in ("cleared", "void")


class CheckQueue:
    """The checks that are due, in order; at most `parallel` run at once."""

    def __init__(self, parallel: int) -> None:
        self._parallel = parallel
        self._due: deque[Check] = deque()
        self._running = 0
        self._before: dict[GuardKind, str] = {}

    @property
    def is_busy(self) -> bool:
        """Whether checks run or are due."""
        return bool(self._due) or self._running > 0

    def restart(self) -> None:
        """Withdraw all due checks; running checks have not ended yet."""
        self._due.clear()
        self._before.clear()

    def add_text(self, check: Check, text: str) -> None:
        """Make a text check due, unless its text is white space."""
        check.text, check.before = text, self._before.get(check.kind, "")
        self._before[check.kind] = (check.before + text)[-BEFORE:]
        if not text or text.isspace():
            self.clear(check, text)
        else:
            self._add(check)

    def add_call(self, check: Check, name: str, arguments: dict[str, Any]) -> None:
        """Make the check of a complete call due."""
        check.text, check.arguments = name, arguments
        self._add(check)

    def clear(self, check: Check, passed: str) -> None:
        """Store the text that the guard passes; an unchanged damaged call is then checked as a call too."""
        check.state, check.passed = "cleared", passed
        if check.next_call is not None and not check.is_changed:
            (name, arguments), check.next_call = check.next_call, None
            self.add_call(check, name, arguments)

    def _add(self, check: Check) -> None:
        check.state = "due"
        self._due.append(check)

    def take(self) -> list[Check]:
        """The checks to start now."""
        started: list[Check] = []
        while self._due and self._running < self._parallel:
            check = self._due.popleft()
            if check.state == "due":
                check.state = "running"
                self._running += 1
                started.append(check)
        return started

    def end(self) -> None:
        """A check has ended."""
        self._running -= 1

"""Named points of a run with a log, at which tests end or freeze the process; `penstock.testing.crash_at` uses them.

`PENSTOCK_CRASH_AT=after_tool_start` kills the process, as `kill -9` does, when it reaches this point for the first
time. A detail may follow, the name of a tool or the type of an event, and the number of the time:
`after_append:tool_end:2`. Where no test asks for a point, it costs a comparison.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Literal, cast, get_args

from penstock.errors import UsageError

if TYPE_CHECKING:
    from penstock.log.run_writer import RunWriter

Point = Literal[
    "after_claim",
    "before_request",
    "before_append",
    "inside_append",
    "after_append",
    "before_tool_start",
    "after_tool_start",
    "after_tool_end",
    "after_done",
]
"""Where a process can end.

| point | what has happened | detail |
|---|---|---|
| `after_claim` | the log has the `taken` of this worker, nothing else | |
| `before_request` | the request is about to be sent | |
| `before_append` | a unit is about to be appended | types of its events |
| `inside_append` | it was appended, and is not committed (SQLite) | types of its events |
| `after_append` | it is committed, and the run has not heard of it | types of its events |
| `before_tool_start` | the log has the `tool_start` of a tool with side effects, which has not started | its name |
| `after_tool_start` | the tool has its task or thread, and may have begun | its name |
| `after_tool_end` | the tool has returned, and the log does not have its end | its name |
| `after_done` | the log has the end of the run | |
"""

Hook = Callable[[Point, Iterable[str], "RunWriter | None"], None]

VARIABLE = "PENSTOCK_CRASH_AT"


class Countdown:
    """Counts down to one visit of a point, in any thread."""

    def __init__(self, point: str, detail: str = "", number: int = 1) -> None:
        if point not in get_args(Point):
            raise UsageError(f"there is no point {point!r}; there are: {', '.join(get_args(Point))}")
        self.point = cast(Point, point)
        self._detail = detail
        self._left = number
        self._lock = threading.Lock()

    def is_reached(self, point: Point, details: Iterable[str]) -> bool:
        """Whether this visit is the one."""
        if point != self.point or (self._detail and self._detail not in details):
            return False
        with self._lock:
            self._left -= 1
            return self._left == 0


def from_environment() -> Hook | None:
    """The hook for `PENSTOCK_CRASH_AT`; None if it is not set."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return None
    point, _, rest = text.partition(":")
    detail, _, number = rest.partition(":")
    countdown = Countdown(point, detail, int(number or 1))

    def kill(point: Point, details: Iterable[str], writer: RunWriter | None) -> None:
        if countdown.is_reached(point, details):
            os.kill(os.getpid(), signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)

    return kill


hook: Hook | None = from_environment()
"""Called at each point, if a test asks for one."""

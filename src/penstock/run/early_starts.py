"""What early starts saved: when the tools of a response would have ended, had none started before its end.

The order of the calls holds in that case, too: effects would have followed the reads before them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from penstock.run.events import CallOrdering

WAITS_FOR: Mapping[CallOrdering, tuple[CallOrdering, ...]] = {
    "read": ("effect", "alone"),
    "effect": ("read", "alone"),
    "alone": ("read", "effect", "alone"),
    "free": (),
}
"""The calls before it that a call waits for."""


class ToolRun(Struct, frozen=True):
    """A tool that ran to its end: when it began, by any clock, and how many seconds it took."""

    name: str
    order: CallOrdering
    begin: float
    seconds: float

    @property
    def end(self) -> float:
        return self.begin + self.seconds


class LateTool(Struct, frozen=True):
    """When a tool would have begun and ended; `after` is the tool that it would have waited for, if any."""

    tool: ToolRun
    begin: float
    after: LateTool | None = None

    @property
    def end(self) -> float:
        return self.begin + self.tool.seconds

    @property
    def chain(self) -> list[ToolRun]:
        """The tools that would have run one after another up to this one."""
        chain, late = [self.tool], self.after
        while late is not None:
            chain.append(late.tool)
            late = late.after
        return chain[::-1]


def last_late_tool(tools: Iterable[ToolRun], response_end: float) -> LateTool | None:
    """The tool that would have ended last, had all tools of a response started at its end; None without tools.

    No tool begins earlier than it did: what else it waited for, such as a person, it would have waited for, too. Calls
    that wait for each other start in the order of the response, so the order of their starts is enough.
    """
    last: dict[CallOrdering, LateTool] = {}
    for tool in sorted(tools, key=lambda tool: tool.begin):
        before = [last[order] for order in WAITS_FOR[tool.order] if order in last]
        after = max(before, key=_end, default=None)
        soonest = max(response_end, tool.begin)
        late = LateTool(tool, soonest) if after is None or after.end < soonest else LateTool(tool, after.end, after)
        last[tool.order] = max(last.get(tool.order, late), late, key=_end)
    return max(last.values(), key=_end, default=None)


def saved_by_early_starts(tools: Iterable[ToolRun], response_end: float) -> float:
    """How many seconds earlier the last tool ended than it would have, had all started at the end of the response."""
    known = list(tools)
    late = last_late_tool(known, response_end)
    return 0.0 if late is None else max(0.0, late.end - max(response_end, *(tool.end for tool in known)))


def _end(late: LateTool) -> float:
    return late.end

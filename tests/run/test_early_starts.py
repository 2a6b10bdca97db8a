"""What early starts saved, in the order of the calls."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import get_args

import pytest

from penstock.run.early_starts import ToolRun, last_late_tool, saved_by_early_starts
from penstock.run.events import CallOrdering

END = 6.0  # of the response


@pytest.mark.parametrize(
    ("tools", "saved"),
    [
        ([], 0),
        ([ToolRun("read", "read", 2, 3)], 3),
        ([ToolRun("read", "read", 5, 3)], 1),
        ([ToolRun("read", "read", 6.5, 3)], 0),
        ([ToolRun("one", "read", 2, 3), ToolRun("other", "read", 3, 2)], 3),
        ([ToolRun("read", "read", 2, 3), ToolRun("write", "effect", 6, 1)], 3),
        ([ToolRun("read", "read", 2, 3), ToolRun("write", "free", 6, 1)], 2),
        ([ToolRun("read", "read", 2, 3), ToolRun("alone", "alone", 6, 1), ToolRun("again", "read", 7, 2)], 3),
        ([ToolRun("one", "effect", 3, 1), ToolRun("other", "effect", 3, 2)], 2),
        ([ToolRun("read", "read", 2, 3), ToolRun("asked", "effect", 60, 1)], 0),
    ],
    ids=[
        "nothing", "early", "partly", "late", "reads", "an effect follows the read", "a free call does not",
        "one after another", "effects beside each other", "a person was waited for",
    ],
)  # fmt: skip
def test_what_was_saved(tools: list[ToolRun], saved: float) -> None:
    assert saved_by_early_starts(tools, END) == saved


def waits(tool: ToolRun, before: ToolRun) -> bool:
    """Whether law 12 lets a call wait for one before it."""
    if "free" in (tool.order, before.order):
        return False
    return "alone" in (tool.order, before.order) or (tool.order == "read") != (before.order == "read")


def test_late_starts_keep_the_order_of_the_calls() -> None:
    source = random.Random(12)
    for _ in range(2_000):
        tools: list[ToolRun] = []
        for number in range(source.randint(1, 8)):
            order: CallOrdering = source.choice(get_args(CallOrdering))
            begin = max([0.0, *(other.end for other in tools if waits(ToolRun("", order, 0, 0), other))])
            begin = max(begin, tools[-1].begin if tools else 0.0) + source.choice([0, 1])
            tools.append(ToolRun(str(number), order, begin, source.randint(0, 5)))
        end = source.randint(0, 10)
        ends: list[float] = []
        for place, tool in enumerate(tools):
            held = [ends[other] for other in range(place) if waits(tool, tools[other])]
            ends.append(max([end, tool.begin, *held]) + tool.seconds)
        last = last_late_tool(tools, end)
        assert last is not None
        assert last.end == max(ends)
        assert sum(tool.seconds for tool in last.chain) <= last.end - end
        assert all(waits(later, before) for before, later in pairwise(last.chain))
        assert saved_by_early_starts(tools, end) >= 0

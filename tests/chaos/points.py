"""The named points at which the processes of a round are hit."""

from __future__ import annotations

from typing import get_args

from penstock.log.points import Point
from tests.chaos.round import How, Mode

EVENTS = ("tool_start", "tool_end", "decision", "done", "step_start", "approval_request")
TOOLS = ("pay", "mail", "put")


def points_for(
    store: str, how: How, mode: Mode = "work", *, events: int = len(EVENTS), tools: int = len(TOOLS)
) -> list[str]:
    """The points that a process of this kind comes to, around the append of some kinds of events and some tools."""
    points: list[str] = []
    for point in get_args(Point):
        if point == "inside_append" and (store != "sqlite" or how == "stop"):
            continue  # PostgreSQL has no inside; a process that is frozen inside a write has a test of its own
        if point == "after_claim" and mode == "inline":
            continue  # only a worker comes to it
        if point.endswith("_append"):
            points += [f"{point}:{event}" for event in EVENTS[:events]]
        elif "tool" in point:
            points += [f"{point}:{name}" for name in TOOLS[:tools]]
        else:
            points.append(point)
    return points

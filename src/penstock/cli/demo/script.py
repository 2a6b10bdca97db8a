"""The script of the demo: a prompt, tools that really run, and a simulated model that calls them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from penstock.cli.screen.call_card import Span
from penstock.dialects.prompt import find_prompt
from penstock.events import ToolCall
from penstock.testing import ReceivedRequest, Reply, call, frames, say, think, wait
from penstock.testing.reply import ReplyPart
from penstock.tools.tool import Context, Tool, tool

PROMPT = "Checkout is slow since noon. What changed?"
INSTRUCTIONS = "You are on call for a shop. Look before you answer, and be brief."
PACE = 0.055
"""Seconds between two pieces of a response."""

REASONING = (
    "Slow since noon: a deploy, or something behind checkout. Logs and deploys will tell. People should know, too."
)
FIRST_TEXT = "I'll search the logs, list the deploys, and open an incident."
CALLS = (
    ToolCall("", "search_logs", {"service": "checkout", "seconds": 2, "since": "12:00"}),
    ToolCall("", "recent_deploys", {"service": "checkout", "since": "11:00"}),
    ToolCall("", "open_incident", {
        "title": "Checkout is slow",
        "severity": 2,
        "summary": "Payments take up to 9 s since noon. Logs and deploys are being searched; the cause is not known.",
    }),
)  # fmt: skip
ANSWER = (
    "Deploy 4812 of 12:04, “tax per item”, is the likely cause: since then 1,404 requests took over 2 s, and 1,362 "
    "of them waited for tax-api. Roll it back. I could not open the incident, as the tracker is frozen until 18:00: "
    "please do that by hand."
)
_PIECE = 5.5  # characters per piece of arguments, on wires that send them in pieces


class Watch:
    """The dependencies of the tools: they wait through it, and it records when each of them ran."""

    def __init__(self, speed: float = 1.0) -> None:
        self.spans: dict[str, Span] = {}
        self._speed = speed

    def sleep(self, seconds: float) -> None:
        """Waits, at the speed of the demo."""
        time.sleep(seconds / self._speed)

    @contextmanager
    def running(self, call_id: str) -> Generator[None]:
        """Records when the tool with this call id begins and ends."""
        begin = time.monotonic()
        try:
            yield
        finally:
            self.spans[call_id] = Span(begin, time.monotonic())


# -- the tools -----------------------------------------------------------------------------------------------------

DEPLOYS = ((4790, "search", "10:15", "faster facets"), (4805, "checkout", "11:20", "new button"),
           (4812, "checkout", "12:04", "tax per item"))  # fmt: skip
LOG = tuple(
    tuple(((at * 29 % 97) / (10 if shard else 100), "tax-api" if at % 31 else "cards") for at in range(300))
    for shard in range(7)
)
"""The requests in each shard of the log: the seconds that each took, and the service that it waited for."""


@tool(read_only=True)
def search_logs(context: Context[Watch], service: str, seconds: float, since: str) -> str:
    """Search the logs of a service for requests that took longer than this many seconds."""
    with context.deps.running(context.call_id):
        slow: Counter[str] = Counter()
        for done, shard in enumerate(LOG, 1):
            context.deps.sleep(0.5)
            slow.update(waits_for for took, waits_for in shard if took > seconds)
            context.report({"done": done, "total": len(LOG), "of": "shards"})
        waits_for, count = slow.most_common(1)[0]
        return f"{slow.total():,} requests of {service} since {since}; {count:,} waited for {waits_for}"


@tool(read_only=True)
def recent_deploys(context: Context[Watch], service: str, since: str) -> str:
    """List the deploys of a service."""
    with context.deps.running(context.call_id):
        context.deps.sleep(0.7)
        deploys = [(number, at, title) for number, name, at, title in DEPLOYS if name == service and at >= since]
        return "; ".join(f"{number} at {at}: {title}" for number, at, title in deploys)


@tool
def open_incident(context: Context[Watch], title: str, severity: int, summary: str) -> str:
    """Open an incident."""
    with context.deps.running(context.call_id):
        context.deps.sleep(0.5)
        raise PermissionError("the tracker is frozen until 18:00")


TOOLS: tuple[Tool[..., str], ...] = (search_logs, recent_deploys, open_incident)


# -- the model -----------------------------------------------------------------------------------------------------


def script(wire: str, dialect: str | None, pace: float) -> Callable[[ReceivedRequest], Reply]:
    """The model: it calls the tools, natively or in its text, and then answers."""
    rounds = [CALLS] if dialect is None or not find_prompt(dialect).is_single else [(call,) for call in CALLS]
    replies = iter(
        [*(_calling_reply(wire, dialect, pace, calls, index == 0) for index, calls in enumerate(rounds)), Reply(ANSWER)]
    )
    return lambda _request: next(replies)


def _calling_reply(wire: str, dialect: str | None, pace: float, calls: Sequence[ToolCall], is_first: bool) -> Reply:
    parts: list[ReplyPart] = [think(REASONING)] if is_first else []
    text = FIRST_TEXT if is_first else ""
    if dialect is None:
        return Reply(*parts, say(text), *(part for tool_call in calls for part in _call_parts(wire, tool_call, pace)))
    return Reply(*parts, say(f"{text}\n\n{find_prompt(dialect).calls(calls)}".lstrip()))


def _call_parts(wire: str, tool_call: ToolCall, pace: float) -> list[ReplyPart]:
    """The parts of a call; on wires with fewer pieces, after the time that the model needs to write it."""
    part = call(tool_call.name, tool_call.arguments)
    pieces = len(frames(wire, Reply(part))) - len(frames(wire, Reply()))
    return [wait(max(len(part.arguments) / _PIECE - pieces, 0) * pace), part]

"""The timeline of a run for an operator: what happened when, without what people and models wrote."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.log.store import DamagedRunError, RunRow, Store
from penstock.log.take_up import read_log
from penstock.run.events import LogEvent, Nested, innermost

MAX_ENTRIES = 500
"""How many entries of a timeline are sent; the last ones."""

MAX_NAME = 300
"""How many characters of a name or a reason are sent."""

_PIECES = ("text", "reasoning", "refusal", "tool_call_start", "tool_call_delta", "argument_delta", "output_delta")
_SHOWN = ("name", "agent", "model", "owner", "reason", "why", "ending", "code")
"""The fields that are shown: names and reasons, no text of a conversation."""


class TimelineEntry(Struct, frozen=True):
    """Events of one type in a row: the number and the time of the first, how many they are, and the last time."""

    number: int
    at: float
    type: str
    count: int
    until: float
    text: str = ""
    depth: int = 0


class RunTimeline(Struct, frozen=True):
    """The last entries of a run; `left_out` is how many came before, and `damage` says why it ends early."""

    entries: list[TimelineEntry]
    left_out: int = 0
    damage: str = ""


def timeline_of(store: Store, row: RunRow) -> RunTimeline:
    """The timeline of a run. This reads all of its events."""
    entries: list[TimelineEntry] = []
    damage, last = "", None
    try:
        for number, at, event in read_log(store, row.id, last=row.seq):
            inner, depth = innermost(event), _depth(event)
            kind = (inner.type, depth) if inner.type in _PIECES else None  # pieces of a response are one entry
            if kind is not None and kind == last:
                entries[-1] = replace(entries[-1], count=entries[-1].count + 1, until=at)
            else:
                entries.append(TimelineEntry(number, at, inner.type, 1, at, _text(inner), depth))
            last = kind
    except DamagedRunError as error:
        damage = str(error)[:MAX_NAME]
    return RunTimeline(entries[-MAX_ENTRIES:], max(0, len(entries) - MAX_ENTRIES), damage)


def _depth(event: LogEvent) -> int:
    return len(event.path) if isinstance(event, Nested) else 0


def _text(event: Any) -> str:
    if event.type in _PIECES:
        return ""
    values = (getattr(event, name, "") for name in _SHOWN)
    return ", ".join(value for value in values if isinstance(value, str) and value)[:MAX_NAME]

"""Events without the times of tools, which differ from run to run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from penstock.run.events import Nested, ToolEnd


def timeless(events: Iterable[Any]) -> list[Any]:
    """The events, without when each tool ran and how long."""
    return [_timeless(event) for event in events]


def _timeless(event: Any) -> Any:
    if isinstance(event, Nested):
        return replace(event, event=_timeless(event.event))
    return replace(event, started=None, seconds=None) if isinstance(event, ToolEnd) else event

"""Remarks of a command between the events of a run."""

from __future__ import annotations

from msgspec import Struct

from penstock.run.events import LogEvent

RESET = "the log lost events that were shown: ignore everything above"
"""What is shown for a `Reset`."""


class Remark(Struct, frozen=True):
    """A sentence of the command about the run that it shows, and its style. It is not an event."""

    text: str
    style: str = "odd"
    mark: str = "■ "


Shown = LogEvent | Remark
"""What the output of a run shows."""

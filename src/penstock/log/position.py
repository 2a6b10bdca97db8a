"""Positions of readers in a log: the number of an event, and when that was written.

Events are only appended, so a reader whose last event is in the log, written at the same moment, has read the same
events as the log has. A log that lost its end (a crash of the database, a restored backup) and was continued has other
events under the same numbers, of other times. No event costs more for it: its time is stored anyway.
"""

from __future__ import annotations

import re
from typing import Any

from penstock.errors import PenstockError, UsageError

_TEXT = re.compile(r"([0-9]{1,18})(?:-([0-9a-f]{1,8}))?", re.ASCII)


class OtherPastError(PenstockError):
    """The log does not have what the reader has read: it must begin again."""


class Position(int):
    """The number of an event in the log of a run, which knows its past.

    It is an `int`. `token` is the same as text, for other processes and for storage. A reader that continues after a
    position whose event the log no longer has gets a `Reset`, and then all events; one that continues after a bare
    number gets what has a larger number. `past` identifies when the event was written; None if that is not known.
    """

    past: int | None

    def __new__(cls, number: int = 0, past: int | None = None) -> Position:
        position = super().__new__(cls, number)
        position.past = past
        return position

    @property
    def token(self) -> str:
        """The position as text, such as `17-5f3a01c2`."""
        return f"{int(self)}" if self.past is None else f"{int(self)}-{self.past:x}"


START = Position()
"""The position before the first event."""


def past_of(at: float) -> int:
    """What identifies the moment at which an event was written: microseconds, of about 71 minutes."""
    return int(at * 1_000_000) & 0xFFFFFFFF


def position_at(number: int, at: float) -> Position:
    """The position of an event that was written at this time."""
    return Position(number, past_of(at))


def parse_position(value: Any) -> Position:
    """A position from a reader: a `Position`, a token or a number; a `UsageError` for anything else."""
    if isinstance(value, Position):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return Position(value)
    if isinstance(value, str) and (match := _TEXT.fullmatch(value)) is not None:
        number, past = match.groups()
        return Position(int(number), None if past is None else int(past, 16))
    raise UsageError(f"after must be a position of this run: the number of an event, or 0, not {value!r:.60}")

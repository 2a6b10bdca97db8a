"""A run as it is stored: JSON that another process can load and continue.

Version 2 has the events of the run. Version 1, which users may have stored, had its state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Raw, Struct

from penstock.errors import UsageError
from penstock.messages import Message
from penstock.run.events import EndReason, LogEvent, encode
from penstock.run.execution import Execution
from penstock.run.limits import Tally
from penstock.turn import Turn

VERSION = 2
Phase = Literal["new", "answer", "tools", "hook", "over"]


class Version(Struct, frozen=True):
    """The part of a stored run that every version can read."""

    penstock_run: Annotated[int, Meta(ge=1)]


class RunSnapshot(Version, frozen=True):
    """The state of a run, as version 1 stored it. `data` of its executions is the program's own, and not in it."""

    messages: list[Message]
    phase: Phase
    answer: Turn
    executions: list[Execution]
    tally: Tally
    output: str = ""
    end: tuple[EndReason, str] = ("answered", "")
    next_block: int = 0


class StoredEvents(Version, frozen=True):
    """The events of a run; after `base`, if it was stored by version 1 before.

    `deadlines` are the times at which calls that wait expire, in seconds since 1970. `next_block` is the first number
    that no block of the run had, also of what was not read or was withdrawn.
    """

    events: list[LogEvent]
    base: RunSnapshot | None = None
    deadlines: dict[str, float] = {}
    next_block: int = 0


class _Written(Version, frozen=True):
    events: Sequence[Raw]
    base: Raw | None
    deadlines: Mapping[str, float]
    next_block: int


def encode_events(
    events: Sequence[LogEvent], base: bytes | None, deadlines: Mapping[str, float], next_block: int
) -> bytes:
    """The events of a run as JSON, after a run that version 1 stored."""
    bodies = [Raw(encode(event)) for event in events]
    return msgspec.json.encode(_Written(VERSION, bodies, None if base is None else Raw(base), deadlines, next_block))


def decode(data: bytes | str) -> StoredEvents | RunSnapshot:
    """Read a stored run; a `UsageError` if it is not one, or is of a later version."""
    try:
        version = msgspec.json.decode(data, type=Version).penstock_run
        if version > VERSION:
            raise UsageError(f"the run was stored by a later version ({version}; this one reads {VERSION})")
        if version == 1:
            return msgspec.json.decode(data, type=RunSnapshot)
        return msgspec.json.decode(data, type=StoredEvents)
    except (TypeError, msgspec.MsgspecError) as error:
        raise UsageError(f"this is not a stored run: {error}") from None
    except RecursionError:
        raise UsageError("this is not a stored run: it is nested too deeply") from None

"""A run as it is stored: JSON that another process can load and continue."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from penstock.errors import UsageError
from penstock.messages import Message
from penstock.run.events import EndReason
from penstock.run.execution import Execution
from penstock.run.limits import Tally
from penstock.turn import Turn

VERSION = 1
Phase = Literal["new", "answer", "tools", "over"]


class Version(Struct, frozen=True):
    """The part of a stored run that every version can read."""

    penstock_run: Annotated[int, Meta(ge=1)]


class StoredRun(Version, frozen=True):
    """The state of a run. `data` of its executions is the program's own, and not stored."""

    messages: list[Message]
    phase: Phase
    answer: Turn
    executions: list[Execution]
    tally: Tally
    output: str = ""
    end: tuple[EndReason, str] = ("answered", "")
    next_block: int = 0


def decode(data: bytes | str) -> StoredRun:
    """Read a stored run; a `UsageError` if it is not one, or a later version wrote it."""
    try:
        version = msgspec.json.decode(data, type=Version).penstock_run
        if version > VERSION:
            raise UsageError(f"the run was stored by a later version ({version}; this one reads {VERSION})")
        return msgspec.json.decode(data, type=StoredRun)
    except (TypeError, msgspec.MsgspecError) as error:
        raise UsageError(f"this is not a stored run: {error}") from None

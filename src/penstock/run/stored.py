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
from penstock.run.stored_checks import problems_of
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
    """Read a stored run; a `UsageError` if it is not one, was changed so that it is none, or is of a later version."""
    try:
        version = msgspec.json.decode(data, type=Version).penstock_run
        if version > VERSION:
            raise UsageError(f"the run was stored by a later version ({version}; this one reads {VERSION})")
        run = msgspec.json.decode(data, type=StoredRun)
    except (TypeError, msgspec.MsgspecError) as error:
        raise UsageError(f"this is not a stored run: {error}") from None
    except RecursionError:
        raise UsageError("this is not a stored run: it is nested too deeply") from None
    if problem := next(problems_of(run), ""):
        raise UsageError(f"the stored run is not valid: {problem}")
    return run

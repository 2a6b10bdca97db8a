"""The start of a run in a log, validated before any store has it; and a run that this process owns."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from penstock.errors import UsageError
from penstock.log.branches.past_calls import PastCalls
from penstock.log.store import Claim, Input, RunRow, Store
from penstock.messages import Message
from penstock.run.events import RunStart

MAX_TEXT = 500
"""How many characters the id and other columns of a run have at most: PostgreSQL indexes no long text."""

_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")  # and halves of characters


def new_start(
    agent: str, messages: Iterable[Message], run_id: str | None = None, thread: str = "", tenant: str = "",
    meta: Any = None,
) -> tuple[RunRow, RunStart]:  # fmt: skip
    """The row and the first event of a run; without an id, it gets a new one.

    A `UsageError` for what some store cannot keep: it must be the same in all of them.
    """
    for name, text in {"agent": agent, "run_id": run_id or "", "thread": thread, "tenant": tenant}.items():
        expect_line(name, text)
    try:
        msgspec.json.encode(meta)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"meta must be JSON: {error}") from None
    row = RunRow(id=run_id or uuid.uuid4().hex, agent=agent, thread=thread, tenant=tenant)
    return row, RunStart(tuple(messages), agent, meta)


def expect_line(name: str, text: Any) -> None:
    """Raise a `UsageError` for text that not every store can keep in a column."""
    if not isinstance(text, str) or len(text) > MAX_TEXT or _CONTROLS.search(text):
        raise UsageError(f"{name} must be one line of text, at most {MAX_TEXT} characters long, not {text!r:.60}")


class OwnedRun(Struct, frozen=True):
    """A run with a log that this process owns.

    `seconds` is how long earlier owners have worked on it, and `began` how long they had when each of its inner runs
    began, by the id of the call around it. If its reader leaves, a run that `outlives_reader` is given
    back to the store, for another worker; any other run is cancelled. `inputs` came while it had no owner. A fork may
    have another `model`, and `past` are the calls that its parent has made.
    """

    store: Store
    claim: Claim
    seconds: float = 0.0
    meta: Any = None
    inputs: Sequence[Input] = ()
    outlives_reader: bool = False
    began: Mapping[str, float] = {}
    model: str = ""
    past: PastCalls | None = None


def expect_store(store: Any) -> None:
    """Raise a `UsageError` for anything else, such as the path of one."""
    if not hasattr(store, "claim"):
        raise UsageError(f"the log must be a store, as in penstock.log.open('runs.db'), not {store!r}")

"""The keywords of a run that has a log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict

from penstock.errors import UsageError
from penstock.messages import Message

if TYPE_CHECKING:
    from penstock.log.follower import LoggedStart
    from penstock.log.store import Store


class LogOptions(TypedDict, total=False):
    """Where a run is kept. `log` is a store (`penstock.log.open`); the others need it.

    The same `run_id` with the same agent, messages and `meta` is the run that exists: it is followed, and continued if
    nobody owns it. `thread` and `tenant` are for lists of runs. `meta` is JSON, such as the id of a user.
    """

    log: Store | None
    run_id: str | None
    thread: str
    tenant: str
    meta: Any


LOG_OPTIONS = ("log", "run_id", "thread", "tenant", "meta")


def logged_start(name: str, messages: Sequence[Message], options: LogOptions) -> LoggedStart | None:
    """The start of a run with a log; None if there is no log."""
    store = options.get("log")
    if store is None:
        for option in ("run_id", "thread", "tenant", "meta"):
            if options.get(option):
                raise UsageError(f"{option} is for a run with a log: pass log= as well")
        return None
    from penstock.log.follower import LoggedStart
    from penstock.log.start import new_start

    if not hasattr(store, "claim"):
        raise UsageError(f"log must be a store, as in penstock.log.open('runs.db'), not {store!r}")
    if not name:
        raise UsageError("a run with a log needs the name of its agent: add one, as in Agent(..., name='support')")
    row, start = new_start(
        name, messages, options.get("run_id"), options.get("thread", ""), options.get("tenant", ""), options.get("meta")
    )
    return LoggedStart(store, row, start)

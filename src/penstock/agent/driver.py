"""What both drivers share: a run as its reader uses it, from its begin to its end.

A driver begins the run, passes on what the reader wants of it, and ends it; its dispatcher carries out the commands of
the machine. Threads and tasks refer to the driver and its parts, but not to the public run (`agent_run`), so that a run
which nobody can read any more is freed and stopped.
"""

from __future__ import annotations

import time
from typing import Any, Generic, TypeVar

from penstock.agent.async_dispatcher import AsyncDispatcher
from penstock.agent.driven_run import DrivenRun
from penstock.agent.log_listener import LogListener
from penstock.agent.reader_view import OneReader, reader_view
from penstock.agent.sync_dispatcher import SyncDispatcher
from penstock.errors import UsageError
from penstock.run.events import Done, StepEnd, StreamEvent, ToolEnd, innermost
from penstock.run.machine import Run

MAX_WAIT = 1.0
"""How many seconds a run that ends waits for what it cancelled: a connection or a tool may not react."""

P = TypeVar("P", SyncDispatcher, AsyncDispatcher)


class Driver(Generic[P]):
    """The state of a run that both drivers share: `SyncDriver` for sync code, `AsyncDriver` for async code.

    `listener` connects the run to its log, if it has one.
    """

    def __init__(self, driven: DrivenRun, dispatcher: P) -> None:
        self.view = reader_view(driven.config)
        self.listener = LogListener(driven, dispatcher)
        self._driven = driven
        self._dispatcher: P = dispatcher
        self._reader = OneReader()
        self._has_begun = False
        self._is_closed = False
        self._is_detached = False  # the run continues when its reader leaves
        self._is_alone = False  # its reader has left

    @property
    def run(self) -> Run:
        """The machine of the run."""
        return self._driven.run

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._driven.records.run_id

    @property
    def done(self) -> Done | None:
        """The last event, once the run has ended here."""
        return self._driven.done

    @property
    def error(self) -> Exception | None:
        """The exception of a request that failed."""
        return self._driven.error

    @property
    def partial(self) -> Any:
        """The structured output so far."""
        return None if self.view is None else self.view.output

    @property
    def has_log(self) -> bool:
        """Whether the run is kept in a log."""
        return self._driven.ownership.has_log

    def detach(self) -> None:
        """Let the run continue when its reader leaves; if this process cannot, the run is given back to its store."""
        self._driven.ownership.detach()
        self._is_detached = True

    def dump(self) -> bytes:
        """The run as JSON, with the times at which its calls expire."""
        self.fold()
        now = time.time()
        left = self._dispatcher.seconds_left
        return self.run.dump({call_id: now + seconds for call_id, seconds in left.items()})

    def fold(self) -> None:
        """Bring the history up to what the reader has read."""
        self.run.fold_unread(self._driven.outbox.unread_events)

    @property
    def _goes_on_alone(self) -> bool:
        """Whether the run continues here although its reader has just left."""
        is_possible = self._is_detached and self._has_begun and self.done is None
        return is_possible and not self._is_alone and not self._driven.ownership.is_left

    def _check_open(self) -> None:
        """Raise a `UsageError` if the run is paused."""
        if self.done is not None and self.done.reason == "paused":
            raise UsageError("the run is paused: continue it with Agent.resume(run.dump()), and answer there")


def is_due_after_cancel(event: StreamEvent) -> bool:
    """Whether a reader who has cancelled the run still gets this event."""
    return isinstance(innermost(event), ToolEnd | StepEnd | Done)

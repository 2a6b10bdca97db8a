"""The dispatcher of a run in sync code that nobody watches: `agent.run` without callbacks and without a log.

What would wait for the reader does not wait. The thread in which a response or a tool has ended starts what follows,
and the reader sleeps until the end of the run: a change from one thread to another costs more than the rest of a step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from functools import partial

from penstock.agent.config import AgentConfig
from penstock.agent.driven_run import DrivenRun
from penstock.agent.run_errors import is_interrupt
from penstock.agent.sync_dispatcher import SyncDispatcher
from penstock.run.commands import Command
from penstock.run.events import Done, LogEvent, StreamEvent
from penstock.run.outbox import Gate, Outbox


def is_unseen(config: AgentConfig, *, has_log: bool) -> bool:
    """Whether nobody sees the events of a run before its end."""
    return not (config.is_read or config.callbacks.are_set or has_log)


class UnseenOutbox(Outbox):
    """Keeps only the end of the run."""

    def put(self, events: list[StreamEvent], log: Sequence[LogEvent] | None = None) -> bool:
        return isinstance(events[-1], Done) and super().put(events, log)


class UnseenDispatcher(SyncDispatcher):
    """Carries out the commands of a run, and then, in the same thread, what follows from them."""

    def __init__(self, driven: DrivenRun, outer: UnseenDispatcher | None = None, key: str = "") -> None:
        if outer is None:
            driven.outbox = UnseenOutbox()
        super().__init__(driven, outer, key)
        self._root: UnseenDispatcher = self if outer is None else outer._root
        self._due: deque[Gate] = deque()
        self._is_busy = False  # commands are being carried out, which belong together

    def carry_out(self, commands: list[Command]) -> None:
        root = self._root
        was_busy, root._is_busy = root._is_busy, True
        try:
            super().carry_out(commands)
        finally:
            root._is_busy = was_busy
        root._go_on()

    def new_inner(self, driven: DrivenRun, key: str) -> UnseenDispatcher:
        return UnseenDispatcher(driven, self, key)

    def hold(self, gate: Gate) -> None:
        with self.lock:
            self._root._due.append(gate)
            self._root._go_on()

    def cancel(self, why: str) -> None:
        with self.lock:
            self._due.clear()
            super().cancel(why)

    def _go_on(self) -> None:
        """Do what is due, with the lock held; what that raises is for the reader."""
        try:
            while self._due and not self._is_busy:
                self._call(self._due.popleft())
            if not self._is_busy and self._driven.run.state.phase == "tools":
                self.pause_if_waiting()
        except BaseException as error:
            if is_interrupt(error):
                raise
            self._driven.outbox.items.append(partial(_raise, error))
            self.wake()

    def _call(self, gate: Gate) -> None:
        self._is_busy = True
        try:
            gate()
        finally:
            self._is_busy = False


def _raise(error: BaseException) -> None:
    raise error

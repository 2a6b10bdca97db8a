"""The driver of a run in sync code."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import copy_context
from inspect import isawaitable
from queue import Empty
from typing import Any

from penstock.agent.config import AgentConfig
from penstock.agent.detached import give_back_at_exit
from penstock.agent.dispatcher import PAUSE
from penstock.agent.driven_run import DrivenRun
from penstock.agent.driver import MAX_WAIT, Driver, is_due_after_cancel
from penstock.agent.log_listener import provided
from penstock.agent.sync_dispatcher import SyncDispatcher
from penstock.agent.tool_execution import in_thread
from penstock.agent.unseen_dispatcher import UnseenDispatcher, is_unseen
from penstock.log.store import LostRunError, OwnedRun, StoreError
from penstock.messages import Message
from penstock.run.commands import Command
from penstock.run.events import Done, RequestKind, StreamEvent
from penstock.run.machine import Run

_MAX_BLOCKED: float | None = 0.1 if os.name == "nt" else None
"""The seconds that the reader's thread waits at a time: on Windows, Ctrl-C does not interrupt a wait."""


class SyncDriver(Driver[SyncDispatcher]):
    """Drives a run that is read in sync code."""

    def __init__(self, config: AgentConfig, run: Run, deps: Any, owned: OwnedRun | None = None) -> None:
        driven = DrivenRun(config, run, deps, owned)
        kind = UnseenDispatcher if is_unseen(config, has_log=owned is not None) else SyncDispatcher
        dispatcher = kind(driven)
        super().__init__(driven, dispatcher)
        self.lock = dispatcher.lock
        self._process = 0  # in which the run has begun

    @property
    def _is_inherited(self) -> bool:
        """Whether the run began before this process was forked.

        Its threads are in the parent process, and one of them may have held its lock.
        """
        return self._has_begun and self._process != os.getpid()

    def begin(self) -> None:
        if self._has_begun:
            return
        self._has_begun, self._process = True, os.getpid()
        driven, dispatcher = self._driven, self._dispatcher
        driven.enter()
        dispatcher.tools.loop.attach()
        self.listener.open()
        dispatcher.prepare()
        with self.lock:
            dispatcher.carry_out((dispatcher.first or self.run.begin)())
            self.listener.take_inputs()
            dispatcher.start_time_limit()

    def cancel(self, why: str) -> None:
        if not self._is_inherited:
            self._dispatcher.cancel(why)

    def decide(self, call_id: str, approved: bool, arguments: dict[str, Any] | None, reason: str) -> None:
        self._resolve(call_id, "approval", lambda run: run.decide(call_id, approved, arguments, reason))

    def provide(self, call_id: str, value: Any, is_error: bool) -> None:
        with self.lock:
            is_question = any(run.state.waits_for(call_id, "input") for run in self.run.tree())
        kind: RequestKind = "input" if is_question else "deferred"
        self._resolve(call_id, kind, lambda run: run.provide(call_id, provided(value, is_error)))

    def say(self, message: Message) -> None:
        self.begin()
        with self.lock:
            self._check_open()
            self._dispatcher.carry_out(self.run.say(message))

    def _resolve(self, call_id: str, kind: RequestKind, answer: Callable[[Run], list[Command]]) -> None:
        """Carry out the answer to a request of the run, or of an inner run."""
        self.begin()
        with self.lock:
            self._check_open()
            holder = self._dispatcher.inner.holder(call_id)
            commands = answer(holder.run)
            self._driven.outbox.withdraw(call_id, kind)
            holder.carry_out(commands)
            holder.expiries.settle()

    def read_events(self, reader: object) -> Iterator[StreamEvent]:
        """The events of the run; the iterator keeps `reader` alive."""
        self._reader.claim()
        return self._events(reader)

    def _events(self, reader: object) -> Iterator[StreamEvent]:
        self.begin()
        is_alone, view = self._is_alone, None if self._is_alone else self.view
        has_callbacks = self._driven.config.callbacks.are_set and not is_alone
        may_be_late = has_callbacks or view is not None  # they hold events that `cancel` cannot drop
        driven, run, lock = self._driven, self.run, self.lock
        take, arrivals = driven.outbox.take, self._dispatcher.arrivals
        try:
            while True:
                if run.state.phase == "tools":
                    self._dispatcher.pause_if_waiting()
                if self._is_alone and driven.is_logged_to_its_end:
                    return
                try:
                    arrivals.get(timeout=_MAX_BLOCKED)
                except Empty:
                    continue
                with lock:
                    item = take()
                    if callable(item):
                        item()
                        continue
                events = item or ()
                for event in events if view is None else view.through(events):
                    if has_callbacks:
                        self._call_back(event)
                    if may_be_late and driven.is_cancelled and not is_due_after_cancel(event):
                        continue
                    yield event
                    if type(event) is Done:
                        return
        finally:
            self.end() if is_alone else self.close()

    def _call_back(self, event: StreamEvent) -> None:
        """Pass an event to the callbacks of the agent."""
        result = self._driven.config.callbacks.call(event)
        if isawaitable(result):
            self._dispatcher.tools.loop.begin(result, copy_context()).result()

    def close(self) -> None:
        """Cancel the run if it has not ended, and wait until its threads have ended, at most `MAX_WAIT` seconds.

        A run that is detached continues in a thread.
        """
        self._is_closed = True
        if self._is_inherited:
            return
        if self._goes_on_alone:
            self._go_on_alone()
        elif not self._is_alone:
            self.end()

    def end(self) -> None:
        """Give the run back or cancel it, if it has not ended, and wait for its tools and its request."""
        driven, dispatcher = self._driven, self._dispatcher
        if driven.ownership.is_left:
            dispatcher.call(dispatcher.leave)
        elif driven.continues_elsewhere and driven.done is None:
            dispatcher.call(dispatcher.give_back)
        elif driven.done is None:
            self.cancel("the reader closed the run")
        end = time.monotonic() + MAX_WAIT
        while not driven.outbox.is_written and time.monotonic() < end:
            time.sleep(PAUSE)
        with self.lock:
            dispatcher.timers.close()
            driven.scope.close()
            threads = dispatcher.close()
        end = time.monotonic() + MAX_WAIT
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))

    def _go_on_alone(self) -> None:
        """Read the run in a thread: its reader has left. If the program ends before, the run is given back."""

        def read() -> None:
            with suppress(LostRunError, StoreError):  # another worker continues it
                for _ in self._events(None):
                    pass

        self._is_alone = True
        give_back_at_exit(self)
        in_thread(read, "detached", self._driven.scope.variables)

    def abandon(self) -> None:
        """The run can no longer be read: close it, without waiting.

        In a thread, because this one may be in the middle of anything when an object is freed.
        """
        if self._has_begun and not self._is_closed and not self._is_inherited:
            with suppress(RuntimeError):  # the interpreter is shutting down
                in_thread(self.close, "close", self._driven.scope.variables)

"""The driver of a run in plain code: a thread reads the model, the tools have theirs, one lock guards the machine."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from inspect import isawaitable
from queue import Empty, SimpleQueue
from typing import Any

from penstock.agent.approval_checks import SyncChecks
from penstock.agent.config import AgentConfig
from penstock.agent.detached import give_back_at_exit
from penstock.agent.driver import FOLD_SIZE, MAX_WAIT, PAUSE, Driver, is_due_after_cancel, provided
from penstock.agent.expiries import Expiries
from penstock.agent.records import LOGGED
from penstock.agent.sync_tools import SyncTools
from penstock.agent.timers import ThreadTimers
from penstock.agent.tool_execution import ToolExecution, awaited, in_thread
from penstock.log.outbox import LoggedOutbox
from penstock.log.store import Input, LostRunError, OwnedRun, StoreError
from penstock.messages import Message
from penstock.model.stream import Stream
from penstock.results import Outcome, failure
from penstock.run.commands import (
    AnswerTool,
    AskModel,
    CancelTool,
    CheckApproval,
    Command,
    Emit,
    ExpireLater,
    StartTool,
    StopAsking,
)
from penstock.run.events import Done, RequestKind, StreamEvent
from penstock.run.machine import Run
from penstock.run.outbox import Gate

_MAX_BLOCKED: float | None = 0.1 if os.name == "nt" else None
"""The seconds that the reader's thread waits at a time: on Windows, Ctrl-C does not interrupt a wait."""


class SyncDriver(Driver[SyncTools]):
    """Drives a run that is read in plain code."""

    def __init__(self, config: AgentConfig, run: Run, deps: Any, owned: OwnedRun | None = None) -> None:
        self.lock = threading.RLock()
        super().__init__(config, run, deps, owned)
        self._arrivals: SimpleQueue[None] = SimpleQueue()  # at least one for each item in the outbox
        self._stream: Stream | None = None
        self._model_thread: threading.Thread | None = None
        self._tools = SyncTools(self.lock, self._tool_ended)
        self._timers = ThreadTimers()
        self._expiries = Expiries(run, self._timers)
        self._checks = SyncChecks(self.lock, run, self._policy_of, self._tools.loop, self._approval_checked)

    def begin(self) -> None:
        if self._has_begun:
            return
        self._has_begun = True
        self._variables = copy_context()
        self._variables.run(self.records.enter)
        self._observe()
        self._tools.loop.attach()
        self._open_log()
        begin = self._listed_begin() if self._needs_listing else self.run.begin
        with self.lock:
            self._carry_out(begin())
            self._take_inputs()
            if (seconds := self._seconds_left) is not None:
                self._timers.start("", seconds, partial(self._happened, self._expired))

    def _listed_begin(self) -> Callable[[], list[Command]]:
        """List the tools of a run that continues; returns how it does."""
        try:
            self._use(self._step_tools.listed())
        except Exception as error:  # noqa: BLE001  # a source of tools may fail in any way
            return partial(self._failed, error)
        return self.run.begin

    def cancel(self, why: str) -> None:
        with self.lock:
            self._is_cancelled = True
            self._carry_out(self.run.cancel(why, self._outbox.drop()))

    def decide(self, call_id: str, approved: bool, arguments: dict[str, Any] | None, reason: str) -> None:
        self._resolve(call_id, "approval", lambda: self.run.decide(call_id, approved, arguments, reason))

    def provide(self, call_id: str, value: Any, is_error: bool) -> None:
        kind: RequestKind = "input" if self.run.waits_for(call_id, "input") else "deferred"
        self._resolve(call_id, kind, lambda: self.run.provide(call_id, provided(value, is_error)))

    def say(self, message: Message) -> None:
        self.begin()
        with self.lock:
            self._check_open()
            self._carry_out(self.run.say(message))

    def close(self) -> None:
        """Cancel the run if it has not ended, and wait until its threads have ended, at most `MAX_WAIT` seconds.

        A run that is detached continues in a thread.
        """
        self._is_closed = True
        if self._goes_on_alone:
            self._go_on_alone()
        elif not self._is_alone:
            self.end()

    def end(self) -> None:
        """Give the run back or cancel it, if it has not ended, and wait for its tools and its request."""
        if self._is_left:
            with self.lock:
                self._leave()
        elif self._is_given_back and self.done is None:
            self._give_back()
        elif self.done is None:
            self.cancel("the reader closed the run")
        end = time.monotonic() + MAX_WAIT
        while not self._outbox.is_written and time.monotonic() < end:
            time.sleep(PAUSE)
        with self.lock:
            self._timers.close()
            if self._observer is not None:
                self._observer.close()
            threads = self._tools.close()
            if self._model_thread is not None:
                threads.insert(0, self._model_thread)
            self._model_thread = None
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
        in_thread(read, "detached", self._variables)

    def _give_back(self) -> None:
        with self.lock:
            super()._give_back()

    def _stop_asking(self) -> None:
        if self._stream is not None:
            self._stream.cancel()

    def abandon(self) -> None:
        """The run can no longer be read: close it, without waiting.

        In a thread, because this one may be in the middle of anything when an object is freed.
        """
        if self._has_begun and not self._is_closed:
            with suppress(RuntimeError):  # the interpreter is shutting down
                in_thread(self.close, "close", self._variables)

    def _resolve(self, call_id: str, kind: RequestKind, answer: Callable[[], list[Command]]) -> None:
        """Carry out the answer to a request of the run."""
        self.begin()
        with self.lock:
            self._check_open()
            commands = answer()
            self._outbox.withdraw(call_id, kind)
            self._carry_out(commands)
            self._expiries.settle()

    # -- the reader ------------------------------------------------------------------------------------------------

    def read_events(self, reader: object) -> Iterator[StreamEvent]:
        """The events of the run; the iterator keeps `reader` alive."""
        self._claim()
        return self._events(reader)

    def _events(self, reader: object) -> Iterator[StreamEvent]:
        self.begin()
        is_alone, view = self._is_alone, None if self._is_alone else self.view
        has_callbacks = self._config.callbacks.are_set and not is_alone
        has_more = has_callbacks or view is not None  # than the events that a unit had when the run was cancelled
        run, lock, take, arrivals = self.run, self.lock, self._outbox.take, self._arrivals
        try:
            while True:
                if run.phase == "tools":
                    self._pause_if_waiting()
                if self._is_alone and self._is_logged_to_its_end:
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
                        self.call_back(event)
                    if has_more and self._is_cancelled and not is_due_after_cancel(event):
                        continue
                    yield event
                    if type(event) is Done:
                        return
        finally:
            self.end() if is_alone else self.close()

    def _pause_if_waiting(self) -> None:
        with self.lock:
            if self._should_pause:
                self._carry_out(self.run.pause(self._expiries.pause))

    def call_back(self, event: StreamEvent) -> None:
        """Pass an event to the callbacks of the agent."""
        result = self._config.callbacks.call(event)
        if isawaitable(result):
            self._tools.loop.begin(awaited(result), copy_context()).result()

    # -- the log -----------------------------------------------------------------------------------------------------

    def _on_committed(self, units: int) -> None:
        with self.lock:
            assert isinstance(self._outbox, LoggedOutbox)
            for _ in range(max(1, self._outbox.committed(units))):  # also for nothing: the run may have to pause
                self._arrivals.put(None)

    def _on_input(self, input: Input) -> None:
        self._take_input(input)

    def _take_input(self, input: Input) -> None:
        with self.lock:
            assert isinstance(self._outbox, LoggedOutbox)
            if self.done is not None:
                return  # it stays in the store, for the next owner of the run
            self._outbox.inputs = (input.number,)
            self._is_cancelled |= input.kind == "cancel"
            self._carry_out(self._guarded(partial(self._input_commands, input)))
            self._outbox.acknowledge()
            self._expiries.settle()

    def _on_lost(self, error: Exception) -> None:
        with self.lock:
            self._lose(error)
            self._arrivals.put(None)

    # -- the machine -----------------------------------------------------------------------------------------------

    def _happened(self, step: Callable[[], list[Command]]) -> None:
        """Tell the machine what happened, and carry out what follows."""
        with self.lock:
            self._carry_out(self._guarded(step))

    def _carry_out(self, commands: list[Command]) -> None:
        """Carry out commands, under the lock."""
        due = deque(() if self._is_left else commands)
        while due:
            match command := due.popleft():
                case Emit():
                    if not LOGGED.isdisjoint(map(type, command.events)):
                        self.records.add(command.events)
                    if self._observer is not None:
                        self._observer.add(command.events)
                    if self._outbox.put(command.events, command.log):
                        self._arrivals.put(None)
                    if command.events and isinstance(last := command.events[-1], Done):
                        self._remember(last)
                case AskModel() | StartTool(awaits_reader=True):
                    self._hold(partial(self._reached, command))
                case StartTool():
                    due += self._start_tool(command)
                case AnswerTool():
                    self._answer_tool(command)
                case CheckApproval():
                    due += self._check_approval(command)
                case ExpireLater():
                    self._expiries.start(
                        command, partial(self._happened, partial(self.run.call_expired, command.call_id))
                    )
                case CancelTool():
                    self._stop_tool(command.key)
                case StopAsking():
                    self._stop_asking()

    def _hold(self, gate: Gate) -> None:
        """Call this, under the lock, when the reader asks for the event after everything emitted so far."""
        with self.lock:
            if self._outbox.hold(gate):
                self._arrivals.put(None)

    def _reached(self, command: AskModel | StartTool) -> None:
        """The reader has come to a command that waited."""
        self._visit_before(command)
        self._check_lease()
        if self.run.reached(command):
            self._carry_out(self._ask_model(command) if isinstance(command, AskModel) else self._start_tool(command))

    def _ask_model(self, command: AskModel) -> list[Command]:
        """Ask the model in a thread; returns what is to be done if there is no thread for it."""
        try:
            self._model_thread = in_thread(partial(self._read_model, command.messages), "model", self._variables)
        except RuntimeError as error:
            return self._failed(error)
        return []

    def _check_approval(self, check: CheckApproval) -> list[Command]:
        """Have a predicate called; returns what is to be done if there is no thread for it."""
        try:
            self._checks.start(check, self._variables)
        except RuntimeError as error:
            return self._failed(error)
        return []

    def _read_model(self, messages: tuple[Message, ...]) -> None:
        """Read a response; its end, or what ended this thread, waits for the reader."""
        try:
            self._read_response(messages)
            end = partial(self._happened, self.run.ended)
        except BaseException as error:  # noqa: BLE001  # the reader gets it
            end = partial(self._happened, partial(self._failed, error))
        self._hold(end)

    def _read_response(self, messages: tuple[Message, ...]) -> None:
        run, outbox = self.run, self._outbox
        if self._config.sources:
            config = self._step_tools.listed()
            with self.lock:
                self._use(config)
        if self._observer is not None:
            self._observer.begin_request(run.step, messages)
        response = self._config.model.stream(list(messages), **self._request())
        with self.lock:
            if run.is_over or self._is_left:
                return
            self._stream = response
        with response as stream:
            for chunks in stream.batches():
                with self.lock:
                    self._carry_out(run.chunks(chunks))
                    if len(run.unfolded) > FOLD_SIZE:
                        run.fold(outbox.most_unread)
                while outbox.is_full and run.phase != "over" and not self._is_left:
                    time.sleep(PAUSE)
                if run.phase == "over" or self._is_left:
                    return

    # -- the tools -------------------------------------------------------------------------------------------------

    def _start_tool(self, start: StartTool) -> list[Command]:
        """Start a tool; returns what is to be done if there is no thread for it."""
        context = self._context(start, partial(self._report, start.key))
        try:
            if start.timeout is not None:
                self._timers.start(start.key, start.timeout, partial(self._happened, partial(self._late, start.key)))
            tool = self._config.tools[start.name]
            execution = ToolExecution(tool, start, context, self._may_start)
            self._tools.start(tool, start, execution, partial(self._room, start.key), self._tool_variables(start))
            self._visit("after_tool_start", start.name)
        except RuntimeError as error:
            self._stop_tool(start.key)
            return self._guarded(partial(self.run.tool_done, start.key, failure(error)))
        return []

    def _report(self, key: str, data: Any) -> None:
        """Pass on the progress of a tool, when the reader has caught up.

        On the loop it does not wait: an async callback runs there too, and the reader may be waiting for it.
        """
        while True:
            with self.lock:
                if not self._outbox.is_full or self._tools.loop.is_here or not self._tools.is_running(key):
                    self._carry_out(self._guarded(partial(self.run.tool_progress, key, data)))
                    return
            time.sleep(PAUSE)

    def _put_question(self, start: StartTool, question: dict[str, Any], seconds: float) -> None:
        self._happened(partial(self._emit_question, start, question, seconds))

    def _question_late(self, start: StartTool, seconds: float) -> None:
        with self.lock:
            super()._question_late(start, seconds)

    async def _room(self, key: str) -> None:
        """Wait until the reader has caught up, for an async tool."""
        while self._outbox.is_full and self._tools.is_running(key):  # noqa: ASYNC110  # another thread reads
            await asyncio.sleep(PAUSE)

    def _tool_ended(self, key: str, outcome: Outcome) -> None:
        if self._observer is not None:
            self._observer.tool_ended(key)
        self._visit_end(key)
        self._stop_tool(key)
        self._carry_out(self._guarded(partial(self.run.tool_done, key, outcome)))

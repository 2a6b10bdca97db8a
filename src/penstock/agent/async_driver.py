"""The driver of a run in async code: the model and every tool have a task on the caller's event loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import Any

from penstock.agent.approval_checks import AsyncChecks
from penstock.agent.async_tools import AsyncTools
from penstock.agent.config import AgentConfig
from penstock.agent.driver import FOLD_SIZE, MAX_WAIT, PAUSE, Driver, is_due_after_cancel, provided
from penstock.agent.expiries import Expiries
from penstock.agent.mailbox import Mailbox, mailbox_of
from penstock.agent.records import LOGGED
from penstock.agent.timers import Timers
from penstock.agent.tool_execution import ToolExecution
from penstock.errors import UsageError
from penstock.log.outbox import LoggedOutbox
from penstock.log.store import Input, LostRunError, OwnedRun, StoreError
from penstock.messages import Message
from penstock.model.stream import AsyncStream
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
from penstock.run.outbox import MAX_AHEAD, Gate

_alone: set[asyncio.Task[None]] = set()  # the tasks of runs without a reader, which would be freed otherwise


class AsyncDriver(Driver[AsyncTools]):
    """Drives a run that is read in async code. All of it happens on one event loop."""

    def __init__(self, config: AgentConfig, run: Run, deps: Any, owned: OwnedRun | None = None) -> None:
        super().__init__(config, run, deps, owned)
        self._arrived = asyncio.Event()
        self._has_room = asyncio.Event()
        self._inbox: deque[tuple[str, Any]] = deque()  # progress that threads have reported
        self._tools = AsyncTools(self._tool_ended)
        self._checks = AsyncChecks(run, self._policy_of, self._approval_checked)
        self._timers = Timers()
        self._expiries = Expiries(run, self._timers)
        self._stream: AsyncStream | None = None
        self._model_task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._mailbox: Mailbox

    async def enter(self) -> None:
        """Begin, in async code."""
        if self._needs_listing and not self._has_begun:
            try:
                self._use(await self._step_tools.alisted())
            except Exception as error:  # noqa: BLE001  # a source of tools may fail in any way
                self.begin(partial(self._failed, error))
        self.begin()

    def begin(self, first: Callable[[], list[Command]] | None = None) -> None:
        if self._has_begun:
            return
        if first is None and self._needs_listing and not self._step_tools.are_listed:
            raise UsageError("the tools of the run are not listed yet: enter it first, with `async with`")
        try:
            self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
            self._mailbox = mailbox_of(self._loop)
        except RuntimeError:
            raise UsageError("the run has not begun: enter it first, with `async with`, on its loop") from None
        self._has_begun = True
        self._variables = copy_context()
        self._variables.run(self.records.enter)
        self._observe()
        self._open_log()
        self._carry_out((first or self.run.begin)())
        self._take_inputs()
        if (seconds := self._seconds_left) is not None:
            self._timers.start("", seconds, partial(self._happened, self._expired))

    def cancel(self, why: str) -> None:
        """Cancel the run. From another thread, this waits for the loop, at most `MAX_WAIT` seconds."""
        self._is_cancelled = True  # from here on nothing starts, even if the loop is busy
        self._tools.prevent()
        if self._is_here or self._loop is None or self._loop.is_closed():
            self._cancel(why)
            return
        is_done = threading.Event()

        def cancel() -> None:
            self._cancel(why)
            is_done.set()

        with suppress(RuntimeError):  # the loop was closed
            self._loop.call_soon_threadsafe(cancel)
            is_done.wait(MAX_WAIT)

    def decide(self, call_id: str, approved: bool, arguments: dict[str, Any] | None, reason: str) -> None:
        check = partial(self.run.expect_decision, call_id, approved, arguments)
        decide = partial(self.run.decide, call_id, approved, arguments, reason)
        self._resolve(call_id, "approval", check, decide)

    def provide(self, call_id: str, value: Any, is_error: bool) -> None:
        kind: RequestKind = "input" if self.run.waits_for(call_id, "input") else "deferred"
        check = partial(self.run.expect, call_id, kind)
        self._resolve(call_id, kind, check, lambda: self.run.provide(call_id, provided(value, is_error)))

    def say(self, message: Message) -> None:
        self.begin()
        self._check_open()
        if self._is_here:
            self._carry_out(self.run.say(message))
        else:
            self.run.expect_open()
            self._on_loop(lambda: None if self.run.is_over else self._carry_out(self.run.say(message)))

    async def close(self) -> None:
        """Cancel the run if it has not ended, and wait until its tasks have ended, at most `MAX_WAIT` seconds.

        A run that is detached continues in a task.
        """
        self._is_closed = True
        if self._goes_on_alone:
            self._go_on_alone()
        elif not self._is_alone:
            await self.end()

    async def end(self) -> None:
        """Give the run back or cancel it, if it has not ended, and wait for its tools and its request."""
        if self._is_left:
            self._leave()
        elif self._is_given_back and self.done is None:
            self._give_back()
        elif self.done is None:
            self.cancel("the reader closed the run")
        self._timers.close()
        if self._observer is not None:
            self._observer.close()
        end = time.monotonic() + MAX_WAIT
        while not self._outbox.is_written and time.monotonic() < end:  # noqa: ASYNC110  # another thread writes
            await asyncio.sleep(PAUSE)
        tasks = (*self._checks.cancel(), *self._tools.close(), self._model_task)
        left = {task for task in tasks if task is not None and not task.done()}
        left.discard(asyncio.current_task())
        self._model_task = None
        if left:
            await asyncio.wait(left, timeout=MAX_WAIT)

    def _go_on_alone(self) -> None:
        """Read the run in a task of the loop: its reader has left. If the loop ends before, the run is given back."""

        async def read() -> None:
            with suppress(LostRunError, StoreError):  # another worker continues it
                async for _ in self._events(None):
                    pass

        self._is_alone = True
        task = asyncio.create_task(read(), context=self._variables.copy())
        _alone.add(task)
        task.add_done_callback(_alone.discard)

    def _is_stopped_with_loop(self, task: asyncio.Task[Any]) -> bool:
        """Whether a task was cancelled by others because its loop ends, and the run continues elsewhere."""
        return task.cancelled() and task.cancelling() > 0 and self._is_given_back and not self._is_left

    def abandon(self) -> None:
        """The run can no longer be read: cancel it on its loop, because an object may be freed at any moment."""
        if self._has_begun and not self._is_closed and self._loop is not None:
            self._is_cancelled = True
            with suppress(RuntimeError):  # the loop is closed, and with it all its tasks
                self._loop.call_soon_threadsafe(self._drop)

    def _drop(self) -> None:
        if self._goes_on_alone:
            self._go_on_alone()
            return
        self._cancel("the reader dropped the run")
        self._timers.close()

    def _cancel(self, why: str) -> None:
        self._carry_out(self.run.cancel(why, self._outbox.drop()))

    def _resolve(
        self, call_id: str, kind: RequestKind, check: Callable[[], None], answer: Callable[[], list[Command]]
    ) -> None:
        """Carry out the answer to a request of the run; of two answers the first counts. A wrong one raises here."""
        self.begin()
        self._check_open()

        def resolve() -> None:
            commands = answer()
            self._outbox.withdraw(call_id, kind)
            self._carry_out(commands)
            self._expiries.settle()

        if self._is_here:
            resolve()
        else:
            check()
            self._on_loop(lambda: resolve() if self.run.waits_for(call_id, kind) else None)

    # -- the reader ------------------------------------------------------------------------------------------------

    def read_events(self, reader: object) -> AsyncIterator[StreamEvent]:
        """The events of the run; the iterator keeps `reader` alive."""
        self._claim()
        return self._events(reader)

    async def _events(self, reader: object) -> AsyncIterator[StreamEvent]:
        await self.enter()
        outbox, callbacks = self._outbox, self._config.callbacks
        is_alone, view = self._is_alone, None if self._is_alone else self.view
        has_callbacks = callbacks.are_set and not is_alone
        has_more = has_callbacks or view is not None  # than the events that a unit had when the run was cancelled
        try:
            while True:
                while not outbox.items:
                    if self._is_alone and self._is_logged_to_its_end:
                        return
                    if self._should_pause:
                        self._carry_out(self.run.pause(self._expiries.pause))
                    else:
                        self._arrived.clear()
                        await self._arrived.wait()
                was_full, item = outbox.is_full, outbox.take()
                if was_full and not outbox.is_full:
                    self._has_room.set()
                if callable(item):
                    item()
                    continue
                events = item or ()
                for event in events if view is None else view.through(events):
                    if has_callbacks and inspect.isawaitable(result := callbacks.call(event)):
                        await result
                    if has_more and self._is_cancelled and not is_due_after_cancel(event):
                        continue
                    yield event
                    if type(event) is Done:
                        return
        finally:
            await (self.end() if is_alone else self.close())

    # -- the log -----------------------------------------------------------------------------------------------------

    def _on_committed(self, units: int) -> None:
        self._mailbox.post(partial(self._committed, units))

    def _committed(self, units: int) -> None:
        assert isinstance(self._outbox, LoggedOutbox)
        self._outbox.committed(units)
        self._arrived.set()  # also if there is nothing to read: the run may have to pause

    def _on_input(self, input: Input) -> None:
        self._on_loop(partial(self._take_input, input))

    def _take_input(self, input: Input) -> None:
        assert isinstance(self._outbox, LoggedOutbox)
        if self.done is not None:
            return  # it stays in the store, for the next owner of the run
        self._outbox.inputs = (input.number,)
        self._is_cancelled |= input.kind == "cancel"
        self._happened(partial(self._input_commands, input))
        self._outbox.acknowledge()
        self._expiries.settle()

    def _can_go_on(self) -> bool:
        return self._loop is None or not self._loop.is_closed()

    def _on_lost(self, error: Exception) -> None:
        self._on_loop(partial(self._lose, error))

    def _lose(self, error: Exception) -> None:
        super()._lose(error)
        self._arrived.set()

    # -- the machine -----------------------------------------------------------------------------------------------

    def _happened(self, step: Callable[[], list[Command]]) -> None:
        """Tell the machine what happened, and carry out what follows."""
        self._carry_out(self._guarded(step))

    def _carry_out(self, commands: list[Command]) -> None:
        for command in () if self._is_left else commands:
            match command:
                case Emit():
                    if not LOGGED.isdisjoint(map(type, command.events)):
                        self.records.add(command.events)
                    if self._observer is not None:
                        self._observer.add(command.events)
                    if self._outbox.put(command.events, command.log):
                        self._arrived.set()
                    if command.events and isinstance(last := command.events[-1], Done):
                        self._remember(last)
                case AskModel() | StartTool(awaits_reader=True):
                    self._hold(partial(self._reached, command))
                case StartTool():
                    if not self._is_cancelled:  # else the loop was too busy yet to cancel the run
                        self._start_tool(command)
                case AnswerTool():
                    self._answer_tool(command)
                case CheckApproval():
                    self._checks.start(command, self._variables)
                case ExpireLater():
                    self._expiries.start(
                        command, partial(self._happened, partial(self.run.call_expired, command.call_id))
                    )
                case CancelTool():
                    self._stop_tool(command.key)
                case StopAsking():
                    self._stop_asking()

    def _hold(self, gate: Gate) -> None:
        """Call this when the reader asks for the event after everything emitted so far."""
        if self._outbox.hold(gate):
            self._arrived.set()

    def _reached(self, command: AskModel | StartTool) -> None:
        """The reader has come to a command that waited."""
        self._visit_before(command)
        self._check_lease()
        if self._is_cancelled or not self.run.reached(command):
            return
        if isinstance(command, StartTool):
            self._start_tool(command)
        else:
            reading = self._read_model(command.messages)
            self._model_task = asyncio.create_task(reading, context=self._variables.copy())
            self._model_task.add_done_callback(self._model_was_read)

    def _on_loop(self, callback: Callable[[], None]) -> None:
        """Call this on the loop of the run: now, if this is its thread."""
        if self._is_here or self._loop is None:
            callback()
        else:
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(callback)

    @property
    def _is_here(self) -> bool:
        """Whether this is the thread of the run's loop."""
        return self._thread == threading.get_ident()

    async def _read_model(self, messages: tuple[Message, ...]) -> None:
        run, outbox = self.run, self._outbox
        if self._is_cancelled:
            return
        try:
            if self._config.sources:
                self._use(await self._step_tools.alisted())
            if self._observer is not None:
                self._observer.begin_request(run.step, messages)
            self._stream = self._config.model.astream(list(messages), **self._request())
            async with self._stream as stream:
                async for chunks in stream.batches():
                    self._carry_out(run.chunks(chunks))
                    if len(run.unfolded) > FOLD_SIZE:
                        run.fold(outbox.most_unread)
                    if outbox.is_full:
                        await self._room()
        except SystemExit as error:  # which would end the loop
            self._hold(partial(self._happened, partial(self._failed, error)))

    def _model_was_read(self, task: asyncio.Task[None]) -> None:
        """A response has ended: its end, or what ended the task, waits for the reader."""
        if self._is_stopped_with_loop(task):
            self._give_back()
        elif task.cancelled():  # by other code, if the run is not over
            self._happened(partial(self.run.cancel, "the task that read the answer was cancelled"))
        elif (error := task.exception()) is None:
            self._hold(partial(self._happened, self.run.ended))
        elif not isinstance(error, KeyboardInterrupt):  # which has ended the loop already
            self._hold(partial(self._happened, partial(self._failed, error)))

    def _stop_asking(self) -> None:
        if self._model_task is not None and not self._model_task.done():
            if self._stream is not None:
                self._stream.abort()
            with suppress(RuntimeError):  # the loop is closed
                self._model_task.cancel()

    async def _room(self) -> None:
        """Wait until the reader has caught up."""
        while self._outbox.is_full:
            self._has_room.clear()
            await self._has_room.wait()

    # -- the tools -------------------------------------------------------------------------------------------------

    def _start_tool(self, start: StartTool) -> None:
        if start.timeout is not None:
            self._timers.start(start.key, start.timeout, partial(self._happened, partial(self._late, start.key)))
        context = self._context(start, partial(self._report, start.key))
        execution = ToolExecution(self._config.tools[start.name], start, context, self._may_start)
        self._tools.start(start.key, execution, self._room, self._tool_variables(start))
        self._visit("after_tool_start", start.name)

    def _report(self, key: str, data: Any) -> None:
        """Pass on the progress of a tool; in a thread, when the reader has caught up."""
        if self._is_here:
            self._carry_out(self.run.tool_progress(key, data))
            return
        while self._tools.is_running(key) and (
            self._outbox.is_full or len(self._inbox) + self._outbox.unread > MAX_AHEAD
        ):
            time.sleep(PAUSE)
        if self._tools.is_running(key):
            self._inbox.append((key, data))
            self._on_loop(self._take_in)

    def _put_question(self, start: StartTool, question: dict[str, Any], seconds: float) -> None:
        self._on_loop(partial(self._happened, partial(self._emit_question, start, question, seconds)))

    def _take_in(self) -> None:
        self._carry_out(self.run.tool_progress(*self._inbox.popleft()))

    def _tool_ended(self, key: str, task: asyncio.Task[Outcome]) -> None:
        if not task.cancelled() and isinstance(task.exception(), KeyboardInterrupt):
            return  # it has ended the loop already
        if self._observer is not None:
            self._observer.tool_ended(key)
        if not self._tools.is_cancelled(key) and self._is_stopped_with_loop(task):
            self._give_back()
        self._visit_end(key)
        self._stop_tool(key)
        self._tools.forget(key)
        outcome = failure(asyncio.CancelledError()) if task.cancelled() else task.result()
        self._happened(partial(self.run.tool_done, key, outcome))

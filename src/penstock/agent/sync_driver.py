"""The driver of a run in plain code: a thread reads the model, the tools have theirs, one lock guards the machine."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextvars import copy_context
from functools import partial
from inspect import isawaitable
from queue import Empty, SimpleQueue
from typing import Any, Self

from penstock.agent.config import AgentConfig
from penstock.agent.run_reader import MAX_WAIT, PAUSE, RunReader, provided
from penstock.agent.sync_tools import SyncTools
from penstock.agent.timers import ThreadTimers
from penstock.agent.tool_execution import in_thread
from penstock.messages import History, Message
from penstock.model.stream import Stream
from penstock.run.commands import AskModel, CancelTool, Command, Emit, StartTool, StopAsking
from penstock.run.events import ApprovalRequest, Done, RequestKind, StreamEvent
from penstock.run.machine import Run
from penstock.tools.outcome import Outcome, failure

_MAX_BLOCKED: float | None = 0.1 if os.name == "nt" else None
"""The seconds that the reader's thread waits at a time: on Windows, Ctrl-C does not interrupt a wait."""


class AgentRun(RunReader):
    """A run that is read in plain code: `with agent.stream(...) as run: for event in run: …`."""

    def __init__(self, config: AgentConfig, run: Run, deps: Any) -> None:
        super().__init__(config, run, deps)
        self._lock = threading.RLock()
        self._arrivals: SimpleQueue[None] = SimpleQueue()  # one for each unit in the outbox
        self._stream: Stream | None = None
        self._model_thread: threading.Thread | None = None
        self._events: Iterator[StreamEvent] | None = None  # for `next`
        self._tools = SyncTools(self._lock, self._tool_ended)
        self._timers = ThreadTimers()

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[StreamEvent]:
        self._claim()
        return self._read_events()

    def __next__(self) -> StreamEvent:
        self._events = self._events or iter(self)
        return next(self._events)

    def cancel(self, why: str = "the run was cancelled") -> None:
        """End the run, from any thread; every call still gets a result."""
        with self._lock:
            self._carry_out(self._run.cancel(why))

    def decide(self, call_id: str, approved: bool, arguments: dict[str, Any] | None = None, reason: str = "") -> None:
        """Approve or decline a call that waits for approval, from any thread; `arguments` replace the model's."""
        self._resolve(call_id, "approval", lambda: self._run.decide(call_id, approved, arguments, reason))

    def provide(self, call_id: str, value: Any, is_error: bool = False) -> None:
        """Give the result of a deferred call, from any thread: anything that a tool may return."""
        self._resolve(call_id, "deferred", lambda: self._run.provide(call_id, provided(value, is_error)))

    @property
    def messages(self) -> History:
        """The history at this moment; another run can continue from it: see `RunReader.messages`."""
        with self._lock:
            return super().messages

    @property
    def waiting(self) -> list[ApprovalRequest]:
        """The calls that wait for a decision or for their result from elsewhere."""
        with self._lock:
            return super().waiting

    def dump(self) -> bytes:
        """The run as JSON, to be continued elsewhere by `Agent.resume`."""
        with self._lock:
            return super().dump()

    def close(self) -> None:
        """Cancel the run if it has not ended, and wait until its threads have ended, at most `MAX_WAIT` seconds.

        A tool that is a plain function cannot be stopped: it may run on.
        """
        if self.done is None:
            self.cancel("the reader closed the run")
        with self._lock:
            self._timers.close()
            threads = self._tools.close()
            if self._model_thread is not None:
                threads.insert(0, self._model_thread)
            self._model_thread = None
        end = time.monotonic() + MAX_WAIT
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))

    def _begin(self) -> None:
        if self._has_begun:
            return
        self._has_begun = True
        self._variables = copy_context()
        with self._lock:
            self._carry_out(self._run.begin())
            if (seconds := self._config.limits.seconds) is not None:
                self._timers.start("", seconds, partial(self._happened, self._expired))

    def _resolve(self, call_id: str, kind: RequestKind, answer: Callable[[], list[Command]]) -> None:
        """Carry out the answer to a request of the run."""
        self._begin()
        with self._lock:
            self._check_open()
            commands = answer()
            self._outbox.withdraw(call_id, kind)
            self._carry_out(commands)

    # -- the reader ------------------------------------------------------------------------------------------------

    def _read_events(self) -> Iterator[StreamEvent]:
        self._begin()
        line_breaks, has_callbacks = self._line_breaks, self._config.callbacks.are_set
        try:
            while True:
                if self._run.phase == "tools":
                    self._pause_if_waiting()
                try:
                    self._arrivals.get(timeout=_MAX_BLOCKED)
                except Empty:
                    continue
                with self._lock:
                    events = self._outbox.take()
                for event in events:
                    if line_breaks is not None:
                        event = line_breaks.feed(event)
                    if has_callbacks:
                        self._call_back(event)
                    yield event
                    if type(event) is Done:
                        return
        finally:
            self.close()

    def _pause_if_waiting(self) -> None:
        with self._lock:
            if self._should_pause:
                self._carry_out(self._run.pause())

    def _call_back(self, event: StreamEvent) -> None:
        result = self._config.callbacks.call(event)
        if isawaitable(result):
            self._tools.loop.begin(_awaited(result), copy_context()).result()

    # -- the machine -----------------------------------------------------------------------------------------------

    def _happened(self, step: Callable[[], list[Command]]) -> None:
        """Tell the machine what happened, and carry out what follows."""
        with self._lock:
            self._carry_out(self._guarded(step))

    def _carry_out(self, commands: list[Command]) -> None:
        """Carry out commands, under the lock."""
        due = deque(commands)
        while due:
            match command := due.popleft():
                case Emit():
                    if self._outbox.put(command.events):
                        self._arrivals.put(None)
                    if isinstance(last := command.events[-1], Done):
                        self._remember(last)
                case AskModel():
                    due += self._ask_model(command.messages)
                case StartTool():
                    due += self._start_tool(command)
                case CancelTool():
                    self._stop_tool(command.key)
                case StopAsking():
                    if self._stream is not None:
                        self._stream.cancel()

    def _ask_model(self, messages: tuple[Message, ...]) -> list[Command]:
        """Ask the model in a thread; returns what is to be done if there is no thread for it."""
        try:
            self._model_thread = in_thread(partial(self._read_model, messages), "model", self._variables)
        except RuntimeError as error:
            return self._failed(error)
        return []

    def _read_model(self, messages: tuple[Message, ...]) -> None:
        run, outbox = self._run, self._outbox
        try:
            response = self._config.model.stream(list(messages), **self._request())
            with self._lock:
                if run.is_over:
                    return
                self._stream = response
            with response as stream:
                for chunks in stream.batches():
                    with self._lock:
                        self._carry_out(run.chunks(chunks))
                    while outbox.is_full and run.phase != "over":
                        time.sleep(PAUSE)
                    if run.phase == "over":
                        return
            with self._lock:
                self._carry_out(run.ended())
        except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever it was, the reader gets it
            with self._lock:
                self._carry_out(self._failed(error))

    # -- the tools -------------------------------------------------------------------------------------------------

    def _start_tool(self, start: StartTool) -> list[Command]:
        """Start a tool; returns what is to be done if there is no thread for it."""
        context = self._context(start, partial(self._report, start.key))
        try:
            if start.timeout is not None:
                self._timers.start(start.key, start.timeout, partial(self._happened, partial(self._late, start.key)))
            tool = self._config.tools[start.name]
            self._tools.start(tool, start, context, partial(self._room, start.key), self._variables)
        except RuntimeError as error:
            self._stop_tool(start.key)
            return self._guarded(partial(self._run.tool_done, start.key, failure(error)))
        return []

    def _report(self, key: str, data: Any) -> None:
        """Pass on the progress of a tool, when the reader has caught up.

        On the loop it does not wait: an async callback runs there too, and the reader may be waiting for it.
        """
        while True:
            with self._lock:
                if not self._outbox.is_full or self._tools.loop.is_here or not self._tools.is_running(key):
                    self._carry_out(self._guarded(partial(self._run.tool_progress, key, data)))
                    return
            time.sleep(PAUSE)

    async def _room(self, key: str) -> None:
        """Wait until the reader has caught up, for an async tool."""
        while self._outbox.is_full and self._tools.is_running(key):  # noqa: ASYNC110  # another thread reads
            await asyncio.sleep(PAUSE)

    def _late(self, key: str) -> list[Command]:
        self._stop_tool(key)
        return self._run.tool_late(key)

    def _tool_ended(self, key: str, outcome: Outcome) -> None:
        self._stop_tool(key)
        self._carry_out(self._guarded(partial(self._run.tool_done, key, outcome)))

    def _stop_tool(self, key: str) -> None:
        """Forget a tool that has ended, or cancel it."""
        self._timers.cancel(key)
        self._tools.cancel(key)


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value

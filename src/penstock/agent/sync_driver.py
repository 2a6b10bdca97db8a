"""A run in plain code: the model's answer and every tool have a thread, and one lock keeps the machine in order."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from inspect import isawaitable
from queue import SimpleQueue
from typing import Any, Self

from penstock.agent.config import AgentConfig
from penstock.agent.loop_thread import LoopThread
from penstock.agent.run_reader import MAX_AHEAD, MAX_WAIT, PAUSE, RunReader, provided
from penstock.agent.tool_execution import ToolExecution, in_thread
from penstock.messages import Message
from penstock.model.stream import Stream
from penstock.run.commands import AskModel, CancelTool, Command, Emit, StartTool, StopAsking
from penstock.run.events import ApprovalRequest, Done, RequestKind, StreamEvent, ToolProgress
from penstock.run.machine import Run
from penstock.tools.outcome import Outcome, failure


class AgentRun(RunReader):
    """A run that is read in plain code: `with agent.stream(...) as run: for event in run: …`."""

    def __init__(self, config: AgentConfig, run: Run, deps: Any) -> None:
        super().__init__(config, run, deps)
        self._lock = threading.RLock()
        self._out: SimpleQueue[StreamEvent] = SimpleQueue()
        self._stream: Stream | None = None
        self._reader: threading.Thread | None = None
        self._reading: Iterator[StreamEvent] | None = None  # by `next`
        self._loop = LoopThread()
        self._newest: dict[str, tuple[ToolProgress, ToolProgress]] = {}  # a report that is unread, and what it is now
        self._stops: dict[str, Callable[[], None]] = {}  # how to cancel each tool that runs
        self._threads: dict[ToolExecution, threading.Thread] = {}
        self._timers: dict[str, threading.Timer] = {}

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[StreamEvent]:
        self._claim()
        return self._events()

    def __next__(self) -> StreamEvent:
        self._reading = self._reading or iter(self)
        return next(self._reading)

    def cancel(self, why: str = "the run was cancelled") -> None:
        """End the run, from whatever thread; every call still gets a result."""
        with self._lock:
            self._carry_out(self._run.cancel(why))

    def decide(self, call_id: str, approved: bool, arguments: dict[str, Any] | None = None, reason: str = "") -> None:
        """Say yes or no to a call that waits for approval, from whatever thread; `arguments` replace the model's."""
        self._resolve(call_id, "approval", lambda: self._run.decide(call_id, approved, arguments, reason))

    def provide(self, call_id: str, value: Any, is_error: bool = False) -> None:
        """Give the result of a call that was deferred, from whatever thread: whatever a tool may return."""
        self._resolve(call_id, "deferred", lambda: self._run.provide(call_id, provided(value, is_error)))

    @property
    def messages(self) -> list[Message]:
        """The history at this moment, with which another run can go on: see `RunReader.messages`."""
        with self._lock:
            return super().messages

    @property
    def waiting(self) -> list[ApprovalRequest]:
        """The calls that wait for somebody: see `RunReader.waiting`."""
        with self._lock:
            return super().waiting

    def dump(self) -> bytes:
        """The run as JSON, to be continued elsewhere by `Agent.resume`."""
        with self._lock:
            return super().dump()

    def close(self) -> None:
        """End the run if it has not ended, and wait until nothing of it is left, but not for what does not listen.

        A plain tool cannot be told to end: it may run on.
        """
        if self.done is None:
            self.cancel("whoever read the run went away")
        with self._lock:
            for timer in self._timers.values():
                timer.cancel()
            left = [thread for work, thread in self._threads.items() if work.can_stop]
            left += [thread for thread in (self._reader, self._loop.close()) if thread is not None]
            self._threads, self._reader = {}, None
        end = time.monotonic() + MAX_WAIT
        for thread in left:
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
                self._after("", seconds, self._out_of_time)

    def _resolve(self, call_id: str, kind: RequestKind, answered: Callable[[], list[Command]]) -> None:
        """Somebody answers what the run asked for."""
        self._begin()
        with self._lock:
            self._check_open()
            commands = answered()
            self._resolved.add((call_id, kind))
            self._carry_out(commands)

    def _events(self) -> Iterator[StreamEvent]:
        self._begin()
        try:
            while True:
                with self._lock:
                    if self._out.empty() and self._should_pause:
                        self._carry_out(self._run.pause())
                event = self._shown(self._newest_of(self._out.get()))
                if self._is_resolved(event):
                    continue
                called = self._config.callbacks.call(event)
                if isawaitable(called):
                    self._loop.begin(_awaited(called), copy_context()).result()
                yield event
                if isinstance(event, Done):
                    return
        finally:
            self.close()

    def _carry_out(self, commands: list[Command]) -> None:
        due = deque(commands)
        while due:
            match command := due.popleft():
                case Emit():
                    self._note(command.event)
                    self._tell(command.event)
                case AskModel():
                    due += self._begin_reading(command.messages)
                case StartTool():
                    due += self._begin_work(command)
                case CancelTool():
                    self._end_work(command.key)
                case StopAsking():
                    if self._stream is not None:
                        self._stream.cancel()

    def _tell(self, event: StreamEvent) -> None:
        """Where too much is unread already, the newest report of a tool takes the place of the last one.

        Until that one is read, all that follow it do: none may come before an older one.
        """
        if isinstance(event, ToolProgress):
            if event.key in self._newest:
                place, _ = self._newest[event.key]
                self._newest[event.key] = place, event
                return
            if self._out.qsize() > MAX_AHEAD + len(self._stops):  # tools that waited may have been let in together
                self._newest[event.key] = event, event
        self._out.put(event)

    def _newest_of(self, event: StreamEvent) -> StreamEvent:
        if not isinstance(event, ToolProgress):
            return event
        with self._lock:
            place, newest = self._newest.get(event.key, (None, event))
            if place is not event:
                return event
            del self._newest[event.key]
            return newest

    def _begin_reading(self, messages: tuple[Message, ...]) -> list[Command]:
        """Ask the model in a thread of its own; what is to be done if there is none to be had."""
        try:
            self._reader = in_thread(partial(self._read, messages), "model", self._variables)
        except RuntimeError as error:
            return self._failed(error)
        return []

    def _read(self, messages: tuple[Message, ...]) -> None:
        """Read an answer of the model, in a thread of its own."""
        try:
            answer = self._config.model.stream(list(messages), **self._request())
            with self._lock:
                if self._run.is_over:
                    return
                self._stream = answer
            with answer as stream:
                for chunk in stream:
                    with self._lock:
                        self._carry_out(self._run.chunk(chunk))
                        if self._run.is_over:
                            return
                    self._wait_for_room(lambda: not self._run.is_over)
            with self._lock:
                self._carry_out(self._run.ended())
        except (Exception, SystemExit) as error:  # noqa: BLE001  # whatever it was, its reader must be told
            with self._lock:
                self._carry_out(self._failed(error))

    def _wait_for_room(self, is_wanted: Callable[[], bool]) -> None:
        """Wait while whoever reads is slow, as long as what is to be told is wanted."""
        while self._out.qsize() > MAX_AHEAD and is_wanted():
            time.sleep(PAUSE)

    def _begin_work(self, start: StartTool) -> list[Command]:
        """Run a tool, on the loop of the run or in a thread; what is to be done if there is none to be had."""

        def report(data: Any) -> None:
            if not self._loop.is_here:  # where nothing may wait: a callback may be what the reader waits for
                self._wait_for_room(lambda: start.key in self._stops)
            with self._lock:
                self._carry_out(self._happened(partial(self._run.tool_progress, start.key, data)))

        def expire() -> list[Command]:
            self._end_work(start.key)
            return self._run.tool_late(start.key)

        tool = self._config.tools[start.name]
        work = ToolExecution(tool, start, self._context(start, report))
        try:
            if start.timeout is not None:
                self._after(start.key, start.timeout, expire)
            if tool.is_async:
                self._begin_on_loop(start.key, work)
            else:
                self._begin_in_thread(start, work)
        except RuntimeError as error:
            return self._ended(start.key, failure(error))
        return []

    async def _room(self, key: str) -> None:
        while self._out.qsize() > MAX_AHEAD and key in self._stops:  # noqa: ASYNC110  # room is made elsewhere
            await asyncio.sleep(PAUSE)

    def _begin_on_loop(self, key: str, work: ToolExecution) -> None:
        def end(begun: Future[Any]) -> None:
            error = begun.exception()
            with self._lock:
                self._carry_out(self._ended(key, begun.result() if error is None else failure(error)))

        begun = self._loop.begin(work.run_on_loop(partial(self._room, key)), self._variables.copy())
        self._stops[key] = begun.stop
        begun.add_done_callback(end)

    def _begin_in_thread(self, start: StartTool, work: ToolExecution) -> None:
        def perform() -> None:
            begin = partial(self._loop.begin, variables=copy_context())
            outcome = work.run_in_thread(begin, partial(self._room, start.key))
            with self._lock:
                self._threads.pop(work, None)
                self._carry_out(self._ended(start.key, outcome))

        self._stops[start.key] = work.cancel
        self._threads[work] = in_thread(perform, start.name, self._variables)

    def _ended(self, key: str, outcome: Outcome) -> list[Command]:
        self._end_work(key)
        return self._happened(partial(self._run.tool_done, key, outcome))

    def _end_work(self, key: str) -> None:
        """A tool has ended, or is not wanted any more."""
        if key in self._timers:
            self._timers.pop(key).cancel()
        if key in self._stops:
            self._stops.pop(key)()

    def _after(self, key: str, seconds: float, happened: Any) -> None:
        def ring() -> None:
            with self._lock:
                self._carry_out(self._happened(happened))

        timer = self._timers[key] = threading.Timer(min(seconds, threading.TIMEOUT_MAX), ring)
        timer.daemon = True
        timer.start()


async def _awaited(value: Awaitable[Any]) -> Any:
    return await value

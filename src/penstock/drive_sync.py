"""A run in plain code: the model's answer and every tool have a thread, and one lock keeps the machine in order."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from inspect import isawaitable
from queue import SimpleQueue
from typing import Any, Self

from penstock.errors import AlreadyReadError
from penstock.execution import Cancel, Start
from penstock.happenings import ApprovalRequest, Done, RequestKind, StreamEvent
from penstock.messages import Message
from penstock.run import Ask, Command, Hush, Run, Tell
from penstock.run_view import MAX_AHEAD, MAX_WAIT, PAUSE, RunView, provided
from penstock.settings import Settings
from penstock.stream import Stream
from penstock.tool_outcome import Outcome, failure
from penstock.work import Work, in_thread


class AgentRun(RunView):
    """A run that is read in plain code: `with agent.stream(...) as run: for event in run: …`."""

    def __init__(self, settings: Settings, run: Run, deps: Any) -> None:
        super().__init__(settings, run, deps)
        self._lock = threading.RLock()
        self._out: SimpleQueue[StreamEvent] = SimpleQueue()
        self._stream: Stream | None = None
        self._reader: threading.Thread | None = None
        self._works: dict[str, Work] = {}
        self._threads: dict[Work, threading.Thread] = {}
        self._timers: dict[str, threading.Timer] = {}

    def __enter__(self) -> Self:
        self._begin()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[StreamEvent]:
        if self._is_read:
            raise AlreadyReadError("a run can be read once: start another, or keep the events in a list")
        self._is_read = True
        return self._events()

    def cancel(self, why: str = "the run was cancelled") -> None:
        """End the run, from whatever thread; every call still gets a result."""
        with self._lock:
            self._carry_out(self._run.cancel(why))

    def decide(self, call_id: str, approved: bool, arguments: dict[str, Any] | None = None, reason: str = "") -> None:
        """Say yes or no to a call that waits for approval, from whatever thread; `arguments` replace the model's."""
        self._answer(call_id, "approval", lambda: self._run.decide(call_id, approved, arguments, reason))

    def provide(self, call_id: str, value: Any, is_error: bool = False) -> None:
        """Give the result of a call that was deferred, from whatever thread: whatever a tool may return."""
        self._answer(call_id, "deferred", lambda: self._run.provide(call_id, provided(value, is_error)))

    @property
    def messages(self) -> list[Message]:
        """The history at this moment, with which another run can go on: see `RunView.messages`."""
        with self._lock:
            return super().messages

    @property
    def waiting(self) -> list[ApprovalRequest]:
        """The calls that wait for somebody: see `RunView.waiting`."""
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
        end = time.monotonic() + MAX_WAIT
        for thread in [*left, *([self._reader] if self._reader else [])]:
            if thread is not threading.current_thread():
                thread.join(max(0.0, end - time.monotonic()))

    def _begin(self) -> None:
        if self._has_begun:
            return
        self._has_begun = True
        self._variables = copy_context()
        seconds = self._settings.limits.seconds
        with self._lock:
            self._carry_out(self._run.begin())
            if seconds is not None:
                self._after("", seconds, lambda: self._run.expire(f"the run took longer than {seconds:g} seconds"))

    def _answer(self, call_id: str, kind: RequestKind, answered: Callable[[], list[Command]]) -> None:
        """Somebody answers what the run asked for."""
        self._begin()
        with self._lock:
            self._check_open()
            commands = answered()
            self._answered.add((call_id, kind))
            self._carry_out(commands)

    def _events(self) -> Iterator[StreamEvent]:
        self._begin()
        try:
            while True:
                with self._lock:
                    if self._out.empty() and self._should_pause:
                        self._carry_out(self._run.pause())
                event = self._shown(self._out.get())
                if self._is_answered(event):
                    continue
                called = self._settings.callbacks.call(event)
                if isawaitable(called):
                    _awaited(called)
                yield event
                if isinstance(event, Done):
                    return
        finally:
            self.close()

    def _carry_out(self, commands: list[Command]) -> None:
        due = deque(commands)
        while due:
            match command := due.popleft():
                case Tell():
                    self._note(command.event)
                    self._out.put(command.event)
                case Ask():
                    due += self._begin_reading(command.messages)
                case Start():
                    due += self._begin_work(command)
                case Cancel():
                    self._end_work(command.key)
                case Hush():
                    if self._stream is not None:
                        self._stream.cancel()

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
            answer = self._settings.model.stream(list(messages), **self._request())
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
        except Exception as error:  # noqa: BLE001  # whatever it was, the run must end, and its reader be told
            with self._lock:
                self._carry_out(self._failed(error))
        else:
            with self._lock:
                self._carry_out(self._run.ended())

    def _wait_for_room(self, is_wanted: Callable[[], bool]) -> None:
        """Wait while whoever reads is slow, as long as what is to be told is wanted."""
        while self._out.qsize() > MAX_AHEAD and is_wanted():
            time.sleep(PAUSE)

    def _begin_work(self, start: Start) -> list[Command]:
        """Run a tool in a thread of its own; what is to be done if there is none to be had."""

        def report(data: Any) -> None:
            self._wait_for_room(lambda: start.key in self._works)
            with self._lock:
                self._carry_out(self._run.tool_progress(start.key, data))

        def perform() -> None:
            outcome = work.perform()
            with self._lock:
                self._threads.pop(work, None)
                self._carry_out(self._ended(start.key, outcome))

        def expire() -> list[Command]:
            self._end_work(start.key)
            return self._run.tool_late(start.key)

        work = self._works[start.key] = Work(self._settings.tools[start.name], start, self._context(start, report))
        try:
            if start.timeout is not None:
                self._after(start.key, start.timeout, expire)
            self._threads[work] = in_thread(perform, start.name, self._variables)
        except RuntimeError as error:
            return self._ended(start.key, failure(error))
        return []

    def _ended(self, key: str, outcome: Outcome) -> list[Command]:
        self._end_work(key)
        return self._run.tool_done(key, outcome)

    def _end_work(self, key: str) -> None:
        """A tool has ended, or is not wanted any more."""
        if key in self._timers:
            self._timers.pop(key).cancel()
        if key in self._works:
            self._works.pop(key).cancel()

    def _after(self, key: str, seconds: float, happened: Any) -> None:
        def ring() -> None:
            with self._lock:
                self._carry_out(happened())

        timer = self._timers[key] = threading.Timer(min(seconds, threading.TIMEOUT_MAX), ring)
        timer.daemon = True
        timer.start()


def _awaited(value: Awaitable[Any]) -> Any:
    """Wait in plain code for what has to be awaited, on a loop of its own, also where another loop is running."""

    async def wait() -> Any:
        return await value

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, asyncio.run, wait()).result()

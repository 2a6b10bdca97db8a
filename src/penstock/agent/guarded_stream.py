"""A response in sync code that is held back until the guard of the agent has cleared it.

A thread reads the response into the stage, so that checks overlap with the stream; each check has a thread of its own.
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator
from contextvars import Context as Variables
from contextvars import copy_context
from functools import partial
from inspect import isawaitable
from typing import Any, Self

from penstock.agent.guard_calls import GuardCalls, Verdict, check_size, guard_error, verdict
from penstock.agent.tool_execution import in_thread
from penstock.errors import GuardError
from penstock.events import StreamChunk
from penstock.guard.checks import Check
from penstock.model.stream import Stream
from penstock.run.outbox import MAX_AHEAD
from penstock.transport.loop_thread import LoopTask

CLOSING_SECONDS = 1.0
"""How many seconds the end of a response waits for the thread that reads it."""

Begin = Callable[[Awaitable[Any], Variables], LoopTask]


class GuardedStream:
    """Reads a `Stream` like the stream itself: `with` it, and iterate over its `batches`."""

    def __init__(self, stream: Stream[Any], calls: GuardCalls, begin: Begin) -> None:
        self._stream = stream
        self._calls = calls
        self._begin = begin  # awaits a value on the loop of the run
        self._stage = calls.stage
        self._cleared: list[StreamChunk] = []
        self._has_ended = False  # the response, or its reading failed
        self._is_over = False
        self._error: BaseException | None = None
        self._tasks: set[LoopTask] = set()
        self._changed = threading.Condition()
        self._variables = copy_context()

    def __enter__(self) -> Self:
        self._stream.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._stream.close()

    def cancel(self) -> None:
        """Break the connection from any thread, and pass nothing on any more."""
        self._end()
        self._stream.cancel()

    def batches(self) -> Iterator[list[StreamChunk]]:
        """The chunks that the guard has cleared, as they are."""
        self._variables = copy_context()
        reader = in_thread(partial(self._read, self._stream.batches()), "guard-reader", self._variables)
        try:
            while (chunks := self._take()) is not None:
                yield chunks
        finally:
            if not self._has_ended:
                self.cancel()
            self._end()
            reader.join(CLOSING_SECONDS)

    def _take(self) -> list[StreamChunk] | None:
        """Wait for chunks that are cleared; None at the end of the response."""
        with self._changed:
            while not self._is_over:
                self._calls.take_late(self._stage)
                if self._error is not None:
                    raise self._error
                if self._cleared:
                    chunks, self._cleared = self._cleared, []
                    self._changed.notify_all()
                    return chunks
                if self._stage.is_idle and (self._has_ended or self._stage.is_stopped):
                    return None
                self._changed.wait(self._calls.seconds_left())
        return None

    def _read(self, batches: Iterator[list[StreamChunk]]) -> None:
        """Read the response into the stage."""
        try:
            for chunks in batches:
                if not self._add(self._stage.feed, chunks):
                    return
            self._add(self._stage.close)
        except BaseException as error:  # noqa: BLE001  # whoever reads the batches gets it
            self._fail(error)
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def _add(self, step: Callable[..., list[StreamChunk]], *values: Any) -> bool:
        """Let the stage make a step, when there is room; returns whether to read on."""
        with self._changed:
            while not self._is_over and (len(self._cleared) > MAX_AHEAD or self._stage.is_full):
                check_size(self._stage)
                self._changed.wait()
            if not self._is_over:
                self._pass_on(step(*values))
            return not self._is_over and not self._stage.is_stopped

    def _pass_on(self, chunks: list[StreamChunk]) -> None:
        """Add chunks that are cleared, and start the checks that are due."""
        self._cleared += chunks
        try:
            for check in self._stage.take_due():
                self._calls.begin(check)
                in_thread(partial(self._check, check), "guard", self._variables)
        except RuntimeError as error:  # no thread can be started
            self._fail(error)
        self._changed.notify_all()

    def _check(self, check: Check) -> None:
        """Call the guard, in a thread of its own."""
        answer: Verdict | GuardError
        try:
            value = self._calls.call(check)
            answer = verdict(check, self._awaited(value) if isawaitable(value) else value)
        except BaseException as error:  # noqa: BLE001  # the guard is user code; the run ends with an error
            answer = guard_error(error)
        with self._changed:
            if not self._calls.end(check) or self._is_over:
                return
            if not isinstance(answer, GuardError):
                self._pass_on(self._stage.settle(check, answer))
            elif check.state == "void":
                self._pass_on(self._stage.settle(check, None))
            else:
                self._fail(answer)

    def _awaited(self, value: Any) -> Any:
        task = self._begin(value, copy_context())
        self._tasks.add(task)
        try:
            return task.result()
        finally:
            self._tasks.discard(task)

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            self._error = self._error or error
            self._changed.notify_all()

    def _end(self) -> None:
        """Pass nothing on any more; checks that run are cancelled, if they can be."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()
            tasks = list(self._tasks)
        for task in tasks:
            task.stop()

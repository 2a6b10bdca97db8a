"""A response that is held back until the guard of the agent has cleared it.

The next read and the checks that run are tasks, so that checks overlap with the stream.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from penstock.agent.driver.driven_run import DrivenRun
from penstock.agent.driver.user_code import UserCode
from penstock.agent.run_errors import is_interrupt
from penstock.errors import GuardError, type_name
from penstock.events import StreamChunk
from penstock.guard.checks import Check
from penstock.guard.guard import Guard, GuardContext, StopRun, with_context
from penstock.guard.stage import MAX_HELD, GuardStage
from penstock.jsontext.surrogates import join_surrogates
from penstock.model.stream import AsyncStream

Verdict = str | StopRun | None


class GuardCalls:
    """The calls of the functions of a guard for one response, and how long each may take. `stage` holds it back."""

    def __init__(
        self,
        guard: Guard,
        step: int,
        deps: Any,
        *,
        has_text_calls: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.guard = guard
        self.stage = GuardStage(guard, has_text_calls=has_text_calls)
        self._step = step
        self._deps = deps
        self._clock = clock
        self._deadlines: dict[Check, float] = {}

    def begin(self, check: Check) -> None:
        """A check is started."""
        self._deadlines[check] = self._clock() + self.guard.timeout

    def end(self, check: Check) -> bool:
        """A check has ended; returns whether it still counts: not if it took too long."""
        return self._deadlines.pop(check, None) is not None

    def call(self, check: Check) -> Any:
        """Call the function of the guard; its result may have to be awaited."""
        context = GuardContext(check.kind, check.before, self._step, self._deps)
        if check.arguments is None or self.guard.call is None:
            function: Callable[..., Any] = self.guard.text
            return function(*with_context(function, (check.text,), context))
        function = self.guard.call
        return function(*with_context(function, (check.text, check.arguments), context))

    def seconds_left(self) -> float | None:
        """How long to wait for the checks that run; None if there are none."""
        return max(0.0, min(self._deadlines.values()) - self._clock()) if self._deadlines else None

    def take_late(self) -> list[StreamChunk]:
        """Fail the checks that have taken too long; returns the chunks that can be passed on then."""
        now = self._clock()
        late = [check for check, deadline in self._deadlines.items() if deadline <= now]
        error = GuardError(f"the guard took longer than {self.guard.timeout:g} seconds (Guard.timeout)")
        return [chunk for check in late if self.end(check) for chunk in self.stage.fail(check, error)]


def guard_calls(driven: DrivenRun) -> GuardCalls | None:
    """The calls of the guard for the response that is requested now; None if the agent has no guard."""
    config = driven.config
    if config.guard is None:
        return None
    return GuardCalls(config.guard, driven.run.state.step, driven.deps, has_text_calls=config.has_text_calls)


def verdict(check: Check, value: Any) -> Verdict:
    """The verdict that a function of the guard returned; raises a `GuardError` if it is not a verdict."""
    if isinstance(value, StopRun):
        if not isinstance(value.why, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise GuardError(f"the guard returned a StopRun whose why is {type_name(value.why)}, not a string")
        return StopRun(join_surrogates(value.why))
    if check.arguments is not None:
        if value is None:
            return None
        raise GuardError(f"the guard returned {type_name(value)} for a call: return None or a StopRun")
    if isinstance(value, str):
        return join_surrogates(value)
    raise GuardError(f"the guard returned {type_name(value)}: return the text to pass on, or a StopRun")


def guard_error(error: BaseException) -> GuardError:
    """The error of a run whose guard raised this. The message of the exception is left out: it may quote the text."""
    if isinstance(error, GuardError):
        return error
    failure = GuardError(f"the guard raised {type(error).__name__}")
    failure.__cause__ = error
    return failure


def check_size(stage: GuardStage) -> None:
    """Raise a `GuardError` if too much is held back although no check runs that could clear it."""
    if stage.is_full and not stage.is_checking:
        raise GuardError(
            f"the guard would hold back more than {MAX_HELD} characters (MAX_HELD): check sentences or windows instead"
        )


CLOSING_SECONDS = 1.0
"""How many seconds the end of a response waits for the checks that run."""

Answer = Verdict | GuardError
Reading = asyncio.Task[list[StreamChunk] | None]


class GuardedStream:
    """Reads an `AsyncStream` like the stream itself: `start` it, and ask for each `next_batch` until there is none."""

    def __init__(self, stream: AsyncStream[Any], calls: GuardCalls, code: UserCode) -> None:
        self._stream = stream
        self._calls = calls
        self._code = code
        self._stage = calls.stage
        self._checks: dict[asyncio.Task[Answer], Check] = {}
        self._reading: Reading | None = None
        self._batches = self._cleared()

    async def start(self) -> list[StreamChunk]:
        """Send the request; `next_batch` returns all chunks."""
        await self._stream.__aenter__()
        return []

    async def next_batch(self) -> list[StreamChunk] | None:
        """The next chunks that the guard has cleared; None at the end of the response."""
        return await anext(self._batches, None)

    async def close(self) -> None:
        """Cancel the checks that run, and close the connection."""
        await self._batches.aclose()
        await self._end()
        await self._stream.close()

    def abort(self) -> None:
        """Break the connection now; whoever reads the batches is cancelled separately."""
        self._stream.abort()

    async def _cleared(self) -> AsyncGenerator[list[StreamChunk]]:
        """The chunks that the guard has cleared, as they are."""
        stage, source = self._stage, self._stream.batches()
        self._read(source)
        try:
            while not (self._reading is None and stage.is_idle):
                if chunks := await self._next(source):
                    yield chunks
                if stage.is_stopped and stage.is_idle:
                    break
            if stage.failure is not None:
                raise stage.failure
        finally:
            await self._end()

    def _read(self, source: AsyncIterator[list[StreamChunk]]) -> None:
        self._reading = asyncio.create_task(_next_or_none(source))

    async def _next(self, source: AsyncIterator[list[StreamChunk]]) -> list[StreamChunk]:
        """Wait for the next chunks or verdicts; returns what is cleared now."""
        stage, reading = self._stage, self._reading
        check_size(stage)
        tasks: set[asyncio.Task[Any]] = {*self._checks}
        if reading is not None and not stage.is_full and not stage.is_stopped:
            tasks.add(reading)
        done, _ = await asyncio.wait(tasks, timeout=self._calls.seconds_left(), return_when=asyncio.FIRST_COMPLETED)
        chunks: list[StreamChunk] = []
        for task in done:
            if task is reading:
                batch: Any = task.result()
                self._reading = None
                chunks += stage.close() if batch is None else stage.feed(batch)
                if batch is not None:
                    self._read(source)
            else:
                chunks += self._settle(task)
        chunks += self._calls.take_late()
        for check in stage.take_due():
            self._calls.begin(check)
            self._checks[asyncio.create_task(self._check(check))] = check
        return chunks

    def _settle(self, task: asyncio.Task[Any]) -> list[StreamChunk]:
        check = self._checks.pop(task)
        if not self._calls.end(check):
            return []
        answer: Answer = guard_error(asyncio.CancelledError()) if task.cancelled() else task.result()
        if isinstance(answer, GuardError):
            return self._stage.fail(check, answer)
        return self._stage.settle(check, answer)

    async def _check(self, check: Check) -> Answer:
        """Call the guard: on the loop if it is async, or else in a thread."""
        function = self._calls.guard.text if check.arguments is None else self._calls.guard.call
        call = partial(self._calls.call, check)
        try:
            value = await self._code.call(call, "guard", is_async=iscoroutinefunction(function))
            return verdict(check, value)
        except asyncio.CancelledError:
            raise
        except (Exception, SystemExit) as error:  # the guard is user code; the run ends with an error
            if is_interrupt(error):
                raise
            return guard_error(error)

    async def _end(self) -> None:
        """Cancel what runs, and wait for it for a moment."""
        tasks: list[asyncio.Task[Any]] = [*self._checks, *([] if self._reading is None else [self._reading])]
        for task in tasks:
            task.cancel()
        if tasks:
            done, _ = await asyncio.wait(tasks, timeout=CLOSING_SECONDS)
            for task in done:
                with suppress(BaseException):
                    task.exception()


async def _next_or_none(source: AsyncIterator[list[StreamChunk]]) -> list[StreamChunk] | None:
    return await anext(source, None)

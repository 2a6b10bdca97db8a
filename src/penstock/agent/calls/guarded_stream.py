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
from penstock.agent.run_errors import is_interrupt, original
from penstock.errors import GuardError, ProviderError, type_name
from penstock.events import StreamChunk
from penstock.guard.checks import Check
from penstock.guard.guard import Guard, GuardContext, StopRun, with_context
from penstock.guard.own_labels import OwnLabels
from penstock.guard.plain_json import PlainJSON
from penstock.guard.provider_words import error_check, with_checked_error
from penstock.guard.stage import MAX_HELD, GuardStage, stopped
from penstock.jsontext.surrogates import join_surrogates
from penstock.model.stream import AsyncStream

Verdict = str | StopRun | None


class GuardCalls:
    """The calls of the functions of a guard for one response, and how long each may take. `stage` holds it back."""

    def __init__(
        self, guard: Guard, stage: GuardStage, step: int, deps: Any, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.guard = guard
        self.stage = stage
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
        return [chunk for check in late if self.end(check) for chunk in self.stage.fail(check, self.late_error)]

    @property
    def late_error(self) -> GuardError:
        """The error of a check that has taken too long."""
        return GuardError(f"the guard took longer than {self.guard.timeout:g} seconds (Guard.timeout)")


def guarded_stream(stream: AsyncStream[Any], driven: DrivenRun) -> GuardedStream | None:
    """The response that is requested now, held back; None if the agent has no guard."""
    config, step = driven.config, driven.run.state.step
    if config.guard is None:
        return None
    models = [model.model for model in (config.model, *config.models.values())]
    stage = GuardStage(config.guard, has_text_calls=config.has_text_calls, declared=config.tools, models=models)
    calls = GuardCalls(config.guard, stage, step, driven.deps)
    return GuardedStream(stream, calls, driven.code, OwnLabels(f"call_{step}_"), PlainJSON() if config.output else None)


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
    error = original(error)
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

    def __init__(
        self, stream: AsyncStream[Any], calls: GuardCalls, code: UserCode, labels: OwnLabels, plain: PlainJSON | None
    ) -> None:
        self._stream = stream
        self._calls = calls
        self._code = code
        self._labels = labels
        self._plain = plain  # for structured output
        self._stage = calls.stage
        self._checks: dict[asyncio.Task[Answer], Check] = {}
        self._reading: Reading | None = None
        self._batches = self._cleared()

    async def start(self) -> list[StreamChunk]:
        """Send the request; `next_batch` returns all chunks. If it fails, the words of the provider are checked."""
        try:
            await self._stream.__aenter__()
            return []
        except ProviderError as error:
            failure = error
        await self._batches.aclose()
        return await self._failed(failure)

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
                chunks += self._close() if batch is None else self._feed(batch)
                if batch is not None:
                    self._read(source)
            else:
                chunks += self._settle(task)
        chunks += self._calls.take_late()
        for check in stage.take_due():
            self._calls.begin(check)
            self._checks[asyncio.create_task(self._check(check))] = check
        return chunks

    def _feed(self, batch: list[StreamChunk]) -> list[StreamChunk]:
        """Hold chunks of the provider back; returns what is cleared now."""
        labelled = self._labels.feed(batch)
        return self._stage.feed(labelled if self._plain is None else self._plain.feed(labelled))

    def _close(self) -> list[StreamChunk]:
        """The response has ended; returns what is cleared now."""
        rest = [] if self._plain is None else self._plain.close()
        return [*self._stage.feed(rest), *self._stage.close()]

    async def _failed(self, error: ProviderError) -> list[StreamChunk]:
        """Raise the error of a request, with what the guard made of its words, or return the end of the response."""
        check = error_check(error)
        if check is None:
            raise error
        try:
            answer = await asyncio.wait_for(self._check(check), self._calls.guard.timeout)
        except TimeoutError:
            answer = self._calls.late_error
        if isinstance(answer, StopRun):
            return [stopped(answer)]
        if isinstance(answer, GuardError):
            raise answer
        check.passed = answer or ""
        raise with_checked_error(error, check)

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

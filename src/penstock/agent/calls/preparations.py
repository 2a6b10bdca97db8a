"""The `prepare` functions of tools that run, or have run, before the tools start: a task each, plain ones in threads.

What one returned waits here until its tool starts and uses it. It is never stored.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from contextvars import Context as Variables
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from penstock.agent.calls.tool_exceptions import log_raised
from penstock.agent.calls.tool_execution import is_from_outside
from penstock.agent.driver.caller_loop import is_stopped
from penstock.agent.driver.driven_run import DrivenRun
from penstock.agent.driver.user_code import UserCode
from penstock.errors import ArgumentsError, ToolError
from penstock.jsontext.values import deep_copy
from penstock.results import Outcome, error_outcome, failure
from penstock.run.commands import PrepareTool
from penstock.sentences import timed_out
from penstock.tools.prepare import Prepared, as_prepared
from penstock.tools.tool import Context, Tool

if TYPE_CHECKING:
    from penstock.agent.driver.dispatcher import Dispatcher

Result = Prepared | Outcome
"""What a `prepare` function returned, or the failure of its call."""
Then = Callable[[Result], None]


class PreparingCall(Struct, frozen=True, eq=False):
    """A call of the `prepare` function of a tool. It ends with a value or a failure, whatever the function does."""

    tool: Tool[..., Any]
    arguments: dict[str, Any]
    context: Context[Any]
    timeout: float | None = None

    async def run(self, code: UserCode) -> Result:
        """Call the function with checked arguments: a plain one in a thread."""
        preparation = self.tool.preparation
        if preparation is None:
            return Prepared()
        try:
            async with asyncio.timeout(self.timeout):
                return as_prepared(await code.call(self._call, self.tool.name, is_async=preparation.is_async))
        except TimeoutError:
            return error_outcome(timed_out(self.timeout or 0.0, may_have_effect=False))
        except BaseException as error:  # any error of a prepare function is the result of its call
            if is_from_outside(error):
                raise
            if not isinstance(error, ToolError | ArgumentsError):
                log_raised(f"prepare of the tool {self.tool.name}", preparation.function, error)
            return failure(error)

    def _call(self) -> Any:
        assert self.tool.preparation is not None
        return self.tool.preparation.call(self.tool.check(deep_copy(self.arguments)), self.context)


class Preparing:
    """A `prepare` function that runs, or has run, for one call. Its result goes to the tool once that has started."""

    def __init__(self, command: PrepareTool, work: Callable[[Context[Any]], Any], driven: DrivenRun) -> None:
        self.command = command
        self._began = time.monotonic()
        self._ended: float | None = None
        self.result: Result | None = None
        self._then: Then | None = None
        self._is_stopped = threading.Event()
        context: Context[Any] = Context(
            driven.deps, command.call_id, command.name, driven.run.state.step, cancelled=self._is_stopped.is_set,
            key=driven.key_prefix + command.key, _history=lambda: driven.run.state.history_before,
        )  # fmt: skip
        variables: Variables = driven.scope.variables.copy()
        self.task: asyncio.Task[Result] = asyncio.create_task(work(context), context=variables)

    @property
    def seconds(self) -> float:
        """How many seconds of the time of its tool it has used: how long the function ran, or has run so far."""
        return (time.monotonic() if self._ended is None else self._ended) - self._began

    @property
    def is_claimed(self) -> bool:
        """Whether its tool has started, and waits for its result."""
        return self._then is not None

    def claim(self, then: Then) -> None:
        """The tool has started: pass the result on, as soon as there is one."""
        self._then = then
        if self.result is not None:
            then(self.result)

    def end(self, result: Result) -> None:
        """The function has ended."""
        self.result, self._ended = result, time.monotonic()
        if self._then is not None and not self._is_stopped.is_set():
            self._then(result)

    def stop(self) -> None:
        """Discard it. A plain function cannot be stopped, and may run on; what it returns is not used."""
        self._is_stopped.set()
        self.task.cancel()

    @property
    def is_discarded(self) -> bool:
        """Whether its result is not needed any more."""
        return self._is_stopped.is_set()


class Preparations:
    """The `prepare` functions of one run, by the key of their calls' executions."""

    def __init__(self, driven: DrivenRun, dispatcher: Dispatcher) -> None:
        self._driven = driven
        self._dispatcher = dispatcher
        self._by_key: dict[str, Preparing] = {}
        self._discarded: set[asyncio.Task[Result]] = set()  # which may not have ended

    def start(self, command: PrepareTool) -> Preparing:
        """Start the function, in a task."""
        driven, tool = self._driven, self._driven.config.tools[command.name]

        def work(context: Context[Any]) -> Any:
            return PreparingCall(tool, command.arguments, context, command.timeout).run(driven.code)

        preparing = self._by_key[command.key] = Preparing(command, work, driven)
        preparing.task.add_done_callback(partial(self._ended, preparing))
        return preparing

    def take(self, command: PrepareTool) -> Preparing:
        """What was started for this call, for its tool, which starts now; it is started here if it was not."""
        preparing = self._by_key.get(command.key) or self.start(command)
        del self._by_key[command.key]
        return preparing

    def stop(self, key: str) -> None:
        """Discard what prepares a call, or has."""
        if (preparing := self._by_key.pop(key, None)) is not None:
            self.discard(preparing)

    def discard(self, preparing: Preparing) -> None:
        """Discard this."""
        preparing.stop()
        if not preparing.task.done():
            self._discarded.add(preparing.task)
            preparing.task.add_done_callback(self._discarded.discard)

    def close(self) -> list[asyncio.Task[Result]]:
        """Discard all; returns the tasks that have not ended, to be waited for."""
        for key in list(self._by_key):
            self.stop(key)
        return list(self._discarded)

    def _ended(self, preparing: Preparing, task: asyncio.Task[Result]) -> None:
        if preparing.is_discarded:
            if not task.cancelled():
                task.exception()  # nobody needs it
            return
        if is_stopped(task) and self._driven.can_give_back:
            self._dispatcher.give_back()
            return
        if not task.cancelled() and isinstance(task.exception(), KeyboardInterrupt | SystemExit):
            return  # it has ended the loop already
        result = failure(asyncio.CancelledError()) if task.cancelled() else task.result()
        preparing.end(result)
        if not preparing.is_claimed:
            preview, problem = (result.preview, None) if isinstance(result, Prepared) else ("", result)
            run = self._driven.run
            self._dispatcher.report(partial(run.tool_prepared, preparing.command.key, preview, problem))
            self._dispatcher.wake()  # also if nothing was emitted: the run may have to pause

"""The `prepare` functions of tools that run, or have run, before the tools start: a task each, plain ones in threads.

What one returned waits here until its tool starts and uses it. It is never stored.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextvars import Context as Variables
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from penstock.agent.calls.growing_arguments import GrowingArguments, grown
from penstock.agent.calls.tool_exceptions import is_unexpected, log_raised
from penstock.agent.calls.tool_execution import is_from_outside
from penstock.agent.config import AgentConfig
from penstock.agent.driver.caller_loop import is_stopped
from penstock.agent.driver.driven_run import DrivenRun
from penstock.agent.driver.user_code import LateError, StrictTimeout, UserCode
from penstock.agent.run_errors import as_exception, original
from penstock.events import Retry, ToolCall, ToolCallClosed, ToolCallDelta, ToolCallInvalid, ToolCallStart
from penstock.jsontext.values import deep_copy
from penstock.results import Outcome, error_outcome, failure
from penstock.run.commands import GrowTool, PrepareTool
from penstock.sentences import timed_out
from penstock.tools.prepare import Prepared, as_prepared
from penstock.tools.tool import Context, Tool

if TYPE_CHECKING:
    from penstock.agent.driver.dispatcher import Dispatcher

Result = Prepared | Outcome
"""What a `prepare` function returned, or the failure of its call."""
Then = Callable[[Result], None]


class PreparingCall(Struct, frozen=True, eq=False):
    """A call of the `prepare` function of a tool. It ends with a value or a failure, whatever the function does.

    A function that takes its arguments as they are written gets `growing`. Its time begins when they are complete.
    `raised` has an exception that is not for the model.
    """

    tool: Tool[..., Any]
    arguments: dict[str, Any] | None  # None if they are still written
    context: Context[Any]
    timeout: float | None = None
    growing: GrowingArguments | None = None
    limit: asyncio.Timeout | None = None
    raised: list[Exception] = msgspec.field(default_factory=list)

    async def run(self, code: UserCode) -> Result:
        """Call the function with checked arguments: a plain one in a thread."""
        preparation = self.tool.preparation
        if preparation is None:
            return Prepared()
        try:
            async with StrictTimeout(self.limit or asyncio.timeout(self.timeout)):
                return as_prepared(await code.call(self._call, self.tool.name, is_async=preparation.is_async))
        except LateError:
            return error_outcome(timed_out(self.timeout or self.tool.timeout or 0.0, may_have_effect=False))
        except BaseException as error:  # any error of a prepare function is the result of its call
            if is_from_outside(error):
                raise
            if is_unexpected(raised := original(error)):
                log_raised(f"prepare of the tool {self.tool.name}", preparation.function, raised)
                self.raised.append(as_exception(raised))
            return failure(raised)

    def _call(self) -> Any:
        preparation = self.tool.preparation
        assert preparation is not None
        if self.arguments is None and self.growing is not None:
            return self.growing.during(partial(preparation.call_growing, self.growing, self.context))
        arguments = self.tool.check(deep_copy(self.arguments or {}))
        if preparation.grows:
            growing = self.growing or grown(self.arguments or {})
            return growing.during(partial(preparation.call_growing, growing, self.context))
        return preparation.call(arguments, self.context)


class Preparing:
    """A `prepare` function that runs, or has run, for one call. Its result goes to the tool once that has started."""

    def __init__(
        self, command: PrepareTool | GrowTool, driven: DrivenRun, growing: GrowingArguments | None = None
    ) -> None:
        self.command = command
        self.tool = driven.config.tools[command.name]
        self.is_growing = isinstance(command, GrowTool)
        self._growing = growing
        self._limit = asyncio.timeout(None) if isinstance(command, GrowTool) else asyncio.timeout(command.timeout)
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
        arguments = None if isinstance(command, GrowTool) else command.arguments
        timeout = None if isinstance(command, GrowTool) else command.timeout
        self._call = PreparingCall(self.tool, arguments, context, timeout, growing, self._limit)
        self.task: asyncio.Task[Result] = asyncio.create_task(self._call.run(driven.code), context=variables)

    def adopt(self, command: PrepareTool) -> bool:
        """The arguments that it reads are complete, and its time begins; False if it must be discarded."""
        has_read = self._growing is not None and self.command.call_id == command.call_id
        if not has_read or self._growing is None or not self._growing.close(command.arguments):
            return False
        try:
            self.tool.check(deep_copy(command.arguments))
            if command.timeout is not None and not self.task.done():
                self._limit.reschedule(asyncio.get_running_loop().time() + command.timeout)
        except Exception:  # noqa: BLE001  # arguments that do not fit, or the task has not begun
            return False
        self.command, self.is_growing, self._began = command, False, time.monotonic()
        self._ended = self._began if self.task.done() else None
        return True

    @property
    def seconds(self) -> float:
        """How many seconds of the time of its tool it has used: how long the function ran, or has run so far."""
        return (time.monotonic() if self._ended is None else self._ended) - self._began

    def take_raised(self) -> list[Exception]:
        """The exception of the function, if it is not for the model; once."""
        raised = list(self._call.raised)
        self._call.raised.clear()
        return raised

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
        if self._growing is not None:
            self._growing.discard()

    @property
    def is_discarded(self) -> bool:
        """Whether its result is not needed any more."""
        return self._is_stopped.is_set()


class GrowingTexts:
    """The arguments that the model is writing, of the calls whose `prepare` functions read them; by block."""

    def __init__(self, driven: DrivenRun) -> None:
        self._driven = driven
        self.config: AgentConfig | None = None  # the one that `names` were looked up in
        self.names = set[str]()  # the tools whose `prepare` functions read growing arguments
        self._by_block: dict[int, GrowingArguments] = {}

    def find(self, block: int) -> GrowingArguments | None:
        """The arguments of a call that are still written."""
        return self._by_block.get(block)

    def add(self, events: Sequence[object]) -> None:
        """Add what the run emits."""
        if self.config is not self._driven.config:
            self.config = self._driven.config
            tools = self.config.tools.items()
            self.names = {name for name, tool in tools if tool.preparation is not None and tool.preparation.grows}
        if self.names:
            for event in events:
                self._add(event)

    def _add(self, event: object) -> None:
        match event:
            case ToolCallStart(choice=0):
                self._by_block.pop(event.block, None)
                if event.name in self.names:
                    self._by_block[event.block] = GrowingArguments()
            case ToolCallDelta(choice=0):
                if (growing := self._by_block.get(event.block)) is not None:
                    growing.feed(event.piece)
            case ToolCallClosed(choice=0) | ToolCall(choice=0) | ToolCallInvalid(choice=0):
                self._by_block.pop(event.block, None)
            case Retry():
                self._by_block.clear()
            case _:
                pass


class Preparations:
    """The `prepare` functions of one run, by the key of their calls' executions."""

    def __init__(self, driven: DrivenRun, dispatcher: Dispatcher) -> None:
        self._driven = driven
        self._dispatcher = dispatcher
        self._by_key: dict[str, Preparing] = {}
        self.growing = GrowingTexts(driven)
        self._discarded: set[asyncio.Task[Result]] = set()  # which may not have ended

    def start(self, command: PrepareTool) -> Preparing:
        """Start the function, in a task."""
        begun = self._by_key.get(command.key)
        if begun is not None and begun.adopt(command):
            if begun.result is not None:
                asyncio.get_running_loop().call_soon(self._report, begun, begun.result)
            return begun
        self.stop(command.key)
        preparation = self._driven.config.tools[command.name].preparation
        grows = preparation is not None and preparation.grows
        return self._begin(command, grown(command.arguments) if grows else None)

    def grow(self, command: GrowTool) -> None:
        """Start a function that reads the arguments while they are written, in a task."""
        if (growing := self.growing.find(command.block)) is not None:
            self.stop(command.key)
            self._begin(command, growing)

    def _begin(self, command: PrepareTool | GrowTool, growing: GrowingArguments | None) -> Preparing:
        preparing = self._by_key[command.key] = Preparing(command, self._driven, growing)
        preparing.task.add_done_callback(partial(self._ended, preparing))
        return preparing

    def take(self, command: PrepareTool) -> Preparing:
        """What was started for this call, for its tool, which starts now; it is started here if it was not."""
        preparing = self._by_key.get(command.key)
        if preparing is None or preparing.is_growing:
            preparing = self.start(command)
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
        self._report(preparing, result)

    def _report(self, preparing: Preparing, result: Result) -> None:
        """What prepares a call has ended; report it, unless its arguments are still written or its tool has started."""
        if preparing.is_claimed or preparing.is_growing or preparing.is_discarded:
            return
        preview, problem = (result.preview, None) if isinstance(result, Prepared) else ("", result)
        prepared = partial(self._driven.run.tool_prepared, preparing.command.key, preview, problem)
        self._dispatcher.report(partial(self._driven.user_code_ended, prepared, preparing.take_raised()))
        self._dispatcher.wake()  # also if nothing was emitted: the run may have to pause

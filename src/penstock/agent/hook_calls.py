"""Calls of an agent's hooks before a step. They are user code that may block: a thread or a task makes them.

A hook that takes too long is not waited for: the run fails, and what the hook returns later is ignored.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator
from contextvars import copy_context
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from typing import Any

from penstock.agent.caller_loop import is_stopped
from penstock.agent.dispatcher import Dispatcher
from penstock.agent.driven_run import DrivenRun
from penstock.agent.step import total_usage
from penstock.agent.step_hooks import Call
from penstock.agent.tool_execution import in_own_thread, in_thread, is_from_outside
from penstock.errors import HookError
from penstock.jsontext.error_text import named_message
from penstock.run.commands import Command, PrepareStep
from penstock.run.step_changes import ModelUsage, StepDecision
from penstock.transport.loop_thread import LoopTask, RunLoop

Calls = Generator[tuple[str, Call], Any, StepDecision]

_TIMER = "hook"  # the key of the timer; those of tools have numbers in them


class HookCalls:
    """What both share: the time limit, and what a decision or an error leads to."""

    def __init__(self, driven: DrivenRun, dispatcher: Dispatcher) -> None:
        self._driven = driven
        self._dispatcher = dispatcher

    def _start_timer(self) -> None:
        seconds = self._driven.config.limits.hook_seconds
        if seconds is not None:
            late = partial(self._failed, late_error(seconds))
            self._dispatcher.timers.start(_TIMER, seconds, partial(self._dispatcher.report, late))

    def _decided(self, decision: StepDecision) -> list[Command]:
        self._dispatcher.timers.cancel(_TIMER)
        if self._driven.run.state.is_preparing:
            self._take_usages()
        return self._driven.run.step_prepared(decision)

    def _failed(self, error: BaseException) -> list[Command]:
        self._dispatcher.timers.cancel(_TIMER)
        if not self._driven.run.state.is_preparing:
            return []
        self._driven.run.spent(total_usage(self._take_usages()))
        return self._driven.failed(error)

    def _take_usages(self) -> list[ModelUsage]:
        """What the hooks have used for this step, also if one of them failed after that; the tracer sees it."""
        usages = self._driven.hooks.take_usages(self._driven.config)
        for used in usages:
            self._driven.scope.spent(used)
        return usages


class SyncHookCalls(HookCalls):
    """Calls the hooks of a run in sync code, in a thread; those that are async are awaited on the run's loop."""

    def __init__(self, driven: DrivenRun, dispatcher: Dispatcher, lock: threading.RLock, loop: RunLoop) -> None:
        super().__init__(driven, dispatcher)
        self._lock = lock
        self._loop = loop
        self._awaited: LoopTask | None = None
        self._is_stopped = False

    def start(self, command: PrepareStep) -> list[Command]:
        """Call the hooks in a thread, with the lock held; returns the commands that follow if none can be started."""
        try:
            in_thread(partial(self._work, command), "hook", self._driven.scope.variables)
        except RuntimeError as error:
            return self._driven.failed(error)
        self._start_timer()
        return []

    def stop(self) -> None:
        """Cancel a hook that is awaited; a plain one cannot be stopped."""
        self._is_stopped = True
        if self._awaited is not None:
            self._awaited.stop()

    def _work(self, command: PrepareStep) -> None:
        try:
            config = self._driven.step_tools.listed()
            decision = self._decide(self._driven.hooks.decide(command, config, self._driven.run.usage))
            step = partial(self._decided, decision)
        except BaseException as error:  # noqa: BLE001  # the reader gets it
            step = partial(self._failed, error)
        with self._lock:
            if not self._driven.ownership.is_left:
                self._dispatcher.report(step)

    def _decide(self, calls: Calls) -> StepDecision:
        value: Any = None
        while True:
            try:
                name, call = calls.send(value)
            except StopIteration as end:
                decision: StepDecision = end.value
                return decision
            try:
                value = call()
                if isawaitable(value):
                    value = self._result(self._loop.begin(value, copy_context()))
            except BaseException as error:
                raise hook_error(name, error) from error

    def _result(self, task: LoopTask) -> Any:
        self._awaited = task
        if self._is_stopped:  # since it was called
            task.stop()
        return task.result()


class AsyncHookCalls(HookCalls):
    """Calls the hooks of a run in async code, in a task; plain ones are called in threads."""

    def __init__(self, driven: DrivenRun, dispatcher: Dispatcher) -> None:
        super().__init__(driven, dispatcher)
        self._task: asyncio.Task[StepDecision] | None = None

    def start(self, command: PrepareStep) -> None:
        """Call the hooks in a task."""
        self._task = asyncio.create_task(self._work(command), context=self._driven.scope.variables.copy())
        self._task.add_done_callback(self._ended)
        self._start_timer()

    def stop(self) -> None:
        """Cancel the hooks."""
        if self._task is not None and not self._task.done():
            self._task.cancel()

    def close(self) -> list[asyncio.Task[StepDecision]]:
        """Forget the task; returns it, to be waited for."""
        tasks = [] if self._task is None else [self._task]
        self._task = None
        return tasks

    async def _work(self, command: PrepareStep) -> StepDecision:
        config = await self._driven.step_tools.alisted()
        return await self._decide(self._driven.hooks.decide(command, config, self._driven.run.usage))

    async def _decide(self, calls: Calls) -> StepDecision:
        value: Any = None
        while True:
            try:
                name, call = calls.send(value)
            except StopIteration as end:
                decision: StepDecision = end.value
                return decision
            try:
                value = call() if _is_async(call) else await in_own_thread(call, "hook")
                value = await value if isawaitable(value) else value
            except BaseException as error:
                if is_from_outside(error):
                    raise
                raise hook_error(name, error) from error

    def _ended(self, task: asyncio.Task[StepDecision]) -> None:
        driven = self._driven
        if is_stopped(task) and driven.can_give_back:
            self._dispatcher.give_back()
        elif task.cancelled():  # by other code, if the run is not over
            error = HookError("the task that called before_step was cancelled")
            self._dispatcher.report(partial(self._failed, error))
        elif (failure := task.exception()) is None:
            self._dispatcher.report(partial(self._decided, task.result()))
        elif not isinstance(failure, KeyboardInterrupt | SystemExit):  # which has ended the loop already
            self._dispatcher.report(partial(self._failed, failure))


def _is_async(call: Call) -> bool:
    """Whether a call can be made on the loop: it only makes a coroutine."""
    function: Any = getattr(call, "func", call)
    return iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def hook_error(name: str, error: BaseException) -> HookError:
    """The error of a run whose hook raised."""
    if isinstance(error, HookError):
        return error
    return HookError(f"{name} raised {named_message(error)}; no request was sent for this step")


def late_error(seconds: float) -> HookError:
    """The error of a run whose hooks did not return in time."""
    what = f"before_step, or the function instructions, took longer than {seconds:g} seconds"
    return HookError(f"{what}; make it faster, or set Limits(hook_seconds=…)")

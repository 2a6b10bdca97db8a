"""Calls of an agent's hooks before a step. They are user code: a task makes them, plain ones in threads.

A hook that takes too long is not waited for: the run fails, and what the hook returns later is ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from penstock.agent.calls.step_hooks import Call
from penstock.agent.calls.tool_execution import is_from_outside
from penstock.agent.driver.caller_loop import is_stopped
from penstock.agent.driver.driven_run import DrivenRun
from penstock.agent.driver.user_code import is_async
from penstock.agent.run_errors import original
from penstock.agent.step import total_usage
from penstock.errors import HookError
from penstock.jsontext.error_text import named_message
from penstock.run.commands import Command, PrepareStep
from penstock.run.step_changes import ModelUsage, StepDecision

if TYPE_CHECKING:
    from penstock.agent.driver.dispatcher import Dispatcher

Calls = Generator[tuple[str, Call], Any, StepDecision]

_TIMER = "hook"  # the key of the timer; those of tools have numbers in them


class HookCalls:
    """Calls the hooks of a run in a task, within their time limit."""

    def __init__(self, driven: DrivenRun, dispatcher: Dispatcher) -> None:
        self._driven = driven
        self._dispatcher = dispatcher
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
        config = await self._driven.code.listed(self._driven.step_tools)
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
                value = await self._driven.code.call(call, "hook", is_async=is_async(getattr(call, "func", call)))
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

    def _start_timer(self) -> None:
        seconds = self._driven.config.limits.hook_seconds
        if seconds is not None:
            late = partial(self._failed, late_error(seconds))
            self._dispatcher.timers.start(_TIMER, seconds, partial(self._dispatcher.report, late))

    def _decided(self, decision: StepDecision) -> list[Command]:
        self._dispatcher.timers.cancel(_TIMER)
        if self._driven.run.state.is_preparing and (usages := self._take_usages()):
            decision = replace(decision, changes=replace(decision.changes, usage=total_usage(usages)))
        return self._driven.run.step_prepared(decision)

    def _failed(self, error: BaseException) -> list[Command]:
        self._dispatcher.timers.cancel(_TIMER)
        if not self._driven.run.state.is_preparing:
            return []
        self._driven.run.spent(total_usage(self._take_usages()))
        return self._driven.failed(error)

    def _take_usages(self) -> list[ModelUsage]:
        """What the hooks have used for this step, also if one of them failed after that; the tracer sees it."""
        usages, pricing = self._driven.hooks.take_usages(self._driven.config), self._driven.pricing
        if pricing is not None:
            usages = [pricing.priced_usage(used) for used in usages]
        for used in usages:
            self._driven.scope.spent(used)
        return usages


def hook_error(name: str, error: BaseException) -> HookError:
    """The error of a run whose hook raised."""
    if isinstance(error, HookError):
        return error
    return HookError(f"{name} raised {named_message(original(error))}; no request was sent for this step")


def late_error(seconds: float) -> HookError:
    """The error of a run whose hooks did not return in time."""
    what = f"before_step, or the function instructions, took longer than {seconds:g} seconds"
    return HookError(f"{what}; make it faster, or set Limits(hook_seconds=…)")

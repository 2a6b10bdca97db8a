"""Calls of approval predicates. They are user code that may block: each has a thread or a task, a few at once.

A predicate that takes longer than `Limits.hook_seconds` is not waited for: a person is asked.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from penstock.agent.driven_run import DrivenRun
from penstock.agent.run_errors import is_interrupt
from penstock.agent.timers import Timers
from penstock.agent.tool_execution import in_own_thread, in_thread
from penstock.results import Outcome
from penstock.run.commands import CheckApproval
from penstock.tools.policy import ToolPolicy
from penstock.transport.loop_thread import LoopTask, RunLoop, close_coroutine

MAX_CHECKS = 8
"""How many approval predicates of a run are called at once."""

Answer = bool | Outcome
End = Callable[[CheckApproval, Answer | BaseException], None]


def _ask(policy: ToolPolicy, check: CheckApproval) -> Answer | Awaitable[Any]:
    """Ask the predicate of a tool whether a person must approve a call."""
    return policy.requires_approval(check.arguments, is_in_text=check.is_in_text)


async def ask_on_loop(policy: ToolPolicy, check: CheckApproval, seconds: float | None) -> Answer:
    """Ask the predicate of a tool in async code: one that is not async may block, and is called in a thread.

    If it fails, or takes longer than this many seconds, a person is asked.
    """
    ask = partial(_ask, policy, check)
    try:
        async with asyncio.timeout(seconds):
            answer = ask() if iscoroutinefunction(policy.needs_approval) else await in_own_thread(ask, "approval")
            return answer if isinstance(answer, bool | Outcome) else await _awaited(answer)
    except TimeoutError:
        return True


async def _awaited(answer: Awaitable[Any]) -> bool:
    try:
        return bool(await answer)
    except (Exception, SystemExit) as error:  # the predicate is user code: if it fails, a person is asked
        if is_interrupt(error):
            raise
        return True


class SyncChecks:
    """Approval predicates of a run in sync code, in threads; those that are async are awaited on the run's loop.

    `end` is called with the answer to each, or with what ended its thread. The lock is the driver's; it is not held
    while a predicate is called.
    """

    def __init__(self, driven: DrivenRun, lock: threading.RLock, timers: Timers, loop: RunLoop, end: End) -> None:
        self._driven = driven
        self._lock = lock
        self._timers = timers
        self._loop = loop
        self._end = end
        self._due: deque[CheckApproval] = deque()
        self._open: dict[str, LoopTask | None] = {}  # predicates that are called, and what is awaited for them

    def start(self, check: CheckApproval) -> None:
        """Call a predicate in a thread; the lock is held. Raises a `RuntimeError` if no thread can be started."""
        self._due.append(check)
        self._start_thread()

    def _start_thread(self) -> None:
        """Take the next check into a thread, if fewer than `MAX_CHECKS` have one; the lock is held."""
        if not self._due or len(self._open) >= MAX_CHECKS or self._driven.run.state.is_over:
            return
        check = self._due.popleft()
        in_thread(partial(self._check, check), "approval", self._driven.scope.variables)
        self._open[check.key] = None
        seconds = self._driven.config.limits.hook_seconds
        if seconds is not None:
            self._timers.start(_timer(check), seconds, partial(self._ended, check, True))

    def _check(self, check: CheckApproval) -> None:
        try:
            answer = _ask(self._driven.policy_of(check.name), check)
            if not isinstance(answer, bool | Outcome):
                answer = self._wait_for(check, answer)
        except BaseException as error:  # noqa: BLE001  # the reader gets it
            self._ended(check, error)
        else:
            self._ended(check, answer)

    def _wait_for(self, check: CheckApproval, answer: Awaitable[Any]) -> bool:
        """The answer of an async predicate; if it fails, a person is asked."""
        task = self._loop.begin(_awaited(answer), copy_context())
        with self._lock:
            if check.key in self._open:
                self._open[check.key] = task
            else:  # the predicate was late before it could be awaited
                task.stop()
        try:
            return bool(task.result())
        finally:
            close_coroutine(answer)  # a task that was cancelled before its first step never awaited it

    def _ended(self, check: CheckApproval, answer: Answer | BaseException) -> None:
        """A predicate has answered, or is late; what a late one answers is ignored."""
        with self._lock:
            if check.key not in self._open:
                return
            task = self._open.pop(check.key)
            if task is not None:
                task.stop()
            self._timers.cancel(_timer(check))
            try:
                self._start_thread()
            except RuntimeError as error:
                answer = error
        self._end(check, answer)


def _timer(check: CheckApproval) -> str:
    """The key of the timer of a check, which is not that of its execution."""
    return f"approval {check.key}"


class AsyncChecks:
    """Approval predicates of a run in async code, in tasks; plain ones are called in threads.

    `end` is called with the answer to each, or with what ended its task.
    """

    def __init__(self, driven: DrivenRun, end: End) -> None:
        self._driven = driven
        self._end = end
        self._tasks: set[asyncio.Task[None]] = set()
        self._may_check = asyncio.Semaphore(MAX_CHECKS)

    def start(self, check: CheckApproval) -> None:
        """Call a predicate in a task."""
        task = asyncio.create_task(self._check(check), context=self._driven.scope.variables.copy())
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, check))

    def cancel(self) -> list[asyncio.Task[None]]:
        """Cancel all that have not ended; returns their tasks."""
        for task in self._tasks:
            task.cancel()
        return list(self._tasks)

    async def _check(self, check: CheckApproval) -> None:
        async with self._may_check:
            if self._driven.run.state.is_over:
                return
            policy, seconds = self._driven.policy_of(check.name), self._driven.config.limits.hook_seconds
            self._end(check, await ask_on_loop(policy, check, seconds))

    def _ended(self, check: CheckApproval, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():  # by the predicate, if the run is not over
            self._end(check, asyncio.CancelledError("an approval predicate was cancelled"))
        elif (error := task.exception()) is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
            self._end(check, error)

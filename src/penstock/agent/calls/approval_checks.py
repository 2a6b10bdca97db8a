"""Calls of approval predicates. They are user code that may block: each has a task, a few at once.

A predicate that takes longer than `Limits.hook_seconds` is not waited for: a person is asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from penstock.agent.driver.driven_run import DrivenRun
from penstock.agent.driver.user_code import UserCode
from penstock.agent.run_errors import is_interrupt
from penstock.results import Outcome
from penstock.run.commands import CheckApproval
from penstock.tools.policy import ToolPolicy
from penstock.transport.threads.loop_thread import close_coroutine
from penstock.transport.threads.worker_threads import in_own_thread

MAX_CHECKS = 8
"""How many approval predicates of a run are called at once."""

Answer = bool | Outcome
End = Callable[[CheckApproval, Answer | BaseException], None]


def _ask(policy: ToolPolicy, check: CheckApproval) -> Answer | Awaitable[Any]:
    """Ask the predicate of a tool whether a person must approve a call."""
    return policy.requires_approval(check.arguments, is_in_text=check.is_in_text)


async def ask_policy(code: UserCode, policy: ToolPolicy, check: CheckApproval, seconds: float | None) -> Answer:
    """Ask the predicate of a tool. One that is not async may block, and is called in a thread.

    If it fails, or takes longer than this many seconds, a person is asked.
    """
    ask = partial(_ask, policy, check)
    try:
        async with asyncio.timeout(seconds):
            answer = ask() if iscoroutinefunction(policy.needs_approval) else await in_own_thread(ask, "approval")
            if isinstance(answer, bool | Outcome):
                return answer
            try:
                return bool(await code.awaited(_awaited(answer)))
            finally:
                close_coroutine(answer)  # a task that was cancelled before its first step never awaited it
    except TimeoutError:
        return True


async def _awaited(answer: Awaitable[Any]) -> bool:
    try:
        return bool(await answer)
    except (Exception, SystemExit) as error:  # the predicate is user code: if it fails, a person is asked
        if is_interrupt(error):
            raise
        return True


class ApprovalChecks:
    """Approval predicates of a run, in tasks; plain ones are called in threads.

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
            self._end(check, await ask_policy(self._driven.code, policy, check, seconds))

    def _ended(self, check: CheckApproval, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():  # by the predicate, if the run is not over
            self._end(check, asyncio.CancelledError("an approval predicate was cancelled"))
        elif (error := task.exception()) is not None and not isinstance(error, KeyboardInterrupt | SystemExit):
            self._end(check, error)

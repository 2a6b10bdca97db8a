"""Calls of approval predicates. They are user code that may block: each has a thread or a task, a few at once."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable
from contextvars import Context as Variables
from contextvars import copy_context
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from penstock.agent.tool_execution import in_own_thread, in_thread
from penstock.results import Outcome
from penstock.run.commands import CheckApproval
from penstock.run.machine import Run
from penstock.tools.policy import ToolPolicy
from penstock.transport.loop_thread import RunLoop

MAX_CHECKS = 8
"""How many approval predicates of a run are called at once."""

Answer = bool | Outcome
End = Callable[[CheckApproval, Answer | BaseException], None]
PolicyOf = Callable[[str], ToolPolicy]


def _ask(policy: ToolPolicy, check: CheckApproval) -> Answer | Awaitable[Any]:
    """Ask the predicate of a tool whether a person must approve a call."""
    return policy.requires_approval(check.arguments, is_in_text=check.is_in_text)


async def ask_on_loop(policy: ToolPolicy, check: CheckApproval) -> Answer:
    """Ask the predicate of a tool in async code: one that is not async may block, and is called in a thread."""
    ask = partial(_ask, policy, check)
    answer = ask() if iscoroutinefunction(policy.needs_approval) else await in_own_thread(ask, "approval")
    if isinstance(answer, bool | Outcome):
        return answer
    try:
        return bool(await answer)
    except (Exception, SystemExit):  # noqa: BLE001  # the predicate is user code: if it fails, a person is asked
        return True


class SyncChecks:
    """Approval predicates of a run in plain code, in threads; those that are async are awaited on the run's loop.

    `end` is called with the answer to each, or with what ended its thread. The lock is the driver's; it is not held
    while a predicate is called.
    """

    def __init__(self, lock: threading.RLock, run: Run, policy_of: PolicyOf, loop: RunLoop, end: End) -> None:
        self._lock = lock
        self._run = run
        self._policy_of = policy_of
        self._loop = loop
        self._end = end
        self._due: deque[CheckApproval] = deque()
        self._threads = 0

    def start(self, check: CheckApproval, variables: Variables) -> None:
        """Call a predicate in a thread; the lock is held. Raises a `RuntimeError` if no thread can be started."""
        self._due.append(check)
        if self._threads < min(len(self._due), MAX_CHECKS):
            in_thread(self._check_all, "approval", variables)
            self._threads += 1

    def _check_all(self) -> None:
        while (check := self._next()) is not None:
            try:
                answer = _ask(self._policy_of(check.name), check)
                if not isinstance(answer, bool | Outcome):
                    answer = self._awaited(answer)
            except BaseException as error:  # noqa: BLE001  # the reader gets it
                self._end(check, error)
            else:
                self._end(check, answer)

    def _awaited(self, answer: Awaitable[Any]) -> bool:
        """The answer of an async predicate; if it fails, a person is asked."""
        try:
            return bool(self._loop.begin(answer, copy_context()).result())
        except (Exception, SystemExit):  # noqa: BLE001  # the predicate is user code
            return True

    def _next(self) -> CheckApproval | None:
        with self._lock:
            if self._due and not self._run.is_over:
                return self._due.popleft()
            self._threads -= 1
            return None


class AsyncChecks:
    """Approval predicates of a run in async code, in tasks; plain ones are called in threads.

    `end` is called with the answer to each, or with what ended its task.
    """

    def __init__(self, run: Run, policy_of: PolicyOf, end: End) -> None:
        self._run = run
        self._policy_of = policy_of
        self._end = end
        self._tasks: set[asyncio.Task[None]] = set()
        self._may_check = asyncio.Semaphore(MAX_CHECKS)

    def start(self, check: CheckApproval, variables: Variables) -> None:
        """Call a predicate in a task."""
        task = asyncio.create_task(self._check(check), context=variables.copy())
        self._tasks.add(task)
        task.add_done_callback(partial(self._ended, check))

    def cancel(self) -> list[asyncio.Task[None]]:
        """Cancel all that have not ended; returns their tasks."""
        for task in self._tasks:
            task.cancel()
        return list(self._tasks)

    async def _check(self, check: CheckApproval) -> None:
        async with self._may_check:
            if self._run.is_over:
                return
            self._end(check, await ask_on_loop(self._policy_of(check.name), check))

    def _ended(self, check: CheckApproval, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if task.cancelled():  # by the predicate, if the run is not over
            self._end(check, asyncio.CancelledError("an approval predicate was cancelled"))
        elif (error := task.exception()) is not None and not isinstance(error, KeyboardInterrupt):
            self._end(check, error)

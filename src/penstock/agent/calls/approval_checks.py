"""Calls of approval predicates. They are user code that may block.

A predicate that takes longer than `Limits.hook_seconds` is not waited for: a person is asked.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from inspect import iscoroutinefunction
from typing import Any

from penstock.agent.calls.tool_execution import is_from_outside
from penstock.agent.driver.user_code import UserCode, in_own_task, strict_timeout
from penstock.agent.pending_call import PendingCall
from penstock.results import Outcome
from penstock.tools.policy import ToolPolicy
from penstock.transport.threads.loop_thread import close_coroutine
from penstock.transport.threads.worker_threads import in_own_thread

Answer = bool | Outcome


async def ask_policy(code: UserCode, policy: ToolPolicy, call: PendingCall, seconds: float | None) -> Answer:
    """Ask the predicate of a tool. One that is not async may block, and is called in a thread.

    If it fails, or takes longer than this many seconds, a person is asked.
    """
    try:
        async with strict_timeout(seconds):
            sources = await call.asources() if policy.takes_sources else {}
            ask = partial(policy.requires_approval, call.raw_arguments, is_in_text=call.is_in_text, sources=sources)
            is_quick = iscoroutinefunction(policy.needs_approval) or not callable(policy.needs_approval)
            answer = ask() if is_quick else await in_own_thread(ask, "approval")
            if isinstance(answer, bool | Outcome):
                return answer
            try:
                return bool(await in_own_task(code.awaited(_awaited(answer))))
            finally:
                close_coroutine(answer)  # a task that was cancelled before its first step never awaited it
    except BaseException as error:
        if is_from_outside(error):
            raise
        return True  # also if it takes too long, or cancels its task


async def _awaited(answer: Awaitable[Any]) -> bool:
    try:
        return bool(await answer)
    except BaseException as error:  # the predicate is user code: if it fails, a person is asked
        if is_from_outside(error):
            raise
        return True

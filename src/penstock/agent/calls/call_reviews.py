"""The tasks in which the hooks around calls run, a few at once; plain ones are called in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from penstock.agent.calls.call_hooks import CallHooks
from penstock.agent.calls.call_sources import CallSources, shown
from penstock.agent.driver.caller_loop import is_stopped
from penstock.agent.driver.driven_run import DrivenRun
from penstock.agent.pending_call import PendingCall
from penstock.errors import HookError
from penstock.guard.guard import StopRun
from penstock.messages import Message
from penstock.run.commands import CallReview, ReviewCall, ReviseResult

if TYPE_CHECKING:
    from penstock.agent.driver.dispatcher import Dispatcher

MAX_CHECKS = 8
"""How many calls of a run are reviewed at once, and how many results."""


class CallReviews:
    """Lets the hooks of a run decide about its calls and their results, and reports what they decided."""

    def __init__(self, driven: DrivenRun, dispatcher: Dispatcher) -> None:
        self._driven = driven
        self._dispatcher = dispatcher
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._may_review = asyncio.Semaphore(MAX_CHECKS)
        self._may_revise = asyncio.Semaphore(MAX_CHECKS)
        self._may_look = asyncio.Lock()
        self._sources = CallSources()
        self._history: tuple[int, tuple[Message, ...]] = (0, ())  # the messages before the step with this number

    def review(self, command: ReviewCall) -> None:
        """Let hooks and predicate decide about a call, in a task."""
        self._start(command.key, self._review(command))

    def revise(self, command: ReviseResult) -> None:
        """Let hooks see the result of a call, in a task."""
        self._start(command.key, self._revise(command))

    def stop(self, key: str) -> None:
        """Cancel the hooks of a call, if they run."""
        if (task := self._tasks.pop(key, None)) is not None:
            task.cancel()

    def cancel(self) -> list[asyncio.Task[None]]:
        """Cancel all that have not ended; returns their tasks."""
        tasks = list(self._tasks.values())
        for key in list(self._tasks):
            self.stop(key)
        return tasks

    def _start(self, key: str, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, context=self._driven.scope.variables.copy())
        self._tasks[key] = task
        task.add_done_callback(partial(self._ended, key))

    async def _review(self, command: ReviewCall) -> None:
        driven, state = self._driven, self._driven.run.state
        async with self._may_review:
            policy = state.rules.policy_of(command.name, command.kind)
            if state.is_over or policy is None:
                return
            call = replace(self._pending(command.call_id, command), is_confirmed=command.is_confirmed)
            hooks, is_elsewhere = CallHooks(driven.config, driven.code), command.kind == "approval"
            review = await hooks.review(call, policy, state.step, runs_elsewhere=is_elsewhere)
            if isinstance(review, CallReview) and review.verdict == "ask":
                review = await self._with_sources(review, call)
        if isinstance(review, StopRun):
            self._dispatcher.report(partial(driven.run.call_forbidden, review.why))
        else:
            reviewed = partial(driven.run.call_reviewed, command.key, review)
            self._dispatcher.report(partial(driven.user_code_ended, reviewed, hooks.raised))
        self._dispatcher.wake()  # also if nothing was emitted: a call before this one holds it, and the run may pause

    async def _with_sources(self, review: CallReview, call: PendingCall) -> CallReview:
        """The review with the sources that a person sees; none if they are not found in time.

        One call after the other: requests for approval come in the order of the calls if nothing else delays them.
        """
        arguments = call.raw_arguments if review.arguments is None else review.arguments
        try:
            async with self._may_look, asyncio.timeout(self._driven.config.limits.hook_seconds):
                sources = await replace(call, written=arguments).asources()
        except TimeoutError:
            return review
        return replace(review, sources=shown(sources))

    async def _revise(self, command: ReviseResult) -> None:
        driven, state = self._driven, self._driven.run.state
        async with self._may_revise:
            if state.is_over:
                return
            call, policy = self._pending(command.result.call_id, command), state.rules.policies.get(command.name)
            hooks = CallHooks(driven.config, driven.code)
            outcome = await hooks.revise(call, command.result, command.data, policy)
        revised = partial(driven.run.result_revised, command.key, outcome, is_withheld=bool(hooks.raised))
        self._dispatcher.report(partial(driven.user_code_ended, revised, hooks.raised))
        self._dispatcher.wake()

    def _pending(self, call_id: str, command: ReviewCall | ReviseResult) -> PendingCall:
        """The call for the hooks, with the history before its response."""
        driven, state = self._driven, self._driven.run.state
        if self._history[0] != state.step:
            self._history = state.step, tuple(state.history_before)
        instructions = driven.config.instructions
        return PendingCall(
            id=call_id,
            name=command.name,
            arguments=command.arguments,
            tool=driven.config.tools.get(command.name),
            origin=command.origin,
            deps=driven.deps,
            messages=self._history[1],
            run_id=driven.records.run_id,
            conversation=self._sources,
            instructions=instructions if isinstance(instructions, str) else "",
        )

    def _ended(self, key: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(key) is not task:
            return  # it was stopped
        del self._tasks[key]
        if is_stopped(task) and self._driven.can_give_back:
            self._dispatcher.give_back()
        elif task.cancelled():  # by other code, if the run is not over
            error = HookError("the task that called the hooks of a call was cancelled")
            self._dispatcher.report(partial(self._driven.failed, error))
        elif (failure := task.exception()) is not None and not isinstance(failure, KeyboardInterrupt | SystemExit):
            self._dispatcher.report(partial(self._driven.failed, failure))

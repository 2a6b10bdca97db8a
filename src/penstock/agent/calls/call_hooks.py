"""Hooks around a call: `before_call` and the approval predicate decide about it, `after_call` may change its result.

They are user code. If a hook raises, takes too long, or returns something else, the call does not run, or its result is
withheld, and the model reads that a hook failed. The run goes on, unless `tool_exceptions="raise"`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from penstock.agent.calls.approval_checks import ask_policy
from penstock.agent.calls.guarded_stream import guard_error, verdict
from penstock.agent.calls.tool_exceptions import log_raised
from penstock.agent.calls.tool_execution import is_from_outside
from penstock.agent.config import AgentConfig
from penstock.agent.driver.user_code import LateError, UserCode, in_own_task, is_async, strict_timeout
from penstock.agent.pending_call import PendingCall, decided, revised
from penstock.agent.run_errors import as_exception, original
from penstock.errors import ArgumentsError, GuardError, HookError
from penstock.guard.checks import Check
from penstock.guard.guard import CheckCall, Guard, GuardContext, StopRun, with_context
from penstock.jsontext.values import canonical_json, deep_copy
from penstock.messages import ToolResult
from penstock.results import Outcome, error_outcome
from penstock.run.commands import CallReview
from penstock.sentences import hook_failed, result_withheld
from penstock.tools.policy import ToolPolicy
from penstock.tools.signature import unwrap

Review = CallReview | Outcome | StopRun


class CallHooks(Struct, frozen=True, eq=False):
    """The hooks of an agent, as one step has them, for one call. `raised` has the exceptions of those that failed."""

    config: AgentConfig
    code: UserCode
    raised: list[Exception] = msgspec.field(default_factory=list)

    async def review(self, call: PendingCall, policy: ToolPolicy, step: int, *, runs_elsewhere: bool = False) -> Review:
        """What hooks and predicate decide about a call; an `Outcome` if its arguments do not fit.

        One that `runs_elsewhere` is a call that the provider runs once it is approved: it can only be refused.
        """
        config = self.config
        if config.before_call:
            if isinstance(checked := policy.check_arguments(call.raw_arguments), Outcome):
                return checked
            decision = await self._decide(call, policy, runs_elsewhere=runs_elsewhere)
            if isinstance(decision, CallReview):
                return decision
            call = decision
            if call.review.outcome is not None:
                return replace(call.review, arguments=None)
            if call.review.arguments is not None and config.guard is not None and config.guard.call is not None:
                stop = await check_arguments(config.guard, config.guard.call, self.code, call, step)
                if stop is not None:
                    return stop
        asks = call.review.verdict == "ask" or await ask_policy(self.code, policy, call, config.limits.hook_seconds)
        if isinstance(asks, Outcome):
            return asks
        return replace(call.review, verdict="ask" if asks else "go")

    async def revise(
        self, call: PendingCall, result: ToolResult, data: Any, policy: ToolPolicy | None
    ) -> Outcome | None:
        """The result that `after_call` makes of another; None if it stays as it is."""
        hook, outcome = self.config.after_call[0], None
        try:
            async with strict_timeout(self.config.limits.hook_seconds):
                for hook in self.config.after_call:
                    new = revised(await self._call(hook, _shown(call, policy), result), result, data)
                    if new is not None:
                        outcome, data = new, new.data
                        result = ToolResult(result.call_id, result.name, new.content, new.is_error, new.state)
        except BaseException as error:
            if is_from_outside(error):
                raise
            has_effect = policy is None or policy.may_have_effect
            return error_outcome(result_withheld(self._fail("after_call", hook, error), may_have_effect=has_effect))
        return outcome

    async def _decide(self, call: PendingCall, policy: ToolPolicy, *, runs_elsewhere: bool) -> PendingCall | CallReview:
        """The call after the hooks, of which the first that refuses or answers it ends them; a review if one failed."""
        hook, written = self.config.before_call[0], canonical_json(call.raw_arguments)
        try:
            async with strict_timeout(self.config.limits.hook_seconds):
                for hook in self.config.before_call:
                    call = decided(await self._call(hook, _shown(call, policy)), call)
                    _check(call, policy, runs_elsewhere=runs_elsewhere)
                    if call.review.outcome is not None:
                        break
            is_changed = canonical_json(call.raw_arguments) != written
        except BaseException as error:
            if is_from_outside(error):
                raise
            return CallReview("failed", outcome=error_outcome(hook_failed(self._fail("before_call", hook, error))))
        return replace(call, review=replace(call.review, arguments=call.raw_arguments if is_changed else None))

    async def _call(self, hook: Callable[..., Any], *values: Any) -> Any:
        return await in_own_task(self.code.call(partial(hook, *values), "hook", is_async=is_async(hook)))

    def _fail(self, option: str, hook: Callable[..., Any], error: BaseException) -> str:
        """A hook failed: log it, and keep its exception; returns its type."""
        what, problem, kept = f"{option} ({hook_name(hook)})", "", as_exception(error)
        if isinstance(error, LateError):
            problem = f"took longer than {self.config.limits.hook_seconds or 0:g} seconds"
            kept = TimeoutError(f"{what} {problem}; make it faster, or set Limits(hook_seconds=…)")
        elif isinstance(error, HookError | ArgumentsError):
            problem = f"failed with {type(error).__name__}"
        log_raised(what, hook, error, problem)
        self.raised.append(kept)
        return type(kept if problem else original(error)).__name__


async def check_arguments(
    guard: Guard, function: CheckCall, code: UserCode, call: PendingCall, step: int
) -> StopRun | None:
    """Let the guard check the arguments that a hook has changed; a `GuardError` if it fails."""
    check = Check("call")
    check.text, check.arguments = call.name, deep_copy(call.raw_arguments)
    context = GuardContext("call", "", step, call.deps)
    values = with_context(function, (check.text, check.arguments), context)
    try:
        async with strict_timeout(guard.timeout):
            value = await code.call(partial(function, *values), "guard", is_async=is_async(function))
        stop = verdict(check, value)
    except LateError as error:
        late = f"the guard took longer than {guard.timeout:g} seconds (Guard.timeout)"
        raise GuardError(late) from error
    except BaseException as error:
        if is_from_outside(error):
            raise
        raise guard_error(error) from error
    return stop if isinstance(stop, StopRun) else None


def hook_name(hook: Callable[..., Any]) -> str:
    """The name of a hook, for messages."""
    return str(getattr(unwrap(hook)[0], "__qualname__", "") or type(hook).__name__).rpartition("<locals>.")[2]


def _shown(call: PendingCall, policy: ToolPolicy | None) -> PendingCall:
    """The call for a hook: with a copy of what its tool gets, or of what the model wrote if that does not fit."""
    written = call.raw_arguments
    checked = written if policy is None else policy.check_arguments(written)
    return replace(
        call, arguments=deep_copy(written) if isinstance(checked, Outcome) else checked, written=deep_copy(written)
    )


def _check(call: PendingCall, policy: ToolPolicy, *, runs_elsewhere: bool) -> None:
    """Raise if the call cannot run as a hook decided."""
    review = call.review
    if runs_elsewhere and (review.arguments is not None or review.verdict == "answer"):
        raise HookError("the provider runs this call: before_call can refuse it or ask, but not change or answer it")
    if review.arguments is not None and review.outcome is None:
        checked = policy.check_arguments(review.arguments)
        if isinstance(checked, Outcome):
            raise ArgumentsError(checked.text)

"""Hooks around a call: `before_call` and the approval predicate decide about it, `after_call` may change its result.

They are user code. A hook that raises, takes too long, or returns something else never ends the run: the call does not
run, or its result is withheld, and the model reads that a hook failed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from penstock.agent.calls.approval_checks import ask_policy
from penstock.agent.calls.guarded_stream import guard_error, verdict
from penstock.agent.calls.tool_exceptions import log_raised
from penstock.agent.calls.tool_execution import is_from_outside
from penstock.agent.config import AgentConfig
from penstock.agent.driver.user_code import UserCode, is_async, strict_timeout
from penstock.agent.pending_call import PendingCall, decided, revised
from penstock.errors import ArgumentsError, GuardError, HookError
from penstock.guard.checks import Check
from penstock.guard.guard import CheckCall, Guard, GuardContext, StopRun, with_context
from penstock.jsontext.values import canonical_json, deep_copy
from penstock.messages import ToolResult
from penstock.results import Outcome, error_outcome
from penstock.run.commands import CallReview
from penstock.sentences import hook_failed, result_withheld
from penstock.tools.policy import ToolPolicy

Review = CallReview | Outcome | StopRun


class CallHooks(Struct, frozen=True):
    """The hooks of an agent, as one step has them."""

    config: AgentConfig
    code: UserCode

    async def review(self, call: PendingCall, policy: ToolPolicy, step: int, *, runs_elsewhere: bool = False) -> Review:
        """What hooks and predicate decide about a call; an `Outcome` if its arguments do not fit.

        One that `runs_elsewhere` is a call that the provider runs once it is approved: it can only be refused.
        """
        config = self.config
        if config.before_call:
            if isinstance(checked := policy.check_arguments(call.arguments), Outcome):
                return checked
            try:
                call = await self._decide(call)
                _check(call, policy, runs_elsewhere=runs_elsewhere)
            except BaseException as error:
                if is_from_outside(error):
                    raise
                return _failed(error, "before_call", config.before_call)
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
        hooks = self.config.after_call
        outcome: Outcome | None = None
        try:
            async with strict_timeout(self.config.limits.hook_seconds):
                for hook in hooks:
                    seen = replace(call, arguments=deep_copy(call.arguments))
                    new = revised(await self._call(hook, seen, result), result, data)
                    if new is not None:
                        outcome, data = new, new.data
                        result = ToolResult(result.call_id, result.name, new.content, new.is_error, new.state)
        except BaseException as error:
            if is_from_outside(error):
                raise
            _log("after_call", hooks, error)
            has_effect = policy is None or policy.may_have_effect
            return error_outcome(result_withheld(type(error).__name__, may_have_effect=has_effect))
        return outcome

    async def _decide(self, call: PendingCall) -> PendingCall:
        """The call after the hooks; the first that refuses or answers it ends them."""
        written = canonical_json(call.arguments)
        async with strict_timeout(self.config.limits.hook_seconds):
            for hook in self.config.before_call:
                seen = replace(call, arguments=deep_copy(call.arguments))
                call = decided(await self._call(hook, seen), call)
                if call.review.outcome is not None:
                    break
        is_changed = canonical_json(call.arguments) != written
        return replace(call, review=replace(call.review, arguments=call.arguments if is_changed else None))

    async def _call(self, hook: Callable[..., Any], *values: Any) -> Any:
        return await self.code.call(partial(hook, *values), "hook", is_async=is_async(hook))


async def check_arguments(
    guard: Guard, function: CheckCall, code: UserCode, call: PendingCall, step: int
) -> StopRun | None:
    """Let the guard check the arguments that a hook has changed; a `GuardError` if it fails."""
    check = Check("call")
    check.text, check.arguments = call.name, deep_copy(call.arguments)
    context = GuardContext("call", "", step, call.deps)
    values = with_context(function, (check.text, check.arguments), context)
    try:
        async with strict_timeout(guard.timeout):
            value = await code.call(partial(function, *values), "guard", is_async=is_async(function))
        stop = verdict(check, value)
    except TimeoutError as error:
        late = f"the guard took longer than {guard.timeout:g} seconds (Guard.timeout)"
        raise GuardError(late) from error
    except BaseException as error:
        if is_from_outside(error):
            raise
        raise guard_error(error) from error
    return stop if isinstance(stop, StopRun) else None


def _check(call: PendingCall, policy: ToolPolicy, *, runs_elsewhere: bool) -> None:
    """Raise if the call cannot run as the hooks decided."""
    review = call.review
    if runs_elsewhere and (review.arguments is not None or review.verdict == "answer"):
        raise HookError("the provider runs this call: before_call can refuse it or ask, but not change or answer it")
    if review.arguments is not None and review.outcome is None:
        checked = policy.check_arguments(review.arguments)
        if isinstance(checked, Outcome):
            raise ArgumentsError(checked.text)


def _failed(error: BaseException, name: str, hooks: Sequence[Callable[..., Any]]) -> CallReview:
    _log(name, hooks, error)
    return CallReview("failed", outcome=error_outcome(hook_failed(type(error).__name__)))


def _log(name: str, hooks: Sequence[Callable[..., Any]], error: BaseException) -> None:
    """Log what a hook raised: its place is that in the hook of the innermost call."""
    codes = [getattr(hook, "__code__", None) for hook in hooks]
    trace, function = error.__traceback__, hooks[0]
    while trace is not None:
        if trace.tb_frame.f_code in codes:
            function = hooks[codes.index(trace.tb_frame.f_code)]
        trace = trace.tb_next
    log_raised(name, function, error)

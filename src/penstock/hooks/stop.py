"""Stop conditions: when a run ends before its next request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable
from itertools import takewhile
from typing import Any

from penstock.agent.step import Step
from penstock.errors import UsageError


def stop_when(condition: Callable[[Step], Any], why: str = "a stop condition was met") -> Callable[[Step], Any]:
    """A hook that ends the run when the condition is true for the next step. A returned string is the reason.

    The condition may be async.
    """

    def stop_if_met(step: Step) -> Step | Awaitable[Step]:
        met = condition(step)
        return stop_if_awaited(step, met) if isawaitable(met) else stop_if(step, met)

    async def stop_if_awaited(step: Step, met: Awaitable[Any]) -> Step:
        return stop_if(step, await met)

    def stop_if(step: Step, met: Any) -> Step:
        return step.stop(met if isinstance(met, str) else why) if met else step

    return stop_if_met


def stop_after(*, steps: int | None = None, tool: str | None = None) -> Callable[[Step], Step]:
    """A hook that ends the run after this many steps, or after a tool has returned a result that is not an error."""
    if steps is None and tool is None:
        raise UsageError("stop_after needs steps=… or tool=…")

    def met(step: Step) -> str:
        if steps is not None and step.number > steps:
            return f"the run took {steps} steps"
        # Messages of the user may follow the results of the last response.
        recent = takewhile(lambda message: message.role != "assistant", reversed(step.history))
        has_run = any(result.name == tool and not result.is_error for message in recent for result in message.results)
        return f"the tool {tool} has returned" if has_run else ""

    return stop_when(met)

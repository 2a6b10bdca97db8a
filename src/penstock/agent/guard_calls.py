"""Calls of the guard: its functions are user code, which may raise, hang, or return anything."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from penstock.agent.driven_run import DrivenRun
from penstock.errors import GuardError, type_name
from penstock.events import StreamChunk
from penstock.guard.checks import Check
from penstock.guard.guard import Guard, GuardContext, StopRun, with_context
from penstock.guard.stage import MAX_HELD, GuardStage
from penstock.jsontext.surrogates import join_surrogates

Verdict = str | StopRun | None


class GuardCalls:
    """The calls of the functions of a guard for one response, and how long each may take. `stage` holds it back."""

    def __init__(
        self,
        guard: Guard,
        step: int,
        deps: Any,
        *,
        has_text_calls: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.guard = guard
        self.stage = GuardStage(guard, has_text_calls=has_text_calls)
        self._step = step
        self._deps = deps
        self._clock = clock
        self._deadlines: dict[Check, float] = {}

    def begin(self, check: Check) -> None:
        """A check is started."""
        self._deadlines[check] = self._clock() + self.guard.timeout

    def end(self, check: Check) -> bool:
        """A check has ended; returns whether it still counts: not if it took too long."""
        return self._deadlines.pop(check, None) is not None

    def call(self, check: Check) -> Any:
        """Call the function of the guard; its result may have to be awaited."""
        context = GuardContext(check.kind, check.before, self._step, self._deps)
        if check.arguments is None or self.guard.call is None:
            function: Callable[..., Any] = self.guard.text
            return function(*with_context(function, (check.text,), context))
        function = self.guard.call
        return function(*with_context(function, (check.text, check.arguments), context))

    def seconds_left(self) -> float | None:
        """How long to wait for the checks that run; None if there are none."""
        return max(0.0, min(self._deadlines.values()) - self._clock()) if self._deadlines else None

    def take_late(self) -> list[StreamChunk]:
        """Fail the checks that have taken too long; returns the chunks that can be passed on then."""
        now = self._clock()
        late = [check for check, deadline in self._deadlines.items() if deadline <= now]
        error = GuardError(f"the guard took longer than {self.guard.timeout:g} seconds (Guard.timeout)")
        return [chunk for check in late if self.end(check) for chunk in self.stage.fail(check, error)]


def guard_calls(driven: DrivenRun) -> GuardCalls | None:
    """The calls of the guard for the response that is requested now; None if the agent has no guard."""
    config = driven.config
    if config.guard is None:
        return None
    return GuardCalls(config.guard, driven.run.state.step, driven.deps, has_text_calls=config.has_text_calls)


def verdict(check: Check, value: Any) -> Verdict:
    """The verdict that a function of the guard returned; raises a `GuardError` if it is not a verdict."""
    if isinstance(value, StopRun):
        if not isinstance(value.why, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise GuardError(f"the guard returned a StopRun whose why is {type_name(value.why)}, not a string")
        return StopRun(join_surrogates(value.why))
    if check.arguments is not None:
        if value is None:
            return None
        raise GuardError(f"the guard returned {type_name(value)} for a call: return None or a StopRun")
    if isinstance(value, str):
        return join_surrogates(value)
    raise GuardError(f"the guard returned {type_name(value)}: return the text to pass on, or a StopRun")


def guard_error(error: BaseException) -> GuardError:
    """The error of a run whose guard raised this. The message of the exception is left out: it may quote the text."""
    if isinstance(error, GuardError):
        return error
    failure = GuardError(f"the guard raised {type(error).__name__}")
    failure.__cause__ = error
    return failure


def check_size(stage: GuardStage) -> None:
    """Raise a `GuardError` if too much is held back although no check runs that could clear it."""
    if stage.is_full and not stage.is_checking:
        raise GuardError(
            f"the guard would hold back more than {MAX_HELD} characters (MAX_HELD): check sentences or windows instead"
        )

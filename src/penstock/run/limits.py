"""The limits of a run, and the tally of what it has used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import reduce
from operator import add, attrgetter
from typing import Any

from msgspec import Struct

from penstock.errors import UsageError
from penstock.events import USAGE_COUNTS, Retry, Usage
from penstock.run.calls.execution import Execution
from penstock.tools.policy import DEFAULT_RETRIES, ToolPolicy

_UNITS = {"seconds": "seconds", "hook_seconds": "seconds", "cost": "US dollars"}
_ROUNDING = 1 + 1e-9  # sums of prices are not exact
_counts = attrgetter(*USAGE_COUNTS)

NO_TOOL = ""
"""The name under which calls of unknown tools are counted, all together."""


class Limits(Struct, frozen=True, kw_only=True):
    """The limits of a run; None means no limit. A run that exceeds one of the first six ends: no tool starts any more.

    - `steps`: requests to the model.
    - `calls`: executions of tools.
    - `tokens`: all input and output, cached or not, also of agents that run as tools.
    - `seconds`: the duration of the run.
    - `cost`: US dollars, also of agents that run as tools. A request is not sent if what was spent and the estimated
      price of its input are more. It needs `Agent(prices=…)`.
    - `repeats`: how often the same call with the same arguments may come.
    - `parallel`: how many tools run at once; further calls wait. This limit does not end the run.
    - `calls_per_answer`: how many calls of one response run; the surplus gets a result that says so. This limit does
      not end the run.
    - `output_retries`: how often structured output that is not valid goes back to the model.
    - `hook_seconds`: how long `before_step` may take; a run whose hook takes longer ends with an error. It is also how
      long the approval predicate of a tool may take; if one takes longer, a person is asked. For each call,
      `before_call` and `after_call` may take as long; if they take longer, the call does not run, or its result is
      withheld.
    - `takeovers`: for runs with a log, how many workers may die or lose the run in one step. A run that exceeds it, and
      was alone on the last of them, is parked, because it may be what kills its workers: no worker takes it until
      somebody retries it. A worker that stops and gives the run back does not count. This limit does not end the run.
    """

    steps: int | None = 50
    calls: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    cost: float | None = None
    repeats: int | None = 10
    parallel: int | None = 32
    calls_per_answer: int | None = 128
    output_retries: int | None = DEFAULT_RETRIES
    takeovers: int | None = 5
    hook_seconds: float | None = 120.0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value: Any = getattr(self, name)
            unit = _UNITS.get(name)
            kinds = int if unit is None else int | float
            least = 1 if name == "parallel" else 0
            if value is None or (
                isinstance(value, kinds) and not isinstance(value, bool) and least <= value < math.inf
            ):
                continue
            expected = "a whole number" if unit is None else f"a number of {unit}"
            raise UsageError(f"Limits: {name} must be {expected} of {least} or more, or None, not {value!r}")

    @property
    def has_budget(self) -> bool:
        """Whether tokens or cost are limited."""
        return self.tokens is not None or self.cost is not None

    @property
    def no_run(self) -> str:
        """Why no request may be sent at all; empty if one may."""
        if self.steps == 0:
            return "the run may have no steps"
        return "the run may take no time" if self.seconds == 0 else ""


class Tally(Struct):
    """What a run has used so far.

    `seen` counts calls by fingerprint, `failures` the failures in a row by tool, `invalid_outputs` the answers that
    were not valid output. `attempt` counts the models of the step under way that have failed. `so_far` is the usage of
    the response that is streaming, and `inside` that of the agents that run as tools; both are not part of `usage` yet.
    """

    usage: Usage = Usage()
    so_far: Usage = Usage()
    inside: Usage = Usage()
    step: int = 0
    calls: int = 0
    seen: dict[str, int] = {}
    failures: dict[str, int] = {}
    invalid_outputs: int = 0
    attempt: int = 0

    @property
    def total(self) -> Usage:
        """All that was used, also by what has not ended."""
        return add_usage(add_usage(self.usage, self.so_far), self.inside)

    @property
    def is_sound(self) -> bool:
        """Whether no count is negative, as in a stored tally that was changed."""
        usages = self.usage, self.so_far, self.inside
        tokens = [count for usage in usages for count in (usage.input_tokens, usage.output_tokens)]
        counts = (self.step, self.calls, self.invalid_outputs, self.attempt)
        return min(*counts, *tokens, *self.seen.values(), *self.failures.values()) >= 0

    def begin_step(self, usage: Usage | None) -> None:
        """The next request is sent to the model; the hooks before it have used these tokens."""
        self.step += 1
        self.attempt = 0
        self.spent(usage)

    def answered(self, repeats: Mapping[str, int]) -> None:
        """A response has ended; `repeats` are its calls by fingerprint."""
        self.paid()
        for fingerprint, count in repeats.items():
            self.seen[fingerprint] = self.seen.get(fingerprint, 0) + count

    def withdrawn(self, retry: Retry) -> None:
        """A response was withdrawn, perhaps to ask another model."""
        self.paid()
        self.attempt += bool(retry.model)

    def paid(self) -> None:
        """A response has ended or was withdrawn: its tokens count in both cases."""
        self.usage, self.so_far = add_usage(self.usage, self.so_far), Usage()

    def spent(self, usage: Usage | None) -> None:
        """Hooks have used these tokens themselves, or an inner run has."""
        if usage is not None:
            self.usage = add_usage(self.usage, usage)

    def tried(self, executions: Iterable[Execution], policies: Mapping[str, ToolPolicy]) -> None:
        """The calls of one response are one try: a tool failed if none of its calls succeeded.

        Calls for which a hook failed say nothing about their tool.
        """
        endings: dict[str, set[str]] = {}
        for execution in (each for each in executions if not each.has_failed_hook):
            is_known = execution.name in policies or execution.kind in ("vendor", "approval")
            name = execution.name if is_known else NO_TOOL
            endings.setdefault(name, set()).add(execution.ending)
        if NO_TOOL not in endings:
            self.failures.pop(NO_TOOL, None)
        for name, ways in endings.items():
            if "done" in ways:
                self.failures[name] = 0
            elif "failed" in ways:
                self.failures[name] = self.failures.get(name, 0) + 1

    def over(self, limits: Limits, more_calls: int, repeats: int) -> str:
        """Which limit this many more calls would exceed; `repeats` is the highest count of one call. Empty if none."""
        calls = self.calls + more_calls
        if limits.steps is not None and self.step >= limits.steps:
            return f"the run reached its limit of {limits.steps} steps"
        if limits.calls is not None and calls > limits.calls:
            return f"with this answer there would be {calls} calls, and there may be {limits.calls}"
        if limits.has_budget and (spent := over_budget(limits, self.total)):
            return spent
        if limits.repeats is not None and repeats > limits.repeats:
            return f"the same call came {repeats} times, and may come {limits.repeats} times"
        return ""

    def rejected(self, limits: Limits) -> str:
        """The reason not to send invalid output back to the model once more; empty if it may go back."""
        if limits.output_retries is None or self.invalid_outputs <= limits.output_retries:
            return ""
        count, retries = self.invalid_outputs, limits.output_retries
        return f"the output was not valid {count} times, and may be tried again {retries} times"

    def failing(self, policies: Mapping[str, ToolPolicy]) -> str:
        """Which tool failed too often in a row; empty if none."""
        for name, count in self.failures.items():
            policy = policies.get(name)
            retries = DEFAULT_RETRIES if name == NO_TOOL else policy.retries if policy is not None else None
            if retries is not None and count > retries:
                what = f"the tool {name} failed" if name else "tools that do not exist were called"
                return f"{what} {count} times in a row, and may be tried again {retries} times"
        return ""


def over_budget(limits: Limits, usage: Usage) -> str:
    """The exceeded limit of tokens or cost, in a sentence; empty if none is exceeded."""
    tokens = usage.input_tokens + usage.output_tokens
    if limits.tokens is not None and tokens > limits.tokens:
        return f"the run used {tokens} tokens, and may use {limits.tokens}"
    if limits.cost is not None and usage.cost is not None and usage.cost > limits.cost * _ROUNDING:
        return f"the run cost {dollars(usage.cost)}, and may cost {dollars(limits.cost)}"
    return ""


def over_cost(limits: Limits, usage: Usage, estimate: float | None) -> str:
    """Why a request with this estimated price may not be sent; empty if it may. None is not known."""
    if limits.cost is None:
        return ""
    spent = usage.cost if has_tokens(usage) else 0.0
    if spent is None or estimate is None:
        what = "cost so far" if spent is None else "price of the next request"
        return f"the {what} is not known, and the run may cost {dollars(limits.cost)}: add the model to prices"
    if spent + estimate <= limits.cost * _ROUNDING:
        return ""
    request = f"the next request about {dollars(estimate)}"
    return f"the run cost {dollars(spent)}, {request}, and the run may cost {dollars(limits.cost)}"


def add_usage(first: Usage, second: Usage) -> Usage:
    """The sum of two usages. Its cost is not known if one of them has tokens whose cost is not known."""
    cost = first.cost
    if cost is None:
        cost = None if has_tokens(first) else second.cost
    elif second.cost is not None or has_tokens(second):
        cost = None if second.cost is None else cost + second.cost
    counts = dict(zip(USAGE_COUNTS, map(add, _counts(first), _counts(second)), strict=True))
    return Usage(**counts, cost=cost)


def sum_usage(usages: Iterable[Usage]) -> Usage:
    """The sum of usages."""
    return reduce(add_usage, usages, Usage())


def has_tokens(usage: Usage) -> bool:
    """Whether any tokens were used."""
    return usage.input_tokens > 0 or usage.output_tokens > 0


def dollars(amount: float) -> str:
    """An amount of money, with two decimals or three significant digits."""
    decimals = 2 if amount >= 1 or amount == 0 else min(2 - math.floor(math.log10(amount)), 12)
    return f"${amount:,.{decimals}f}"

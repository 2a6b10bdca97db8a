"""What a run may use, and what it has used."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from penstock.errors import UsageError
from penstock.events import Usage
from penstock.run.execution import Execution
from penstock.tools.policy import DEFAULT_RETRIES, ToolPolicy

NO_TOOL = ""
"""The name under which calls of tools that do not exist are counted, all together."""


class Limits(Struct, frozen=True, kw_only=True):
    """When a run ends by itself; None means never.

    `steps` are requests to the model, `calls` executions of tools, `tokens` all that were used, `seconds` the time that
    the run may take, `repeats` how often the same call with the same arguments may come.
    """

    steps: int | None = 50
    calls: int | None = None
    tokens: int | None = None
    seconds: float | None = None
    repeats: int | None = 10

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            given: Any = getattr(self, name)
            kinds = int | float if name == "seconds" else int
            if given is None or (isinstance(given, kinds) and not isinstance(given, bool) and 0 <= given < math.inf):
                continue
            wanted = "a number of seconds" if name == "seconds" else "a whole number"
            raise UsageError(f"Limits: {name} is {given!r}: give {wanted} of 0 or more, or None")

    @property
    def bars(self) -> str:
        """Why the model is not to be asked at all; empty if it may be."""
        if self.steps == 0:
            return "the run may have no steps"
        return "the run may take no time" if self.seconds == 0 else ""


class Tally(Struct):
    """What a run has used so far; how often each call was `seen`, and how many `failures` in a row each tool had.

    `so_far` is what the answer that is coming has cost by now: it is not part of `usage` yet.
    """

    usage: Usage = Usage()
    so_far: Usage = Usage()
    step: int = 0
    calls: int = 0
    seen: dict[str, int] = {}
    failures: dict[str, int] = {}

    def answered(self, times: Mapping[str, int]) -> None:
        """The model has answered, with these calls."""
        self.paid()
        for fingerprint, count in times.items():
            self.seen[fingerprint] = self.seen.get(fingerprint, 0) + count

    def paid(self) -> None:
        """The answer that was coming has ended, or counts for nothing: it has been paid for in any case."""
        self.usage, self.so_far = _sum(self.usage, self.so_far), Usage()

    def tried(self, executions: Iterable[Execution], policies: Mapping[str, ToolPolicy]) -> None:
        """Calls that come in one answer are one try: a tool failed if none of its calls went well."""
        endings: dict[str, set[str]] = {}
        for one in executions:
            endings.setdefault(one.name if one.name in policies else NO_TOOL, set()).add(one.ending)
        if NO_TOOL not in endings:
            self.failures.pop(NO_TOOL, None)
        for name, ways in endings.items():
            if "done" in ways:
                self.failures[name] = 0
            elif "failed" in ways:
                self.failures[name] = self.failures.get(name, 0) + 1

    def over(self, limits: Limits, more_calls: int, repeats: int) -> str:
        """Which limit so many more calls, one of which came so often, would break; empty if none."""
        calls = self.calls + more_calls
        spent = _sum(self.usage, self.so_far)
        tokens = spent.input_tokens + spent.output_tokens
        if limits.steps is not None and self.step >= limits.steps:
            return f"the run reached its limit of {limits.steps} steps"
        if limits.calls is not None and calls > limits.calls:
            return f"with this answer there would be {calls} calls, and there may be {limits.calls}"
        if limits.tokens is not None and tokens > limits.tokens:
            return f"the run used {tokens} tokens, and may use {limits.tokens}"
        if limits.repeats is not None and repeats > limits.repeats:
            return f"the same call came {repeats} times, and may come {limits.repeats} times"
        return ""

    def worn_out(self, policies: Mapping[str, ToolPolicy]) -> str:
        """Which tool failed more often in a row than it may; empty if none."""
        for name, count in self.failures.items():
            policy = policies.get(name)
            retries = DEFAULT_RETRIES if name == NO_TOOL else policy.retries if policy is not None else None
            if retries is not None and count > retries:
                what = f"the tool {name} failed" if name else "tools that do not exist were called"
                return f"{what} {count} times in a row, and may be tried again {retries} times"
        return ""


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(
        one.input_tokens + other.input_tokens,
        one.output_tokens + other.output_tokens,
        one.cached_tokens + other.cached_tokens,
        one.reasoning_tokens + other.reasoning_tokens,
    )

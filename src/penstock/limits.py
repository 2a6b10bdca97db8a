"""What a run may use, and what it has used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from penstock.events import Usage
from penstock.executions import Execution, ToolPolicy
from penstock.turn import Turn


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


class Tally(Struct):
    """What a run has used so far; how often each call was `seen`, and how many `failures` in a row each tool had."""

    usage: Usage = Usage()
    step: int = 0
    calls: int = 0
    seen: dict[str, int] = {}
    failures: dict[str, int] = {}

    def answered(self, turn: Turn) -> None:
        """The model has answered."""
        if turn.usage is not None:
            self.usage = _sum(self.usage, turn.usage)
        for call in turn.tool_calls:
            said = f"{call.name} {call.arguments_raw}"
            self.seen[said] = self.seen.get(said, 0) + 1

    def tried(self, executions: Iterable[Execution]) -> None:
        """Calls that come in one answer are one try: a tool failed if none of its calls went well."""
        endings: dict[str, set[str]] = {}
        for one in executions:
            endings.setdefault(one.name, set()).add(one.ending)
        for name, ways in endings.items():
            self.failures[name] = self.failures.get(name, 0) + 1 if "failed" in ways and "done" not in ways else 0

    def over(self, limits: Limits, more_calls: int) -> str:
        """Which limit so many more calls would break; empty if none."""
        calls = self.calls + more_calls
        tokens = self.usage.input_tokens + self.usage.output_tokens
        if limits.steps is not None and self.step >= limits.steps:
            return f"the run reached its limit of {limits.steps} steps"
        if limits.calls is not None and calls > limits.calls:
            return f"with this answer there would be {calls} calls, and there may be {limits.calls}"
        if limits.tokens is not None and tokens > limits.tokens:
            return f"the run used {tokens} tokens, and may use {limits.tokens}"
        if limits.repeats is not None and (most := max(self.seen.values(), default=0)) > limits.repeats:
            return f"the same call came {most} times, and may come {limits.repeats} times"
        return ""

    def has_room(self, limits: Limits) -> bool:
        """Whether a call may start early: not if the limits will end the run with this answer."""
        return (limits.steps is None or self.step < limits.steps) and (
            limits.calls is None or self.calls < limits.calls
        )

    def worn_out(self, policies: Mapping[str, ToolPolicy]) -> str:
        """Which tool failed more often in a row than it may; empty if none."""
        for name, count in self.failures.items():
            policy = policies.get(name)
            if policy is not None and policy.retries is not None and count > policy.retries:
                return f"the tool {name} failed {count} times in a row, and may be tried again {policy.retries} times"
        return ""


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(
        one.input_tokens + other.input_tokens,
        one.output_tokens + other.output_tokens,
        one.cached_tokens + other.cached_tokens,
        one.reasoning_tokens + other.reasoning_tokens,
    )

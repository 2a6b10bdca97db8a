"""The option `reasoning`: an effort or a number of tokens, converted to what a provider accepts."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.errors import UsageError
from penstock.wires.shared.request import EFFORTS, Request

_NEAR = ((1_024, "minimal"), (4_096, "low"), (8_192, "medium"))


def requested_reasoning(request: Request) -> str | int | None:
    """The requested effort or token budget; 0 turns reasoning off, None leaves it to the provider."""
    match request.options.get("reasoning"):
        case None:
            return None
        case bool(is_on):
            return "medium" if is_on else 0
        case int(budget) if budget >= 0:
            return budget
        case "none" | "off":
            return 0
        case str(effort) if effort in EFFORTS:
            return effort
        case other:
            names = ", ".join(("none", *EFFORTS))
            raise UsageError(f"reasoning is {other!r}; use one of {names}, or a number of tokens")


def is_effort(value: object) -> bool:
    """Whether a value is an effort that all providers are asked for in their own words; servers may have others."""
    return value in ("none", "off", *EFFORTS)


def effort_of(reasoning: str | int) -> str:
    """The effort, or the effort nearest to a budget."""
    if isinstance(reasoning, str):
        return reasoning
    return next((effort for budget, effort in _NEAR if reasoning <= budget), "high")


def budget_of(reasoning: str | int, budgets: Mapping[str, int]) -> int:
    """The budget, or the budget of an effort."""
    return budgets[reasoning] if isinstance(reasoning, str) else reasoning

"""What Claude's models take, and the older ones take otherwise, whoever serves them.

From Claude 4.6 on, a model decides by itself how much to think, and is told an effort (`adaptive`); before, it was told
a number of tokens (`enabled`), which the models from 4.7 on refuse, as they refuse `temperature`, `top_p` and `top_k`.
Where it thinks, older ones take no other temperature than their own. Settings that a model refuses are left out, so
that one set of options serves all models.
"""

from __future__ import annotations

import re
from typing import Any

from penstock.errors import UsageError
from penstock.wires.shared.reasoning import budget_of, effort_of, requested_reasoning
from penstock.wires.shared.request import Request

Json = dict[str, Any]

DEFAULT_MAX_TOKENS = 16_000
"""How long an answer may get if the caller does not say.

All models from Claude 3.7 on allow at least 32,000 tokens, thoughts included; less cuts calls that write whole files,
and more than 21,333 is what Anthropic's own client refuses to ask for without streaming.
"""
OLD_MAX_TOKENS = 4_096  # what the models before 3.7 all allow
MIN_BUDGET = 1_024
BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_000, "xhigh": 32_000, "max": 32_000}

_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_NEWEST = (99, 0)  # of a Claude whose name has no number
_ADAPTIVE, _WITHOUT_SAMPLING = (4, 6), (4, 7)


def version(model: str) -> tuple[int, int] | None:
    """The version of a Claude; None if it is none."""
    if found := _VERSION.search(model):
        return int(found[1]), int(found[2] or 0)
    return _NEWEST if "claude" in model else None


def is_claude(model: str) -> bool:
    """Whether the model is one of Anthropic's."""
    return version(model) is not None


def length_and_thinking(request: Request) -> tuple[int, Json]:
    """How many tokens the answer may have, and the fields that say how much of them is for thinking."""
    number = version(request.model)
    given: int | None = request.options.get("max_tokens")
    usual = OLD_MAX_TOKENS if number and number < (3, 7) else DEFAULT_MAX_TOKENS
    match requested_reasoning(request):
        case None:
            return usual if given is None else given, {}
        case 0:
            return usual if given is None else given, {"thinking": {"type": "disabled"}}
        case reasoning if number and number >= _ADAPTIVE:
            return 2 * usual if given is None else given, _adaptive(effort_of(reasoning))
        case reasoning:
            budget = _budget(reasoning, given)
            thinking = {"type": "enabled", "budget_tokens": budget}
            return usual + budget if given is None else given, {"thinking": thinking}


def refused_options(request: Request) -> tuple[str, ...]:
    """The settings that the model would refuse."""
    number = version(request.model)
    if number and number >= _WITHOUT_SAMPLING:
        return "temperature", "top_p", "top_k"
    if not requested_reasoning(request):
        return ()
    return ("temperature", "top_k") if request.options.get("top_p", 0) >= 0.95 else ("temperature", "top_p", "top_k")


def _adaptive(effort: str) -> Json:
    """Without `display`, newer models keep their thoughts to themselves, and only sign them."""
    effort = "low" if effort == "minimal" else effort
    return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": effort}}


def _budget(reasoning: str | int, max_tokens: int | None) -> int:
    """A budget that leaves room for the answer; of an effort at most four fifths of all."""
    budget = max(budget_of(reasoning, BUDGETS), MIN_BUDGET)
    if max_tokens is None:
        return budget
    if isinstance(reasoning, str):
        budget = max(min(budget, max_tokens * 4 // 5), MIN_BUDGET)
    if budget >= max_tokens:
        raise UsageError(f"max_tokens is {max_tokens}, but {budget} tokens are for reasoning alone; raise max_tokens")
    return budget

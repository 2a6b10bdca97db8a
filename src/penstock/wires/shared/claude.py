"""The rules of Claude models, for every wire that serves them: settings by version, and the schemas that they enforce.

From Claude 4.6 on, a model decides how much to think and takes an effort (`adaptive`). Older models take a number of
tokens (`enabled`), which models from 4.7 on refuse, as they refuse `temperature`, `top_p` and `top_k`. While older
models think, they accept only their default temperature. Settings that a model refuses are left out, so that one set of
options serves all models.
"""

from __future__ import annotations

import re
from typing import Any

from penstock.errors import UsageError
from penstock.schemas import SchemaRules
from penstock.wires.shared.encode_request.output_format import STRING_FORMATS, is_enforceable
from penstock.wires.shared.encode_request.reasoning import budget_of, effort_of, requested_reasoning
from penstock.wires.shared.request import Request

Json = dict[str, Any]

CLAUDE_SCHEMAS = SchemaRules(
    keywords=frozenset({"title", "format", "allOf"}),
    formats=STRING_FORMATS | {"uri"},
    has_all_required=False,
    is_recursive=False,
)
"""What Claude models enforce, on every wire."""

PAUSES = frozenset({"pause_turn", "compaction"})
"""Stop reasons after which the history must be sent again: a hosted tool takes long, or the context was compacted."""

DEFAULT_MAX_TOKENS = 16_000
"""The default of `max_tokens`, which is required.

All models from Claude 3.7 on allow at least 32,000 tokens, including thinking. Less would cut calls that write whole
files; Anthropic's own client refuses more than 21,333 without streaming.
"""
OLD_MAX_TOKENS = 4_096  # which all models before 3.7 allow
MIN_BUDGET = 1_024
BUDGETS = {"minimal": 1_024, "low": 2_048, "medium": 8_192, "high": 16_000, "xhigh": 32_000, "max": 32_000}

_VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_NEWEST = (99, 0)  # version of a Claude whose name has no number
_WITH_FORMATS, _ADAPTIVE, _WITHOUT_SAMPLING = (4, 5), (4, 6), (4, 7)


def version(model: str) -> tuple[int, int] | None:
    """The version of a Claude model; None if it is another model."""
    if match := _VERSION.search(model):
        return int(match[1]), int(match[2] or 0)
    return _NEWEST if "claude" in model else None


def is_claude(model: str) -> bool:
    """Whether the model is a Claude."""
    return version(model) is not None


def length_and_thinking(request: Request) -> tuple[int, Json]:
    """The value of `max_tokens`, and the fields for thinking."""
    number = version(request.model)
    max_tokens: int | None = request.options.get("max_tokens")
    default = OLD_MAX_TOKENS if number and number < (3, 7) else DEFAULT_MAX_TOKENS
    match requested_reasoning(request):
        case None:
            return default if max_tokens is None else max_tokens, {}
        case 0:
            return default if max_tokens is None else max_tokens, {"thinking": {"type": "disabled"}}
        case reasoning if number and number >= _ADAPTIVE:
            return 2 * default if max_tokens is None else max_tokens, _adaptive(effort_of(reasoning))
        case reasoning:
            budget = _budget(reasoning, max_tokens)
            thinking = {"type": "enabled", "budget_tokens": budget}
            return default + budget if max_tokens is None else max_tokens, {"thinking": thinking}


def takes_format(request: Request) -> bool:
    """Whether the model has a response format that can express the output of the request."""
    number = version(request.model)
    has_formats = number is not None and number >= _WITH_FORMATS
    return has_formats and is_enforceable(request.output, CLAUDE_SCHEMAS)


def takes_forced_choice(request: Request) -> bool:
    """Whether a call may be required: a model that thinks with a budget refuses it."""
    number = version(request.model)
    return not requested_reasoning(request) or (number is not None and number >= _ADAPTIVE)


def refused_options(request: Request) -> tuple[str, ...]:
    """The options that the model would refuse."""
    number = version(request.model)
    if number and number >= _WITHOUT_SAMPLING:
        return "temperature", "top_p", "top_k"
    if not requested_reasoning(request):
        return ()
    return ("temperature", "top_k") if request.options.get("top_p", 0) >= 0.95 else ("temperature", "top_p", "top_k")


def _adaptive(effort: str) -> Json:
    """Without `display`, newer models return only signatures of their thinking."""
    effort = "low" if effort == "minimal" else effort
    return {"thinking": {"type": "adaptive", "display": "summarized"}, "output_config": {"effort": effort}}


def _budget(reasoning: str | int, max_tokens: int | None) -> int:
    """The thinking budget; for an effort, at most four fifths of `max_tokens`."""
    budget = max(budget_of(reasoning, BUDGETS), MIN_BUDGET)
    if max_tokens is None:
        return budget
    if isinstance(reasoning, str):
        budget = max(min(budget, max_tokens * 4 // 5), MIN_BUDGET)
    if budget >= max_tokens:
        raise UsageError(f"max_tokens is {max_tokens}, but {budget} tokens are for reasoning alone; raise max_tokens")
    return budget

"""The facts of Cohere's chat, version 2."""

from __future__ import annotations

from penstock.schemas import SchemaRules
from penstock.wires.shared.facts import (
    CACHE_WRITE_COUNTS,
    CHANGED_ARGUMENTS,
    CHANGED_NAMES,
    CHOICES,
    CUSTOM_CALLS,
    FINISH_MESSAGES,
    LATE_IDS,
    REFUSALS,
    SEEMING_CALLS,
    VENDOR_CALLS,
    StateFacts,
    WireFacts,
)
from penstock.wires.shared.token_counts import UsageTable, WrittenCount

FACTS = WireFacts(
    wire="cohere",
    states=(StateFacts("tool_plan", data="text", text="own"),),
    results_are_text=True,
    has_chat_parts=True,
    losses=(
        CACHE_WRITE_COUNTS,
        CHANGED_ARGUMENTS,
        CHANGED_NAMES,
        CHOICES,
        CUSTOM_CALLS,
        FINISH_MESSAGES,
        LATE_IDS,
        REFUSALS,
        SEEMING_CALLS,
        VENDOR_CALLS,
    ),
    output=SchemaRules(
        keywords=frozenset({"title", "format"}), formats=frozenset({"date-time", "uuid", "date", "time"})
    ),
)

USAGE = UsageTable(
    input=("tokens.input_tokens", "billed_units.input_tokens"),
    output=("tokens.output_tokens", "billed_units.output_tokens"),
    parts={"cached_tokens": ("cached_tokens",), "reasoning_tokens": ("tokens.reasoning_tokens",)},
    written=(
        WrittenCount("billed_units.input_tokens", "input_tokens"),  # the counts of the bill are the same here
        WrittenCount("billed_units.output_tokens", "output_tokens"),
        WrittenCount("tokens.input_tokens", "input_tokens"),
        WrittenCount("tokens.output_tokens", "output_tokens"),
        WrittenCount("tokens.reasoning_tokens", "reasoning_tokens", unless_zero=("reasoning_tokens",)),
        WrittenCount("cached_tokens", "cached_tokens"),
    ),
)

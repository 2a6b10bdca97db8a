"""The facts of Gemini's generateContent."""

from __future__ import annotations

from penstock.wires.shared.facts import (
    BLOCK_BORDERS,
    CACHE_WRITE_COUNTS,
    CALL_PIECES,
    CUSTOM_CALLS,
    CUT_CALLS,
    FAILED_CHOICES,
    INVALID_CALLS,
    LINE_BREAKS,
    REFUSALS,
    VENDOR_CALLS,
    Loss,
    StateFacts,
    WireFacts,
)
from penstock.wires.shared.google import GOOGLE_SCHEMAS
from penstock.wires.shared.token_counts import UsageTable, WrittenCount

STATE_PARTS = ("inlineData", "fileData", "executableCode", "codeExecutionResult", "toolCall", "toolResponse")
"""The parts that Gemini made or ran itself; they are kept as vendor state."""

FACTS = WireFacts(
    wire="gemini",
    name_characters=".:",
    states=(
        StateFacts("thought_signature", data="text", is_signature=True),
        StateFacts("id", on="call", data="text"),
        StateFacts("continuationToken", data="text"),
    ),
    kept_fields=("cachedContent",),
    system_field="system",
    results_need_names=True,
    losses=(
        BLOCK_BORDERS,
        CACHE_WRITE_COUNTS,
        CALL_PIECES,
        CUSTOM_CALLS,
        CUT_CALLS,
        INVALID_CALLS,
        LINE_BREAKS,
        REFUSALS,
        FAILED_CHOICES,
        Loss("text_signatures", "changed", "the signature of a text comes after it, in a part of its own"),
        VENDOR_CALLS,
    ),
    output=GOOGLE_SCHEMAS,
)

USAGE = UsageTable(
    input=("promptTokenCount",),
    more_input=("toolUsePromptTokenCount",),
    output=("candidatesTokenCount", "responseTokenCount"),
    parts={"cached_tokens": ("cachedContentTokenCount",), "reasoning_tokens": ("thoughtsTokenCount",)},
    total=("totalTokenCount",),
    reasoning_extent="left_out",
    written=(
        WrittenCount("promptTokenCount", "input_tokens"),
        WrittenCount("candidatesTokenCount", "plain_output", unless_zero=("plain_output",)),
        WrittenCount("totalTokenCount", "total", unless_zero=("total",)),
        WrittenCount("cachedContentTokenCount", "cached_tokens", unless_zero=("cached_tokens",)),
        WrittenCount("thoughtsTokenCount", "reasoning_tokens", unless_zero=("reasoning_tokens",)),
    ),
)

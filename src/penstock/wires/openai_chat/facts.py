"""The facts of OpenAI's Chat Completions, and of the providers that are compatible with it."""

from __future__ import annotations

from msgspec import structs

from penstock.wires.openai_chat.reasoning_fields import LIST_FIELDS, TOKEN_FIELDS
from penstock.wires.shared.encode_request.output_format import OPENAI_SCHEMAS
from penstock.wires.shared.facts import (
    BLOCK_BORDERS,
    CACHE_WRITE_COUNTS,
    CALL_PIECES,
    CHANGED_ARGUMENTS,
    CHANGED_NAMES,
    CUSTOM_CALLS,
    FAILED_CHOICES,
    FINISH_MESSAGES,
    LATE_IDS,
    LETTERS_AND_DIGITS,
    REASONING_COUNTS,
    REFUSALS,
    SEEMING_CALLS,
    VENDOR_CALLS,
    IdRules,
    Loss,
    PassedPaths,
    StateFacts,
    WireFacts,
)
from penstock.wires.shared.token_counts import UsageTable, WrittenCount

NINE_LETTER_IDS = "nine-letter-ids"
"""The quirk that call ids are exactly nine letters and digits (QUIRKS 165)."""

CALLS_BEFORE_ERRORS = Loss(
    "calls_before_errors", "changed", "only a finish reason confirms calls: an error after them cuts them"
)

FACTS = WireFacts(
    wire="openai-chat",
    ids=IdRules(max_length=40),
    quirk_ids={NINE_LETTER_IDS: IdRules(alphabet=LETTERS_AND_DIGITS, length=9)},
    states=(
        StateFacts("extra_content", on="call"),
        *(StateFacts(field, on="reasoning", data="list", text="reasoning") for field in LIST_FIELDS),
        *(StateFacts(field, on="reasoning", data="text") for field in TOKEN_FIELDS),
        StateFacts("reasoning_fields", data="list"),
    ),
    passed_headers=("openai-beta",),
    passed_paths=PassedPaths("/chat/completions"),
    results_are_text=True,
    needs_answers=True,
    has_chat_parts=True,
    losses=(
        BLOCK_BORDERS,
        CHANGED_ARGUMENTS,
        CHANGED_NAMES,
        FINISH_MESSAGES,
        LATE_IDS,
        SEEMING_CALLS,
        CALLS_BEFORE_ERRORS,
        FAILED_CHOICES,
        Loss("reasoning_details", "dropped", "in a stream they would repeat the text; those without text are kept"),
        VENDOR_CALLS,
    ),
    output=OPENAI_SCHEMAS,
)

MISTRAL_LOSSES = (
    BLOCK_BORDERS,
    CALLS_BEFORE_ERRORS,
    FAILED_CHOICES,
    FINISH_MESSAGES,
    SEEMING_CALLS,
    CALL_PIECES,
    CACHE_WRITE_COUNTS,
    CUSTOM_CALLS,
    REASONING_COUNTS,
    REFUSALS,
    VENDOR_CALLS,
)
"""Mistral's variant writes calls when they are whole."""

USAGE = UsageTable(
    input=("prompt_tokens", "input_tokens"),
    output=("completion_tokens", "output_tokens"),
    parts={
        "cached_tokens": (
            "prompt_tokens_details.cached_tokens", "prompt_cache_hit_tokens", "cached_tokens",
            "cache_read_input_tokens",
        ),
        "cache_write_tokens": ("prompt_tokens_details.cache_write_tokens", "cache_creation_input_tokens"),
        "reasoning_tokens": ("completion_tokens_details.reasoning_tokens", "reasoning_tokens"),
    },
    total=("total_tokens",),
    written=(
        WrittenCount("prompt_tokens", "input_tokens"),
        WrittenCount("completion_tokens", "output_tokens"),
        WrittenCount("total_tokens", "total"),
        WrittenCount("prompt_tokens_details.cached_tokens", "cached_tokens"),
        WrittenCount("prompt_tokens_details.cache_write_tokens", "cache_write_tokens", ("cache_write_tokens",)),
        WrittenCount("completion_tokens_details.reasoning_tokens", "reasoning_tokens"),
    ),
)  # fmt: skip
MISTRAL_USAGE = structs.replace(
    USAGE,
    written=(
        WrittenCount("prompt_tokens", "input_tokens"),
        WrittenCount("total_tokens", "total"),
        WrittenCount("completion_tokens", "output_tokens"),
        WrittenCount("prompt_tokens_details.cached_tokens", "cached_tokens"),
    ),
)

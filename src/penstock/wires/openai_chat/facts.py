"""The facts of OpenAI's Chat Completions, and of the providers that are compatible with it."""

from __future__ import annotations

from penstock.wires.shared.facts import LETTERS_AND_DIGITS, IdRules, StateFacts, WireFacts

NINE_LETTER_IDS = "nine-letter-ids"
"""The quirk that call ids are exactly nine letters and digits (QUIRKS 165)."""

FACTS = WireFacts(
    wire="openai-chat",
    ids=IdRules(max_length=40),
    quirk_ids={NINE_LETTER_IDS: IdRules(alphabet=LETTERS_AND_DIGITS, length=9)},
    states=(
        StateFacts("extra_content", on="call"),
        StateFacts("reasoning_details", on="reasoning", is_object=False),
        StateFacts("reasoning_fields", is_object=False),
    ),
    results_are_text=True,
    needs_answers=True,
    has_chat_parts=True,
)

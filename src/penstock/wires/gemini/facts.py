"""The facts of Gemini's generateContent."""

from __future__ import annotations

from penstock.wires.shared.facts import StateFacts, WireFacts

FACTS = WireFacts(
    wire="gemini",
    name_characters=".:",
    states=(
        StateFacts("thought_signature", is_object=False, is_signature=True),
        StateFacts("id", on="call", is_object=False),
        StateFacts("continuationToken", is_object=False),
    ),
    system_field="system",
    named_results=True,
)

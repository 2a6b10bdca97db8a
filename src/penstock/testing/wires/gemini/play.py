"""Gemini's habits: calls have no ids, and after reasoning the first call is signed, or else the end of the response."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock.events import Opaque
from penstock.testing.wires.habits import VendorHabits
from penstock.testing.wires.randomness import LETTERS
from penstock.testing.wires.signatures import GEMINI


class GeminiHabits(VendorHabits):
    """The words of a refusal are in the message of the end."""

    CALL_ID = ("", 0)
    RESPONSE_ID = (23, LETTERS)
    REFUSED: ClassVar = "content_filter"
    has_refusal_text = False
    REASONS: ClassVar = {"error": "MALFORMED_FUNCTION_CALL", "other": "OTHER"}
    _is_signature_due = False

    def reasoning_states(self, block: int, text: str) -> Iterator[Opaque]:
        self._is_signature_due = True
        yield from ()

    def call_states(self, block: int) -> Iterator[Opaque]:
        if self._is_signature_due:
            self._is_signature_due = False
            yield Opaque(block, "gemini", "thought_signature", self.random.signature(GEMINI))

    def last_states(self, block: int) -> Iterator[Opaque]:
        yield from self.call_states(block)


HABITS = GeminiHabits

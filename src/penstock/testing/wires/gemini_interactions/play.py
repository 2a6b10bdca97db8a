"""The habits of Google's Interactions: thoughts are signed, and ids of calls are short."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from penstock.events import Opaque
from penstock.testing.wires.habits import VendorHabits
from penstock.testing.wires.randomness import LETTERS
from penstock.testing.wires.signatures import GEMINI


class GeminiInteractionsHabits(VendorHabits):
    """The words of a refusal are text."""

    CALL_ID = ("", 8)
    RESPONSE_ID = (43, LETTERS)
    REASONS: ClassVar = {"error": "failed", "other": "cancelled"}

    def reasoning_states(self, block: int, text: str) -> Iterator[Opaque]:
        yield Opaque(block, "gemini-interactions", "signature", self.random.signature(GEMINI))


HABITS = GeminiInteractionsHabits

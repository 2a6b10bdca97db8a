"""Ollama's habits: ids of calls have eight characters."""

from __future__ import annotations

from penstock.testing.wires.habits import VendorHabits


class OllamaHabits(VendorHabits):
    """The words of a refusal are text."""

    CALL_ID = ("call_", 8)


HABITS = OllamaHabits

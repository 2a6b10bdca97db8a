"""Mistral's habits: ids of calls have nine characters."""

from __future__ import annotations

from penstock.testing.wires.habits import VendorHabits


class MistralHabits(VendorHabits):
    """The words of a refusal are text."""

    CALL_ID = ("", 9)


HABITS = MistralHabits

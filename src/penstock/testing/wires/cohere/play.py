"""Cohere's habits: ids of responses are UUIDs, and those of calls begin with the name of the tool."""

from __future__ import annotations

from typing import ClassVar

from penstock.testing.wires.habits import VendorHabits


class CohereHabits(VendorHabits):
    """The words of a refusal are text."""

    REASONS: ClassVar = {"error": "ERROR"}

    def response_id(self) -> str:
        letters = super().response_id()
        return "-".join((letters[:8], letters[8:12], letters[12:16], letters[16:20], letters[20:]))

    def call_id(self, name: str) -> str:
        return self.random.id(f"{name}_", 12)


HABITS = CohereHabits

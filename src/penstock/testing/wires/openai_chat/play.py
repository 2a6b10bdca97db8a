"""OpenAI's habits on Chat Completions: every chunk names its service tier, and is padded."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.testing.wires.habits import VendorHabits, add_fields
from penstock.testing.wires.randomness import LETTERS


class OpenAIChatHabits(VendorHabits):
    """A refusal has a field of its own."""

    RESPONSE_ID = (29, LETTERS)

    def with_vendor_frames(self, frames: list[bytes]) -> Iterable[bytes]:
        padding = self.random.padding
        return [add_fields(frame, b'"service_tier":"default","obfuscation":"%b"' % padding()) for frame in frames]


HABITS = OpenAIChatHabits

"""Anthropic's habits: thinking is signed, calls say who made them, and a ping follows the first block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from penstock.events import Opaque
from penstock.testing.wires.habits import VendorHabits
from penstock.testing.wires.randomness import LETTERS
from penstock.testing.wires.signatures import CLAUDE

PING = b'event: ping\ndata: {"type":"ping"}\n\n'


class AnthropicHabits(VendorHabits):
    """A refusal is in the stop details."""

    CALL_ID = ("toolu_01", 22)
    RESPONSE_ID = (24, LETTERS)
    REFUSED: ClassVar = "content_filter"
    has_refusal_text = False
    has_items = True
    has_empty_pieces = True
    _has_pinged = False

    def reasoning_states(self, block: int, text: str) -> Iterator[Opaque]:
        yield Opaque(block, "anthropic", "signature", self.random.signature(CLAUDE))

    def call_states(self, block: int) -> Iterator[Opaque]:
        yield Opaque(block, "anthropic", "caller", {"type": "direct"})

    def with_vendor_frames(self, frames: list[bytes]) -> Iterable[bytes]:
        starts = (index for index, frame in enumerate(frames) if frame.startswith(b"event: content_block_start"))
        if not self._has_pinged and (first := next(starts, None)) is not None:
            self._has_pinged = True
            frames.insert(first + 1, PING)
        return frames


HABITS = AnthropicHabits

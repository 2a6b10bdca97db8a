"""OpenAI's habits on the Responses API: reasoning is encrypted beside its summary, and deltas are padded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.events import Error, Opaque
from penstock.testing.wires.habits import VendorHabits, add_fields
from penstock.testing.wires.randomness import HEX
from penstock.testing.wires.signatures import OPENAI


class OpenAIResponsesHabits(VendorHabits):
    """A refusal has a part of its own."""

    RESPONSE_ID = (50, HEX)
    has_items = True

    def reasoning_states(self, block: int, text: str) -> Iterator[Opaque]:
        summary = [{"type": "summary_text", "text": text}]
        secret = self.random.signature(OPENAI)
        item = {"type": "reasoning", "summary": summary, "encrypted_content": secret}
        yield Opaque(block, "openai-responses", "reasoning", item)

    def failed_end(self) -> Error | None:
        return Error("The response failed.", "server_error")

    def with_vendor_frames(self, frames: list[bytes]) -> Iterable[bytes]:
        padding = self.random.padding
        return [
            add_fields(frame, b'"obfuscation":"%b"' % padding()) if b".delta\n" in frame[:64] else frame
            for frame in frames
        ]


HABITS = OpenAIResponsesHabits

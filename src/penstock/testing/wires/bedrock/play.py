"""Amazon Bedrock's habits: reasoning of Claude is signed, and every event is padded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from penstock.events import Opaque
from penstock.framing.aws import PRELUDE, encode_frame
from penstock.testing.wires.habits import VendorHabits
from penstock.testing.wires.signatures import CLAUDE

CHECKSUM = 4
"""The bytes of the checksum at the end of a frame."""


class BedrockHabits(VendorHabits):
    """The words of a refusal are text."""

    CALL_ID = ("tooluse_", 22)
    REFUSED: ClassVar = "content_filter"
    REASONS: ClassVar = {"error": "malformed_model_output"}

    def reasoning_states(self, block: int, text: str) -> Iterator[Opaque]:
        yield Opaque(block, "bedrock", "signature", self.random.signature(CLAUDE))

    def with_vendor_frames(self, frames: list[bytes]) -> Iterable[bytes]:
        return map(self._padded, frames)

    def _padded(self, frame: bytes) -> bytes:
        _, length, _ = PRELUDE.unpack(frame[: PRELUDE.size])
        start = PRELUDE.size + length
        headers, payload = frame[PRELUDE.size : start], frame[start:-CHECKSUM]
        if b"exception-type" in headers:
            return frame
        return encode_frame(headers, b'%b,"p":"%b"}' % (payload[:-1], self.random.padding()))


HABITS = BedrockHabits

"""What a vendor adds to its protocol: the format of its ids, what it signs, the words of its ends, and its padding.

The protocol itself is in `penstock.wires`. The habits of each vendor are in the `play` of its folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

from penstock.events import Error, FinishReason, Opaque
from penstock.testing.wires.randomness import HEX, LETTERS, Randomness


class VendorHabits:
    """The habits of one vendor, for one reply."""

    CALL_ID: ClassVar[tuple[str, int]] = ("call_", 24)
    """The prefix and the length of the ids of calls; the length is 0 if the vendor sends none."""
    RESPONSE_ID: ClassVar[tuple[int, str]] = (32, HEX)
    """The length of the id of a response without its prefix, and the characters in it."""
    REFUSED: ClassVar[FinishReason] = "stop"
    """The finish reason of a refusal."""
    has_refusal_text: ClassVar[bool] = True
    """Whether the words of a refusal are part of the answer; if not, they are part of its end."""
    REASONS: ClassVar[Mapping[str, str]] = {}
    """The vendor's words for reasons that encoders do not write."""
    has_items: ClassVar[bool] = False
    """Whether a response may contain items or blocks of the vendor's own."""
    has_empty_pieces: ClassVar[bool] = False
    """Whether the arguments of a call begin with an empty piece."""

    def __init__(self, random: Randomness) -> None:
        self.random = random

    def response_id(self) -> str:
        """The id of the response."""
        return self.random.id("", *self.RESPONSE_ID)

    def call_id(self, name: str) -> str:
        """The id of a call of this tool."""
        prefix, length = self.CALL_ID
        return self.random.id(prefix, length, LETTERS) if length else ""

    def reasoning_states(self, block: int, text: str) -> Iterator[Opaque]:
        """The vendor state after reasoning."""
        yield from ()

    def call_states(self, block: int) -> Iterator[Opaque]:
        """The vendor state of a call."""
        yield from ()

    def last_states(self, block: int) -> Iterator[Opaque]:
        """The vendor state at the end of the response."""
        yield from ()

    def failed_end(self) -> Error | None:
        """The error of a failed response without content; None if a finish reason reports it."""
        return None

    def with_vendor_frames(self, frames: list[bytes]) -> Iterable[bytes]:
        """The frames with the vendor's additions, and the vendor's own frames between them."""
        return frames


def add_fields(frame: bytes, fields: bytes) -> bytes:
    """A frame of server-sent events whose JSON object has these fields as well; an end mark is unchanged."""
    return b"%b,%b}\n\n" % (frame[:-3], fields) if frame.endswith(b"}\n\n") else frame

"""What the framings give: payloads, and what was no payload."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

MAX_FRAME_BYTES = 32 * 1024 * 1024
"""The longest frame that is kept (images come whole, at up to some 20 MB); what is longer is skipped and reported."""


class Frames(Struct, gc=False):
    """Neighbouring frames that bear the same event name, in order: a read's worth, so that work is per read."""

    event: str
    data: list[bytes]


class Stray(Struct, gc=False):
    """Bytes that are no frame; `code` is empty if they are merely odd, and names the fault if something was lost.

    They are foreign if nothing like them stands in a stream of this kind.
    """

    data: bytes
    note: str
    code: str = ""
    is_foreign: bool = False


Framed = Frames | Stray


class Framing(Protocol):
    """A stage from bytes to frames."""

    def feed(self, data: bytes) -> list[Framed]: ...

    def close(self) -> list[Framed]: ...


def add_frame(payload: bytes, out: list[Framed]) -> None:
    """A nameless frame, put to those before it if they are nameless too."""
    last = out[-1] if out else None
    if isinstance(last, Frames) and not last.event:
        last.data.append(payload)
    else:
        out.append(Frames("", [payload]))


def without_line_ends(data: bytes) -> Stray:
    """The report for lines that were read one by one, and are one line now."""
    note = "the lines have lost their ends: use an iterator over bytes (iter_bytes), not over lines"
    return Stray(data[:300], note, "missing_line_ends")


def too_large(data: bytes) -> Stray:
    """The report for a frame that outgrew the cap."""
    return Stray(
        data[:200],
        f"a frame is longer than MAX_FRAME_BYTES ({MAX_FRAME_BYTES} bytes); it was skipped",
        "frame_too_large",
    )

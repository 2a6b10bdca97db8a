"""The name of the model that answered, as the first frames of a response have it."""

from __future__ import annotations

import msgspec
from msgspec import Struct, field

SEARCHED_FRAMES = 8
"""In how many frames at the start of a response the name is looked for; some begin with frames that lack it."""


class _Envelope(Struct):
    model: str | None = None


class _Frame(Struct):
    """The places of the name: in the frame, or in the message or response that it announces."""

    model: str | None = None
    version: str | None = field(name="modelVersion", default=None)
    message: _Envelope | None = None
    response: _Envelope | None = None


_decode = msgspec.json.Decoder(_Frame).decode


class ModelName:
    """Looks for the name in the frames of a response, while it `is_wanted`."""

    __slots__ = ("_frames_left", "is_wanted", "name")

    def __init__(self, name: str | None = None) -> None:
        self.name = name or ""
        self.is_wanted = name is None
        self._frames_left = SEARCHED_FRAMES

    def look(self, payloads: list[bytes]) -> None:
        for payload in payloads[: self._frames_left]:
            self._frames_left -= 1
            self.name = _name_in(payload)
            if self.name:
                break
        self.is_wanted = not self.name and self._frames_left > 0


def _name_in(payload: bytes) -> str:
    """The name of the model in a frame; empty if it has none."""
    try:
        frame = _decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return ""
    envelope = frame.message or frame.response or _Envelope()
    return frame.model or frame.version or envelope.model or ""

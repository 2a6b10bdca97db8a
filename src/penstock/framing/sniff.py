"""Detects the framing of a body by its first bytes, whatever the request had asked for (QUIRKS 102)."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Literal, NoReturn, Protocol

from penstock.errors import UsageError
from penstock.framing.aws import PRELUDE, AWSFrames, looks_like_aws
from penstock.framing.frames import Framed, Framing, Stray
from penstock.framing.json_array import JSONValues
from penstock.framing.ndjson import NDJSON
from penstock.framing.sse import SSE

FramingName = Literal["sse", "ndjson", "aws"]

CLOSED = "this decoder is closed: make a new one for each response"
"""The error for data that is fed to a decoder after its end."""

_BLANK = re.compile(rb"[ \t\r\n]*(?:\xef\xbb\xbf[ \t\r\n]*)*")
_BEGINS_SSE = re.compile(rb"(?:data|event|id|retry|error)?:")
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_ENOUGH = PRELUDE.size  # this many bytes are enough to detect the framing
_MAX_PAGE = 64 * 1024  # how much is kept of a body that is not a stream


class Body:
    """A stage from the bytes of a body to frames: detects the framing, then leaves the work to it.

    `feed` is bound to the framing's own method as soon as it is known, so that a read costs no extra call. After
    `close`, it raises a `UsageError`.
    """

    feed: Callable[[bytes], list[Framed]]
    """Returns the frames that these bytes complete."""
    fast_lane: FastLane
    """Decodes a read that is exactly one frame, of SSE or NDJSON; any other read has to go to `feed`."""

    def __init__(self, usual: FramingName) -> None:
        self._usual: FramingName = usual
        self._first = b""
        self._framing: Framing | None = None
        self.feed = self._sniff
        self.fast_lane = _NO_LANE

    def close(self) -> list[Framed]:
        out = self._choose() if self._first else []
        if self._framing:
            out += self._framing.close()
        self.feed, self.fast_lane = _refuse, _NO_LANE
        return out

    def _sniff(self, data: bytes) -> list[Framed]:
        self._first = _BLANK.sub(b"", self._first + data, count=1)
        return self._choose() if len(self._first) >= _ENOUGH else []

    def _choose(self) -> list[Framed]:
        data, self._first = self._first, b""
        framing = self._use(choose(data, self._usual))
        return self._values(data) if isinstance(framing, JSONValues) else framing.feed(data)

    def _use(self, framing: Framing) -> Framing:
        self._framing = framing
        self.feed = self._values if isinstance(framing, JSONValues) else framing.feed
        self.fast_lane = framing if isinstance(framing, SSE | NDJSON) else _NO_LANE
        return framing

    def _values(self, data: bytes) -> list[Framed]:
        """Reads JSON values until something else follows them, such as an appended `data: [DONE]`."""
        values = self._framing
        assert isinstance(values, JSONValues)
        out = values.feed(data)
        if values.rest:
            out += self._use(SSE()).feed(values.rest)
        return out


class FastLane(Protocol):
    """The fast lane of a framing."""

    event: str
    """The event name of the last single frame."""

    def single_frame(self, data: bytes) -> bytes | None:
        """Returns the payload of a read that is exactly one frame; None for any other, of which nothing was read."""


class _NoLane:
    event = ""

    def single_frame(self, data: bytes) -> None:
        return None


_NO_LANE = _NoLane()


def _refuse(data: bytes) -> NoReturn:
    raise UsageError(CLOSED)


def choose(data: bytes, usual: FramingName) -> Framing:
    """Returns the framing for a body that begins with `data`; `usual` is the one that the wire mostly has."""
    for magic, name in _COMPRESSED.items():
        if data.startswith(magic):
            return Page(f"the body is compressed ({name}): decompress it before feeding it", "compressed")
    if data.startswith(b"<"):
        return Page("the body is HTML or XML, not a stream (check the base URL)", "not_a_stream")
    if looks_like_aws(data):
        return AWSFrames()
    if data.startswith((b"{", b"[")) and not (usual == "ndjson" and data.startswith(b"{")):
        return JSONValues()
    if usual == "sse" or _BEGINS_SSE.match(data):
        return SSE()
    return NDJSON() if usual == "ndjson" else AWSFrames()


class Page:
    """A body that is not a stream: kept up to a cap, and reported once when it ends."""

    def __init__(self, note: str, code: str) -> None:
        self._note = note
        self._code = code
        self._text = bytearray()

    def feed(self, data: bytes) -> list[Framed]:
        self._text += data[: _MAX_PAGE - len(self._text)]
        return []

    def close(self) -> list[Framed]:
        return [Stray(bytes(self._text), self._note, self._code)]

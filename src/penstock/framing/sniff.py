"""Which framing a body has, judged by its first bytes, whatever the request had asked for (QUIRKS 102)."""

from __future__ import annotations

import re
from typing import Literal

from penstock.framing.aws import PRELUDE, AWSFrames, looks_like_aws
from penstock.framing.frames import Framed, Framing, Stray
from penstock.framing.json_array import JSONValues
from penstock.framing.ndjson import NDJSON
from penstock.framing.sse import SSE

FramingName = Literal["sse", "ndjson", "aws"]

_BLANK = re.compile(rb"(?:\xef\xbb\xbf|[ \t\r\n])*")
_BEGINS_SSE = re.compile(rb"(?:data|event|id|retry|error)?:")
_COMPRESSED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd"}
_ENOUGH = PRELUDE.size  # how many bytes settle the question
_MAX_PAGE = 64 * 1024  # how much is kept of a page that is no stream


class Body:
    """Bytes to frames: waits until the first bytes tell the framing, then leaves the work to it."""

    def __init__(self, usual: FramingName) -> None:
        self._usual: FramingName = usual
        self._first = b""
        self._framing: Framing | None = None
        self.stream: SSE | NDJSON | None = None  # the framing, if it is one of these, for the shortcut that they offer
        self.feed = self._sniff

    def close(self) -> list[Framed]:
        out = self._choose() if self._first else []
        return out + self._framing.close() if self._framing else out

    def _sniff(self, data: bytes) -> list[Framed]:
        self._first = _BLANK.sub(b"", self._first + data, count=1)
        return self._choose() if len(self._first) >= _ENOUGH else []

    def _choose(self) -> list[Framed]:
        data, self._first = self._first, b""
        framing = self._use(choose(data, self._usual))
        return self._values(data) if isinstance(framing, JSONValues) else framing.feed(data)

    def _use(self, framing: Framing) -> Framing:
        self._framing = framing
        self.stream = framing if isinstance(framing, SSE | NDJSON) else None
        self.feed = self._values if isinstance(framing, JSONValues) else framing.feed
        return framing

    def _values(self, data: bytes) -> list[Framed]:
        """JSON values, until something else follows them, such as a `data: [DONE]` glued on."""
        values = self._framing
        assert isinstance(values, JSONValues)
        out = values.feed(data)
        if values.rest:
            out += self._use(SSE()).feed(values.rest)
        return out


def choose(data: bytes, usual: FramingName) -> Framing:
    """The framing of a body that begins with `data`."""
    for magic, name in _COMPRESSED.items():
        if data.startswith(magic):
            return Page(f"the body is compressed ({name}): decompress it before feeding it", "compressed")
    if data.startswith(b"<"):
        return Page("the body is a page of markup, not a stream", "not_a_stream")
    if looks_like_aws(data):
        return AWSFrames()
    if data.startswith((b"{", b"[")) and not (usual == "ndjson" and data.startswith(b"{")):
        return JSONValues()
    if usual == "sse" or _BEGINS_SSE.match(data):
        return SSE()
    return NDJSON() if usual == "ndjson" else AWSFrames()


class Page:
    """A body that is no stream: kept up to a cap, and reported once at its end."""

    def __init__(self, note: str, code: str) -> None:
        self._note = note
        self._code = code
        self._text = bytearray()

    def feed(self, data: bytes) -> list[Framed]:
        self._text += data[: _MAX_PAGE - len(self._text)]
        return []

    def close(self) -> list[Framed]:
        return [Stray(bytes(self._text), self._note, self._code)]

"""AWS event-stream frames: length-prefixed, with checksums, big-endian.

    u32 total length | u32 headers length | u32 CRC-32 of these eight bytes | headers | payload | u32 CRC-32 of all
    before

A header is: u8 length of the name, name, u8 type, value. What matters is in the headers: an event's kind is nowhere
else.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Any

import msgspec

from penstock.framing.frames import MAX_FRAME_BYTES, Framed, Frames, Stray, too_large

PRELUDE = struct.Struct(">III")
_OVERHEAD = 16
_MAX_HEADERS = 128 * 1024
_FIXED: dict[int, tuple[int, Callable[[bytes], Any]]] = {
    0: (0, lambda _: True),
    1: (0, lambda _: False),
    2: (1, lambda raw: int.from_bytes(raw, "big", signed=True)),
    3: (2, lambda raw: int.from_bytes(raw, "big", signed=True)),
    4: (4, lambda raw: int.from_bytes(raw, "big", signed=True)),
    5: (8, lambda raw: int.from_bytes(raw, "big", signed=True)),
    8: (8, lambda raw: int.from_bytes(raw, "big", signed=True)),
    9: (16, lambda raw: raw.hex()),
}


class AWSFrames:
    """Bytes to frames, named by their `:event-type` or `:exception-type`.

    After a damaged frame nothing that follows can be trusted, not even where it begins: the rest is let go. A frame
    that is merely too long says where the next one begins.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._to_skip = 0  # what is still to come of a frame that is too long
        self._is_broken = False

    def feed(self, data: bytes) -> list[Framed]:
        out: list[Framed] = []
        if self._is_broken:
            return out
        self._buffer += data[self._to_skip :]
        self._to_skip = max(0, self._to_skip - len(data))
        start = 0
        while len(self._buffer) - start >= PRELUDE.size and not self._is_broken:
            prelude = bytes(self._buffer[start : start + PRELUDE.size])
            total, headers, checksum = PRELUDE.unpack(prelude)
            if fault := _prelude_fault(prelude[:8], total, headers, checksum):
                self._break(prelude, *fault, out)
                break
            if total > MAX_FRAME_BYTES:
                out.append(too_large(prelude))
                self._to_skip = max(0, start + total - len(self._buffer))
            elif len(self._buffer) - start < total:
                break
            else:
                self._message(bytes(self._buffer[start : start + total]), headers, out)
            start += total
        del self._buffer[:start]
        return out

    def close(self) -> list[Framed]:
        if not self._buffer or self._is_broken:
            return []
        cut = Stray(bytes(self._buffer), "an event-stream frame that was cut")
        self._buffer.clear()
        return [cut]

    def _break(self, data: bytes, note: str, code: str, out: list[Framed]) -> None:
        self._is_broken = True
        self._buffer.clear()
        out.append(Stray(data, note, code))

    def _message(self, message: bytes, headers_length: int, out: list[Framed]) -> None:
        if zlib.crc32(message[:-4]) != int.from_bytes(message[-4:], "big"):
            self._break(message[:200], "an event-stream frame fails its checksum", "bad_checksum", out)
            return
        end = PRELUDE.size + headers_length
        headers = parse_headers(message[PRELUDE.size : end])
        if headers is None:
            out.append(Stray(message[:200], "the headers of an event-stream frame cannot be read"))
            return
        out.append(_frame(headers, message[end:-4]))


def _prelude_fault(prelude: bytes, total: int, headers: int, checksum: int) -> tuple[str, str] | None:
    if zlib.crc32(prelude) != checksum:
        return "this is no event-stream frame: its prelude fails its checksum", "bad_checksum"
    if total < _OVERHEAD or headers > total - _OVERHEAD or headers > _MAX_HEADERS:
        return "the lengths in an event-stream frame contradict each other", "bad_length"
    return None


def _frame(headers: dict[str, Any], payload: bytes) -> Frames:
    match headers.get(":message-type"):
        case "exception":
            return Frames(str(headers.get(":exception-type", "exception")), [payload])
        case "error":
            said = {"code": headers.get(":error-code"), "message": headers.get(":error-message")}
            return Frames("error", [msgspec.json.encode(said)])
        case _:
            return Frames(str(headers.get(":event-type", "")), [payload])


def parse_headers(data: bytes) -> dict[str, Any] | None:
    """The headers by name; None if they do not add up."""
    headers: dict[str, Any] = {}
    at = 0
    try:
        while at < len(data):
            end = at + 1 + data[at]
            name, kind, at = data[at + 1 : end].decode(), data[end], end + 1
            if kind in _FIXED:
                size, read = _FIXED[kind]
            else:
                size, read = int.from_bytes(data[at : at + 2], "big"), bytes.decode if kind == 7 else bytes.hex
                at += 2
            if kind > 9 or at + size > len(data):
                return None
            headers[name] = read(data[at : at + size])
            at += size
    except (IndexError, UnicodeDecodeError):
        return None
    return headers


def looks_like_aws(data: bytes) -> bool:
    """Whether these (at least twelve) bytes begin an event-stream frame."""
    if len(data) < PRELUDE.size:
        return False
    return zlib.crc32(data[:8]) == int.from_bytes(data[8:12], "big")

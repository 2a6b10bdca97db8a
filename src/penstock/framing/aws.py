"""The AWS event-stream framing: big-endian, length-prefixed frames with checksums.

    u32 total length | u32 headers length | u32 CRC-32 of these eight bytes | headers | payload
    | u32 CRC-32 of all that precedes it

A header is: u8 length of the name, name, u8 type, value. The type of an event is only in the headers.

A frame of the type `chunk` holds another one, as base64 in `bytes`: an event of the model's own protocol. That event is
the frame; if it is an object under a single key, the key is its name, as models with the events of Converse have it.
"""

from __future__ import annotations

import base64
import binascii
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from penstock.framing.frames import MAX_FRAME_BYTES, Framed, Frames, Stray, too_large

PRELUDE = struct.Struct(">III")
_OVERHEAD = 16  # bytes of a frame besides its headers and payload
_MAX_HEADERS = 128 * 1024
# The header types of a fixed size: the size, and how the value is parsed.
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
    """The decoder of AWS event streams. Frames are named by their `:event-type` or `:exception-type`.

    After a damaged frame the start of the next one is unknown, so the rest of the stream is dropped. A frame that is
    merely too long is skipped: its length says where the next one begins.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._to_skip = 0  # how many bytes of a frame that is too long are still to come
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
        cut = Stray(bytes(self._buffer), "an incomplete event-stream frame at the end of the stream")
        self._buffer.clear()
        return [cut]

    def _break(self, data: bytes, note: str, code: str, out: list[Framed]) -> None:
        self._is_broken = True
        self._buffer.clear()
        out.append(Stray(data, note, code))

    def _message(self, message: bytes, headers_length: int, out: list[Framed]) -> None:
        if zlib.crc32(message[:-4]) != int.from_bytes(message[-4:], "big"):
            self._break(message[:200], "the checksum of an event-stream frame is wrong", "bad_checksum", out)
            return
        end = PRELUDE.size + headers_length
        headers = parse_headers(message[PRELUDE.size : end])
        if headers is None:
            out.append(Stray(message[:200], "the headers of an event-stream frame cannot be read"))
            return
        out.append(_frame(headers, message[end:-4]))


def _prelude_fault(prelude: bytes, total: int, headers: int, checksum: int) -> tuple[str, str] | None:
    if zlib.crc32(prelude) != checksum:
        return "this is not an event-stream frame: the checksum of its prelude is wrong", "bad_checksum"
    if total < _OVERHEAD or headers > total - _OVERHEAD or headers > _MAX_HEADERS:
        return "the lengths in an event-stream frame contradict each other", "bad_length"
    return None


def _frame(headers: dict[str, Any], payload: bytes) -> Frames:
    match headers.get(":message-type"):
        case "exception":
            return Frames(str(headers.get(":exception-type", "exception")), [payload])
        case "error":
            error = {"code": headers.get(":error-code"), "message": headers.get(":error-message")}
            return Frames("error", [msgspec.json.encode(error)])
        case _:
            event = str(headers.get(":event-type", ""))
            return (_event_in(payload) if event == "chunk" else None) or Frames(event, [payload])


class _Chunk(Struct):
    """A frame that holds another one, beside padding."""

    bytes: str


_decode_chunk = msgspec.json.Decoder(_Chunk).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode


def _event_in(payload: bytes) -> Frames | None:
    """The event that a chunk holds; None if it holds something else, which only a wire can tell."""
    try:
        event = base64.b64decode(_decode_chunk(payload).bytes, validate=True)
        fields = _decode_fields(event)
    except (msgspec.MsgspecError, binascii.Error, ValueError, RecursionError):
        return None
    if len(fields) == 1:
        [(name, inner)] = fields.items()
        if bytes(inner).startswith(b"{"):
            return Frames(name, [bytes(inner)])
    return Frames("", [event])


def parse_headers(data: bytes) -> dict[str, Any] | None:
    """Returns the headers by name; None if they are malformed."""
    headers: dict[str, Any] = {}
    position = 0
    try:
        while position < len(data):
            end = position + 1 + data[position]
            name, kind, position = data[position + 1 : end].decode(), data[end], end + 1
            if kind in _FIXED:
                size, parse = _FIXED[kind]
            else:
                size = int.from_bytes(data[position : position + 2], "big")
                parse = bytes.decode if kind == 7 else bytes.hex
                position += 2
            if kind > 9 or position + size > len(data):
                return None
            headers[name] = parse(data[position : position + size])
            position += size
    except (IndexError, UnicodeDecodeError):
        return None
    return headers


def looks_like_aws(data: bytes) -> bool:
    """Whether the data, of at least twelve bytes, begins with an event-stream frame."""
    if len(data) < PRELUDE.size:
        return False
    return zlib.crc32(data[:8]) == int.from_bytes(data[8:12], "big")


def encode_headers(headers: Mapping[str, str]) -> bytes:
    """The headers of a frame, all of the type text."""
    return b"".join(
        b"%c%b\x07%b%b" % (len(name), name.encode(), len(value.encode()).to_bytes(2, "big"), value.encode())
        for name, value in headers.items()
    )


def encode_frame(headers: bytes, payload: bytes) -> bytes:
    """A frame with headers that `encode_headers` wrote."""
    lengths = struct.pack(">II", _OVERHEAD + len(headers) + len(payload), len(headers))
    message = b"%b%b%b%b" % (lengths, zlib.crc32(lengths).to_bytes(4, "big"), headers, payload)
    return message + zlib.crc32(message).to_bytes(4, "big")

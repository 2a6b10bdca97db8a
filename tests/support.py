"""Shared by the tests: vectors, ways to cut a stream, and the comparison of events."""

from __future__ import annotations

import json
import random
import struct
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec

import penstock
from penstock import Reasoning, Refusal, StreamChunk, Text, ToolCallDelta
from penstock.wires import wire_name

HERE = Path(__file__).parent
SHARED = HERE.parent.parent / "shared"
"""Recordings and texts that are not part of the repository; the tests that need them are skipped without them."""
NO_CORPUS = "the recorded corpus is not available: it is not part of the repository"


class Vector(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A stream and its expected turn: one entry of `tests/vectors/<wire>*.json`.

    `frames` are JSON objects, which get the wire's framing, strings, which are sent as they are, or `{"$bytes": hex}`.
    `whole` is the provider's non-streaming body of the same response. Keys that `expected` lacks must be empty.
    """

    name: str
    wire: str
    frames: list[Any]
    expected: dict[str, Any]
    quirks: list[int] = []
    why: str = ""
    tools: list[Any] = []
    whole: dict[str, Any] | None = None

    def body(self) -> bytes:
        return b"".join(frame_bytes(self.wire, frame) for frame in self.frames)


def vectors() -> list[Vector]:
    loaded = []
    for path in sorted((HERE / "vectors").glob("*.json")):
        loaded += msgspec.json.decode(path.read_bytes(), type=list[Vector])
    return loaded


def frame_bytes(wire: str, frame: Any) -> bytes:
    if isinstance(frame, str):
        return frame.encode("utf-8", "surrogatepass")
    if "$bytes" in frame:
        return bytes.fromhex(frame["$bytes"])
    text = json.dumps(frame, ensure_ascii=False, separators=(",", ":"))
    match wire:
        case "ollama":
            return text.encode() + b"\n"
        case "bedrock":
            return aws_frame(frame)
        case "anthropic" | "openai-responses" | "cohere" if "type" in frame:
            return f"event: {frame['type']}\ndata: {text}\n\n".encode()
        case "gemini-interactions" if "event_type" in frame:
            return f"event: {frame['event_type']}\ndata: {text}\n\n".encode()
        case _:
            return f"data: {text}\n\n".encode()


def aws_frame(frame: dict[str, Any]) -> bytes:
    """`{"contentBlockDelta": {…}}`, or `{"exception": "throttlingException", "data": {…}}`, as one binary frame."""
    if "exception" in frame:
        headers = {":message-type": "exception", ":exception-type": frame["exception"]}
        payload = frame["data"]
    else:
        [(event, payload)] = frame.items()
        headers = {":message-type": "event", ":event-type": event, ":content-type": "application/json"}
    return aws_message(headers, json.dumps(payload, separators=(",", ":")).encode())


def aws_message(headers: dict[str, str], payload: bytes) -> bytes:
    """A binary frame with these headers and this payload."""
    head = b"".join(
        bytes([len(name)]) + name.encode() + b"\x07" + struct.pack(">H", len(value)) + value.encode()
        for name, value in headers.items()
    )
    prelude = struct.pack(">II", 16 + len(head) + len(payload), len(head))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + head + payload
    return message + struct.pack(">I", zlib.crc32(message))


def decode_pieces(wire: str, pieces: Iterable[bytes], tools: Any = None) -> list[StreamChunk]:
    decoder = penstock.Decoder(wire_name(wire), tools)
    events: list[StreamChunk] = []
    for piece in pieces:
        events += decoder.feed(piece)
    return events + decoder.close()


def joined(events: Iterable[StreamChunk]) -> list[StreamChunk]:
    """Joins consecutive deltas of one block, so that the events do not depend on how the stream was cut."""
    out: list[StreamChunk] = []
    for event in events:
        last: Any = out[-1] if out else None
        match event:
            case Text() | Reasoning() | Refusal() if type(last) is type(event) and last.block == event.block:
                out[-1] = type(event)(event.block, last.text + event.text, event.choice)
            case ToolCallDelta() if isinstance(last, ToolCallDelta) and last.block == event.block:
                out[-1] = ToolCallDelta(event.block, last.piece + event.piece, event.choice)
            case _:
                out.append(event)
    return out


def pieces_of(data: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(data), size):
        yield data[start : start + size]


def random_pieces(data: bytes, seed: int) -> list[bytes]:
    """The data in random pieces, small and large, with empty ones between them."""
    rng = random.Random(seed)
    pieces, at = [], 0
    while at < len(data):
        size = rng.choice([0, 1, 2, 3, 7, 40, 200, 1500])
        pieces.append(data[at : at + size])
        at += size
    return pieces

"""A fuzzed stream: its frames, each with the frame that an undamaged stream has in its place."""

from __future__ import annotations

import json
import re
from typing import Any, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from tests.fuzz.answers import Answer
from tests.support import aws_message

Kind = Literal["valid", "harmless", "unreadable", "garbled", "repeated", "wild"]
"""What was done to the stream.

`valid`: nothing. `harmless`: keep-alives and unknown things were inserted, which change neither text nor calls.
`unreadable`: frames were replaced by something that cannot be read, so that no other call may come out. `garbled`: a
byte was inserted that is not UTF-8, with the same consequence. `repeated`: a call was sent twice, with the same id.
`wild`: anything; only what holds for every stream is expected.
"""
Style = Literal["usual", "crlf", "unnamed", "body", "array", "escaped"]
"""How the frames become bytes: as the wire does it, or with other line ends, without event names, as one JSON body, as
a JSON array, with all characters escaped."""


class Piece(Struct, frozen=True):
    """A frame, and what the undamaged stream has in its place: the same, another one (`instead_of`), or nothing."""

    frame: Any
    instead_of: Any = UNSET
    is_inserted: bool = False


class Case(Struct, frozen=True):
    """A stream to decode. `answer` is what a valid one says."""

    wire: str
    seed: int
    kind: Kind
    pieces: list[Piece]
    style: Style = "usual"
    origin: str = ""
    answer: Answer | None = None

    @property
    def frames(self) -> list[Any]:
        return [piece.frame for piece in self.pieces]

    @property
    def undamaged(self) -> list[Any]:
        return [
            piece.frame if isinstance(piece.instead_of, UnsetType) else piece.instead_of
            for piece in self.pieces
            if not piece.is_inserted
        ]

    def reads(self) -> list[bytes]:
        """The bytes of each frame."""
        return encode_frames(self.wire, self.frames, self.style)

    def undamaged_body(self) -> bytes:
        return b"".join(encode_frames(self.wire, self.undamaged, self.style))


def plain(frames: list[Any]) -> list[Piece]:
    return [Piece(frame) for frame in frames]


def encode_frames(wire: str, frames: list[Any], style: Style) -> list[bytes]:
    """The bytes of each frame; what was mutated may be any value of JSON."""
    if style == "body":
        return [text_of(frame, style) + b"\n" if not isinstance(frame, str) else raw_bytes(frame) for frame in frames]
    if style == "array":
        marks = [b"[" if at == 0 else b"," for at in range(len(frames))]
        inner = [text_of(frame, style) if not isinstance(frame, str) else b"null" for frame in frames]
        return [*(mark + text for mark, text in zip(marks, inner, strict=True)), b"]"] if frames else [b"[]"]
    return [encode_frame(wire, frame, style) for frame in frames]


def encode_frame(wire: str, frame: Any, style: Style) -> bytes:
    if isinstance(frame, str):
        return raw_bytes(frame)
    if isinstance(frame, dict) and "$bytes" in frame:
        return _from_hex(frame["$bytes"])
    if wire == "bedrock":
        return _aws(frame, style)
    text, line_end = text_of(frame, style), b"\r\n" if style == "crlf" else b"\n"
    if wire == "ollama":
        return text + line_end
    named = wire in ("anthropic", "openai-responses", "cohere", "gemini-interactions") and style != "unnamed"
    field = "event_type" if wire == "gemini-interactions" else "type"
    kind = frame.get(field) if isinstance(frame, dict) else None
    is_name = named and isinstance(kind, str) and kind.isprintable()
    event = b"event: " + raw_bytes(str(kind)) + line_end if is_name else b""
    return event + b"data: " + text + line_end * 2


def _from_hex(text: Any) -> bytes:
    return bytes.fromhex(text) if isinstance(text, str) and re.fullmatch(r"([0-9a-f]{2})*", text) else b"\xff\x00"


def _aws(frame: Any, style: Style) -> bytes:
    name, payload = next(iter(frame.items())) if isinstance(frame, dict) and len(frame) == 1 else ("chunk", frame)
    headers = {":message-type": "event", ":event-type": name[:200], ":content-type": "application/json"}
    if isinstance(frame, dict) and isinstance(frame.get("exception"), str):
        headers, payload = {":message-type": "exception", ":exception-type": frame["exception"]}, frame.get("data")
    headers = {key: raw_bytes(value).decode("utf-8", "replace") for key, value in headers.items()}
    return aws_message(headers, text_of(payload, style))


def text_of(value: Any, style: Style) -> bytes:
    return raw_bytes(json.dumps(value, ensure_ascii=style == "escaped", separators=(",", ":")))


def raw_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def describe(case: Case) -> str:
    """The case as it can be pasted into a test or a vector."""
    lines = [f"wire {case.wire}, seed {case.seed}, {case.kind}, {case.style} {case.origin}".rstrip()]
    for piece in case.pieces:
        note = " (inserted)" if piece.is_inserted else ""
        if not isinstance(piece.instead_of, UnsetType):
            note = f" (instead of {json.dumps(piece.instead_of)})"
        lines.append(f"  {json.dumps(piece.frame)}{note}")
    return "\n".join(lines)


def without_piece(case: Case, start: int, end: int) -> Case:
    return msgspec.structs.replace(case, pieces=case.pieces[:start] + case.pieces[end:])

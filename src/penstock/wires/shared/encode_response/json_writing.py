"""JSON that is written in pieces: strings by themselves, and objects around text that is JSON already."""

from __future__ import annotations

import json
from typing import Any

import msgspec

encode_json = msgspec.json.Encoder().encode
"""Encodes a value; raises for what `as_json_value` would replace."""

_LINE_BREAKS = str.maketrans("\r\n", "  ")


def quote(text: str) -> bytes:
    """A JSON string. A lone surrogate, which UTF-8 does not have, is escaped."""
    try:
        return encode_json(text)
    except UnicodeEncodeError:
        return json.dumps(text).encode()


class PieceWriter:
    """Writes frames that differ only in a piece of text: `before` and `after` are the bytes around it."""

    __slots__ = ("_append", "after", "before")

    def __init__(self, out: list[bytes], before: bytes, after: bytes) -> None:
        self._append = out.append
        self.before = before
        self.after = after

    def __call__(self, piece: str) -> None:
        self._append(self.before + quote(piece) + self.after)


def raw_json(text: str) -> msgspec.Raw:
    """Text that is strict JSON already, as a value with its own spelling, but on one line: a line is a frame."""
    return msgspec.Raw(text.translate(_LINE_BREAKS).strip().encode())


def split_around(frame: Any, mark: str = "\x00") -> tuple[bytes, bytes]:
    """The JSON before and after the string `mark` in a frame: a template into which quoted text is put."""
    before, _, after = encode_json(frame).partition(quote(mark))
    return before, after


def sse(frame: Any) -> bytes:
    """A frame of a stream of server-sent events without names."""
    return b"data: " + encode_json(frame) + b"\n\n"


def named_sse(frame: dict[str, Any]) -> bytes:
    """A frame whose event is named after its type."""
    return b"event: " + str(frame["type"]).encode() + b"\ndata: " + encode_json(frame) + b"\n\n"

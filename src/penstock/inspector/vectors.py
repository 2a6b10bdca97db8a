"""Converts an exchange to a test vector: its frames and the expected turn."""

from __future__ import annotations

from typing import Any

import msgspec

from penstock.inspector.entries import Entry, FrameEntry, OddEntry, Requested, Responded
from penstock.inspector.frame_reader import GENERAL


def vector(entries: list[Entry], turn: Any) -> dict[str, Any]:
    """The vector of the last response of an exchange; `turn` is the decoded response.

    It has the form of the files in tests/vectors, and lacks only a good name.
    """
    last = max((index for index, entry in enumerate(entries) if isinstance(entry, Requested | Responded)), default=0)
    wire = next((entry.wire for entry in reversed(entries) if isinstance(entry, Requested)), GENERAL)
    frames = [_frame(entry) for entry in entries[last:] if isinstance(entry, FrameEntry)]
    quirks = sorted({entry.quirk for entry in entries[last:] if isinstance(entry, OddEntry) and entry.quirk})
    return {"name": "name-me", "wire": wire, "quirks": quirks, "frames": frames, "expected": _expected(turn)}


def _frame(entry: FrameEntry) -> Any:
    """A frame as an object if encoding it gives the same bytes, else as text."""
    if entry.name == ":":
        return f"{entry.text}\n\n"
    if entry.name == "?":
        return entry.text
    try:
        value = msgspec.json.decode(entry.text)
    except (msgspec.MsgspecError, ValueError):
        return f"data: {entry.text}\n\n"
    is_named = isinstance(value, dict) and entry.name in ("", value.get("type"))
    return value if is_named else f"event: {entry.name}\ndata: {entry.text}\n\n"


def _expected(turn: Any) -> dict[str, Any]:
    expected: dict[str, Any] = {}
    for name in ("text", "reasoning", "refusal"):
        if value := getattr(turn, name):
            expected[name] = value
    if turn.tool_calls:
        expected["tool_calls"] = [
            {"id": call.id, "name": call.name, "arguments": call.arguments} for call in turn.tool_calls
        ]
    if turn.invalid_calls:
        expected["invalid_calls"] = [{"id": call.id, "name": call.name, "why": call.why} for call in turn.invalid_calls]
    if turn.unknown:
        expected["unknown"] = len(turn.unknown)
    if turn.error is not None:
        expected["error"] = turn.error.message
    return {**expected, "finish_reason": turn.finish_reason}

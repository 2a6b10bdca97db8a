"""Frames that do not have the narrow shape of their wire, as plain JSON."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from penstock.calls.arguments import repeats_keys
from penstock.jsontext.event_surrogates import EventSurrogateJoiner
from penstock.jsontext.leading import object_end
from penstock.jsontext.scan import MAX_DEPTH, is_too_deep
from penstock.wires.shared.keep_alive import is_keep_alive
from penstock.wires.shared.loose import has_object_arguments, keep_repeated_keys
from penstock.wires.shared.reports import Reports

UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""The exceptions of decoding a frame; UnicodeDecodeError is a ValueError."""


class LooseFrames:
    """Parses frames as plain JSON. `surrogates` joins the halves of characters, once a frame has had one.

    `rest` is what followed the object of the last frame: a loss, to be reported when the object was read.
    """

    def __init__(self, reports: Reports, *, has_object_arguments: bool) -> None:
        self.surrogates: EventSurrogateJoiner | None = None
        self.rest = b""
        self._reports = reports
        self._has_object_arguments = has_object_arguments

    def parse(self, payload: bytes) -> Any:
        """Parses a frame, with raw control characters; reports it and returns None if it is not JSON."""
        may_repeat_keys = self._has_object_arguments or has_object_arguments(payload)
        if len(payload) <= 2 * MAX_DEPTH:  # too short to be too deep
            try:
                value = msgspec.json.decode(payload)
            except UNREADABLE:
                pass
            else:
                if not isinstance(value, dict) or not may_repeat_keys or not repeats_keys(payload.decode(), value):
                    return value
        text = payload.decode()
        if is_too_deep(text):
            self._reports.hole(text, f"a frame nested deeper than MAX_DEPTH ({MAX_DEPTH})")
            return None
        try:
            hook = keep_repeated_keys if may_repeat_keys else None
            value = json.loads(text, strict=False, object_pairs_hook=hook)
        except UNREADABLE:
            return self._parse_leading(payload, text)
        if self.surrogates is None and "\\ud" in text.lower():
            self.surrogates = EventSurrogateJoiner()
        return value

    def _parse_leading(self, payload: bytes, text: str) -> Any:
        """Parses the object at the start of a frame that is not JSON; reports the frame if there is none."""
        if end := object_end(payload):
            value = self.parse(payload[:end])
            self.rest = payload[end:]
            return value
        if not is_keep_alive(text):
            self._reports.hole(text, "a frame that is not JSON")
        elif text.strip():
            self._reports.keep_alive(text)
        return None

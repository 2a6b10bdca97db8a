"""Frames that do not have the narrow shape of their wire, as plain JSON."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from penstock.calls.arguments import repeats_keys
from penstock.jsontext.event_surrogates import EventSurrogateJoiner
from penstock.jsontext.leading import object_end
from penstock.jsontext.scan import MAX_DEPTH, is_too_deep
from penstock.wires.shared.decode_response.keep_alive import is_keep_alive
from penstock.wires.shared.decode_response.loose import has_object_arguments, keep_repeated_keys
from penstock.wires.shared.decode_response.reports import Reports

UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)
"""The exceptions of decoding a frame; UnicodeDecodeError is a ValueError."""


class MoreThanJSON(Exception):
    """A frame continues after its object, which ends at `end`. `Wire` reads the object and reports the rest."""

    def __init__(self, end: int) -> None:
        super().__init__(end)
        self.end = end


class LooseFrames:
    """Parses frames as plain JSON. `surrogates` joins the halves of characters, once a frame has had one."""

    def __init__(self, reports: Reports, *, has_object_arguments: bool) -> None:
        self.surrogates: EventSurrogateJoiner | None = None
        self._reports = reports
        self._has_object_arguments = has_object_arguments

    def parse(self, payload: bytes) -> Any:
        """Parses a frame, with raw control characters; reports it and returns None if it is not JSON.

        Raises `MoreThanJSON` for a frame that continues after an object.
        """
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
            self._report_unreadable(payload, text)
            return None
        if self.surrogates is None and "\\ud" in text.lower():
            self.surrogates = EventSurrogateJoiner()
        return value

    def _report_unreadable(self, payload: bytes, text: str) -> None:
        if end := object_end(payload):
            raise MoreThanJSON(end)
        if not is_keep_alive(text):
            self._reports.hole(text, "a frame that is not JSON")
        elif text.strip():
            self._reports.keep_alive(text)

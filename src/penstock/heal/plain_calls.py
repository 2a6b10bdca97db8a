"""Whether the calls in the frames of a Chat Completions stream are as the protocol says, so that every SDK reads them.

Only such frames are passed on as they came. This is stricter than it has to be: what is not, is decoded and encoded.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

_PIECE = re.compile(rb'(.*"arguments"\s*:\s*")[^"\\]*(".*)', re.DOTALL)
_CALLS, _LEGACY = b"tool_calls", b"function_call"


class PlainCalls:
    """The calls of one stream so far: for each choice, how many there are. Some clients take only whole calls."""

    def __init__(self, *, only_whole: bool = False) -> None:
        self._only_whole = only_whole
        self._counts: dict[int, int] = {}
        self._pieces = 0  # pieces of arguments so far
        self._starts = 0  # starts of calls so far
        self._before = self._after = b""  # the bytes around the arguments in the last frame that had only these

    @property
    def waits_for_end(self) -> bool:
        """Whether frames are held until the end: an encoder that writes only whole calls would write them again."""
        return self._only_whole and self._starts > 0

    def accepts(self, frame: bytes) -> bool:
        """Whether the calls in a frame begin and continue as the protocol says."""
        if _CALLS not in frame and _LEGACY not in frame:
            return True
        before, after = self._before, self._after
        if before and frame.startswith(before) and frame.endswith(after):
            piece = frame[len(before) : -len(after)]
            if b'"' not in piece and b"\\" not in piece:
                return True
        pieces, starts = self._pieces, self._starts
        is_accepted = self._reads(frame)
        is_piece = is_accepted and self._pieces - pieces == 1 and self._starts == starts
        learned = _PIECE.fullmatch(frame) if is_piece else None
        self._before, self._after = (learned[1], learned[2]) if learned else (b"", b"")
        return is_accepted

    def accepts_body(self, _body: bytes) -> bool:
        """Whether a body that is not streamed is right: the report of its habits says so."""
        return True

    def _reads(self, frame: bytes) -> bool:
        lines = [line[5:] for line in frame.splitlines() if line.startswith(b"data:")]
        try:
            choices = msgspec.json.decode(b"\n".join(lines))["choices"]
            return all(self._accepts_choice(choice) for choice in choices)
        except (msgspec.MsgspecError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return False

    def _accepts_choice(self, choice: dict[str, Any]) -> bool:
        delta: dict[str, Any] = choice.get("delta") or {}
        calls = delta.get("tool_calls")
        if delta.get("function_call") or choice.get("message"):
            return False
        if not isinstance(calls, list | None):
            return False
        return all(self._accepts_call(choice["index"], call) for call in calls or ())

    def _accepts_call(self, choice: int, call: dict[str, Any]) -> bool:
        count, index, function = self._counts.get(choice, 0), call["index"], call.get("function")
        if type(index) is not int or not isinstance(function, dict):
            return False
        if not isinstance(function.get("arguments"), str | None):
            return False
        if call.get("id"):  # it begins
            self._counts[choice] = count + 1
            self._starts += 1
            return index == count and isinstance(call["id"], str) and bool(function.get("name"))
        self._pieces += 1
        return not self._only_whole and index == count - 1 and not function.get("name")

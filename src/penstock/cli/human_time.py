"""Times as people say them, and durations as people write them."""

from __future__ import annotations

import re
import time

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])", re.ASCII)
_STEPS = ((60, 1, "second"), (3600, 60, "minute"), (86_400, 3600, "hour"), (14 * 86_400, 86_400, "day"))


def duration_text(seconds: float) -> str:
    """A duration in its largest unit: `3 minutes`."""
    for limit, unit, name in _STEPS:
        if seconds < limit:
            count = max(int(seconds // unit), 0)
            return f"{count} {name}{'' if count == 1 else 's'}"
    return f"{int(seconds // 604_800)} weeks"


def ago(at: float, now: float) -> str:
    """How long ago a time was: `3 minutes ago`; the date if that is longer than two weeks."""
    if now - at < 1:
        return "now"
    if now - at < 14 * 86_400:
        return f"{duration_text(now - at)} ago"
    return time.strftime("%d %b %Y", time.localtime(at))


def parse_duration(text: str) -> float | None:
    """The seconds of `45s`, `10m`, `12h`, `30d` or `2w`; None if it is none of these."""
    match = _DURATION.fullmatch(text.strip())
    return float(match[1]) * _UNITS[match[2]] if match else None

"""The delay that a provider asks for before the next attempt: `Retry-After` in all its forms, and Google's `RetryInfo`.

Servers and proxies send anything here, so that nothing in this module raises: what cannot be read is no delay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

MAX_DELAY = 30 * 24 * 3600.0
"""Longer delays in seconds count as this: timers of some systems cannot wait much longer."""
_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_DURATION = re.compile(
    r"(\d+(?:\.\d*)?|\.\d+)(?:e\+?(\d{1,3}))?"
    r"\s*(ms|[smhd]?)(?:ec(?:ond)?s?|in(?:ute)?s?|ours?|ays?)?\s*",
    re.ASCII,
)


def retry_delay(headers: Mapping[str, str], body: Any, now: float) -> float | None:
    """The delay in seconds that the provider asks for, if any; `now` is the time of day, for a date."""
    values = {name.lower(): value for name, value in headers.items()}
    milliseconds = _seconds(values.get("retry-after-ms", ""))
    if milliseconds:
        return min(milliseconds / 1000, MAX_DELAY)
    for read in (_seconds, lambda text: _until(text, now)):
        if (seconds := read(values.get("retry-after", ""))) is not None:
            return seconds
    return body_delay(body)


def body_delay(body: Any) -> float | None:
    """The delay in an error body: the `retryDelay` of a `google.rpc.RetryInfo`."""
    for detail in _details(body):
        match detail.get("retryDelay", detail.get("retry_delay")):
            case str(text):
                return _seconds(text)
            case {"seconds": seconds}:
                return _seconds(str(seconds))
            case int() | float() as seconds:
                return _seconds(str(seconds))
    return None


def _details(body: Any) -> Iterator[dict[str, Any]]:
    match body:
        case [first, *_]:
            yield from _details(first)
        case {"error": {"details": list(details)}} | {"details": list(details)}:
            yield from (detail for detail in details if isinstance(detail, dict))


def _seconds(text: str) -> float | None:
    """A number of seconds, or a duration with units such as "1m30s"; of a list, the first."""
    text, seconds, position = text.split(",")[0].strip().lower(), 0.0, 0
    while match := _DURATION.match(text, position):
        number, exponent, unit = match.groups()
        if not unit and len(match[0]) < len(text):  # only a single number has no unit
            return None
        seconds += min(float(f"{number}e{exponent or 0}"), MAX_DELAY * 1000) * _UNITS[unit]
        position = match.end()
    return min(seconds, MAX_DELAY) if text and position == len(text) else None


def _until(text: str, now: float) -> float | None:
    """The seconds until a date; one without a time zone is in UTC."""
    for parse in (parsedate_to_datetime, datetime.fromisoformat):
        try:
            date = parse(text.strip())
            date = date.replace(tzinfo=UTC) if date.tzinfo is None else date
            return min(max(0.0, date.timestamp() - now), MAX_DELAY)
        except (ValueError, TypeError, IndexError, OverflowError, OSError):
            continue
    return None

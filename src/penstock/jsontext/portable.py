"""Values from outside, converted to values that can be written as JSON again (QUIRKS 50)."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from penstock.jsontext.surrogates import join_surrogates

_MAX_TEXT = 10_000


def as_json_value(value: Any) -> Any:
    """Returns the value if it can be written as JSON, else its nearest equivalent.

    Surrogates are joined or replaced, NaN and infinities become strings. What JSON cannot hold at all becomes text.
    """
    try:
        encoded = msgspec.json.encode(value)
    except (ValueError, TypeError, RecursionError):  # surrogates and huge integers are a ValueError
        return _converted(value) if _is_dumpable(value) else as_text(value)
    is_exact = b"null" not in encoded or _is_dumpable(value, allow_nan=False)  # msgspec encodes NaN as null
    return value if is_exact else _converted(value)


def as_text(value: Any) -> str:
    """The beginning of `str(value)`, with surrogates joined."""
    try:
        return join_surrogates(str(value)[:_MAX_TEXT])
    except RecursionError:
        return "a value that is nested too deeply"
    except ValueError:  # Python converts only integers of some thousand digits
        return "a value with an integer that is too long"


def _is_dumpable(value: Any, *, allow_nan: bool = True) -> bool:
    try:
        json.dumps(value, allow_nan=allow_nan)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _converted(value: Any) -> Any:
    return json.loads(join_surrogates(json.dumps(value, ensure_ascii=False)), parse_constant=str)

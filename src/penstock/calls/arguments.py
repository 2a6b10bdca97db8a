"""Parses a call's arguments strictly, and, if that fails, finds the fault and the arguments that were probably meant.

Repaired arguments are labelled and never make a call valid. They are looked for only at the end of the call: tried
earlier, any of these repairs would break valid streams (QUIRKS 38).
"""

from __future__ import annotations

import json
import math
from decimal import Decimal, DecimalException
from typing import Any

import msgspec

from penstock.events import Fault
from penstock.jsontext.controls import lenient_json
from penstock.jsontext.meter import is_complex
from penstock.jsontext.partial import PartialJSON
from penstock.jsontext.portable import as_json_value
from penstock.jsontext.scan import MAX_DEPTH, is_too_deep

MAX_ARGUMENTS = 8 * 1024 * 1024
"""How many characters of arguments a call may have; the rest is dropped, and the call is invalid (`too_large`)."""
MAX_ARGUMENT_VALUES = 200_000
"""How many values arguments may have, as `jsontext.meter` counts them; a call with more is invalid (`too_large`)."""
_LARGE = 128 * 1024  # the size from which it may take long to decode arguments

Diagnosis = tuple[Fault, str, dict[str, Any] | None]
"""The fault, a message, and the repaired arguments if they are clear."""

WITHOUT_ARGUMENTS = ("", "null", '"null"')
"""The texts that stand for the empty object, white space removed (QUIRKS 32-34)."""

_lenient = json.JSONDecoder(strict=False)


def strict_object(raw: str) -> dict[str, Any] | None:
    """Parses a strict JSON object, None if it is not one; see also `WITHOUT_ARGUMENTS`."""
    if raw.strip(" \t\r\n") in WITHOUT_ARGUMENTS:
        return {}
    if are_complex(raw):
        return None
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return checked_object(raw, value)


def are_complex(raw: str) -> bool:
    """Whether arguments have too many values: nothing else could happen while they are decoded."""
    if len(raw) <= _LARGE:
        return False
    return is_complex(raw.encode("utf-8", "surrogatepass"), MAX_ARGUMENT_VALUES, MAX_ARGUMENTS)


def checked_object(raw: str, value: Any) -> dict[str, Any] | None:
    """The value of JSON text if it is an object that can be arguments, else None."""
    # The depth at which a parser gives up differs between Python versions.
    if not isinstance(value, dict) or is_too_deep(raw) or repeats_keys(raw, value):
        return None
    return with_fractions(raw, value)


def with_fractions(raw: str, value: dict[str, Any]) -> dict[str, Any]:
    """The value of JSON text, in which a number that is not an integer is not rounded to one.

    The float nearest to `4.0000000000000000001` is 4.0, which a schema accepts as an integer. It becomes the next float
    that is not one; from 2**52 on there is none.
    """
    may_have_fractions = "." in raw or "e-" in raw or "E-" in raw
    if not may_have_fractions or not _has_whole_floats(value):
        return value
    exact: dict[str, Any] = _decode_exactly(raw)
    return exact


def _has_whole_floats(value: dict[str, Any]) -> bool:
    pending: list[Any] = [value]
    while pending:
        container = pending.pop()
        for item in container.values() if isinstance(container, dict) else container:
            if isinstance(item, float) and item.is_integer():
                return True
            if isinstance(item, dict | list):
                pending.append(item)
    return False


def _exact_float(text: str) -> float:
    number = float(text)
    if not number.is_integer():
        return number
    try:
        written = Decimal(text)
    except DecimalException:  # an exponent out of range
        return number
    if written == number:
        return number
    beside = math.nextafter(number, math.inf if written > number else -math.inf)
    return number if beside.is_integer() else beside


_decode_exactly = msgspec.json.Decoder(float_hook=_exact_float).decode


def repeats_keys(raw: str, value: dict[str, Any]) -> bool:
    """Whether an object of the text has a key twice: then the text has more colons than its value.

    Colons in strings are in both, unless the text escapes them.
    """
    colons = raw.count(":")
    if colons == len(value):
        return False
    spelled = msgspec.json.encode(value)
    if spelled == raw.encode("utf-8", "surrogatepass") or ("\\u003" not in raw and colons == spelled.count(b":")):
        return False
    return repeated_key(raw) is not None


def repeated_key(text: str) -> str | None:
    """The first key that an object in JSON text has twice; None if there is none, or if the text is not JSON."""
    repeated: list[str] = []

    def check(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        fields = dict(pairs)
        if len(fields) < len(pairs):
            seen = set[str]()
            repeated.extend(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        return fields

    try:
        json.loads(text, strict=False, object_pairs_hook=check)
    except (ValueError, RecursionError):
        return None
    return repeated[0] if repeated else None


def diagnose(raw: str, last_piece: str | None) -> Diagnosis:
    """Finds out why the text is not a strict JSON object, and which object was probably meant.

    `last_piece` is the last piece if every piece began with the previous one, else None.
    """
    if are_complex(raw):
        return "too_large", f"the arguments have more than MAX_ARGUMENT_VALUES ({MAX_ARGUMENT_VALUES}) values", None
    text = lenient_json(raw.strip())
    if is_too_deep(text):
        return "malformed", f"the arguments are nested deeper than MAX_DEPTH ({MAX_DEPTH})", None
    try:
        value, end = _lenient.raw_decode(text)
    except ValueError as error:
        return _cumulative(raw, last_piece) or _cut(text) or ("malformed", f"the arguments are not JSON: {error}", None)
    except RecursionError:
        return "malformed", "the arguments are nested too deeply", None
    first, rest = text[:end], text[end:].strip()
    if not isinstance(value, dict):
        return _cumulative(raw, last_piece) or _not_an_object(value)
    repaired = _portable(value)
    if rest:
        return _copies(repaired, first, text) or _cumulative(raw, last_piece) or _trailing(repaired, rest)
    if (key := repeated_key(text)) is not None:
        return "duplicate_keys", f"an object in the arguments has the key {key[:100]!r} twice", None
    return _loose_object(repaired, value)


def _portable(value: dict[str, Any]) -> dict[str, Any] | None:
    """The object with lone surrogates replaced; None if JSON cannot hold it (a number out of range, too deep)."""
    try:
        json.dumps(value, allow_nan=False)
    except (ValueError, RecursionError):
        return None
    portable = as_json_value(value)
    return portable if isinstance(portable, dict) else None


def _cut(text: str) -> Diagnosis | None:
    view = PartialJSON()
    view.feed(text)
    if view.error or view.is_complete or not text.startswith("{"):
        return None
    return "cut", "the JSON of the arguments is incomplete", None  # QUIRKS 47


def _copies(repaired: dict[str, Any] | None, first: str, text: str) -> Diagnosis | None:
    count, remainder = divmod(len(text), len(first))
    if repaired is not None and not remainder and first * count == text:  # QUIRKS 36
        return "duplicated", f"the arguments were sent {count} times", repaired
    return None


def _cumulative(raw: str, last_piece: str | None) -> Diagnosis | None:
    if last_piece and last_piece != raw and (repaired := strict_object(last_piece)) is not None:  # QUIRKS 37
        return "cumulative", "each piece of the arguments repeats all earlier ones", repaired
    return None


def _trailing(repaired: dict[str, Any] | None, rest: str) -> Diagnosis:
    if rest.strip('"') and (rest.startswith(("{", "[")) or _is_json(rest)):
        return (
            "malformed",
            "the arguments are several JSON values in a row",
            None,
        )  # QUIRKS 40: it is not clear which one is meant
    return "trailing_text", f"the arguments are followed by {rest[:40]!r}", repaired  # QUIRKS 44


def _loose_object(repaired: dict[str, Any] | None, value: dict[str, Any]) -> Diagnosis:
    if repaired is None:
        return "malformed", "the arguments contain a number that JSON does not have or that is out of range", None
    if repaired is not value:
        return "malformed", "the arguments contain a lone surrogate", repaired
    return "control_characters", "the arguments contain raw control characters in strings", repaired  # QUIRKS 41


def _not_an_object(value: Any) -> Diagnosis:
    if isinstance(value, str):  # QUIRKS 43
        try:
            inner = json.loads(value)
        except (ValueError, RecursionError):
            inner = None
        if isinstance(inner, dict) and (repaired := _portable(inner)) is not None:
            return "double_encoded", "the arguments are a JSON string that contains the JSON object", repaired
    return "not_an_object", f"the arguments are a JSON {type(value).__name__}, not an object", None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True

"""Indexes of blocks, calls and choices: small numbers that are not negative.

Any other number is not an index, but a label like a text: it only tells things apart. Integers that differ by a
multiple of 2**61-1 have the same hash, so that a table of such numbers would take quadratic time.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta

MAX_INDEX = 2**31 - 1
"""The largest index: that of a signed integer of 32 bits."""
Index = Annotated[int, Meta(ge=0, le=MAX_INDEX)]
"""The type of an index in a struct: a frame with another number takes the loose path."""


def as_index(value: Any) -> int | None:
    """The value if it is an index, else None; 1.0 is 1."""
    if isinstance(value, float) and value.is_integer() and abs(value) <= MAX_INDEX:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_INDEX:
        return value
    return None


def as_label(value: Any) -> int | str | None:
    """What tells blocks or calls apart: an index, a text, or another number as a text; else None."""
    if isinstance(value, str) or (index := as_index(value)) is None:
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**64
        return str(value) if is_number or isinstance(value, str) else None
    return index


def take_index(fields: dict[str, Any], key: str) -> int | None:
    """Removes and returns a field if it is an index; else leaves it in place and returns None."""
    index = as_index(fields.get(key))
    if index is not None:
        del fields[key]
    return index

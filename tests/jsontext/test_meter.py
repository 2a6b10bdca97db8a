"""What JSON would cost to decode, measured as its bytes arrive."""

from __future__ import annotations

import json
import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.jsontext.meter import (
    DIGITS_PER_VALUE,
    ESCAPES_PER_VALUE,
    FRACTION,
    LARGE_EXPONENT,
    MAX_DIGITS,
    WIDE_PER_VALUE,
    JSONMeter,
)
from tests.growth import assert_linear

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text('a\\"[{,:é\n'),
    lambda inner: st.lists(inner) | st.dictionaries(st.text('a\\"]}'), inner),
)


def signs(value: Any) -> int:
    """The commas, colons and opening brackets of a value in JSON, and what its numbers count for."""
    if isinstance(value, list):
        return 1 + max(0, len(value) - 1) + sum(map(signs, value))
    if isinstance(value, dict):
        return 1 + max(0, len(value) - 1) + len(value) + sum(map(signs, value.values()))
    if isinstance(value, float):
        number, _, exponent = repr(value).partition("e")
        is_large = len(exponent.lstrip("+-")) > 2
        return FRACTION * (("." in number) + bool(exponent)) + LARGE_EXPONENT * is_large
    return len(str(abs(value))) // DIGITS_PER_VALUE if type(value) is int else 0


def depth(value: Any) -> int:
    if isinstance(value, list | dict):
        return 1 + max((depth(one) for one in (value.values() if isinstance(value, dict) else value)), default=0)
    return 0


def measure(*pieces: bytes) -> JSONMeter:
    meter = JSONMeter()
    for piece in pieces:
        meter.feed(piece)
    return meter


@given(values, st.randoms(use_true_random=False), st.booleans())
def test_values_and_depth_do_not_depend_on_cuts_and_content(value: Any, chance: random.Random, is_ascii: bool) -> None:
    body = json.dumps(value, ensure_ascii=is_ascii, indent=chance.choice([None, 1])).encode()
    cuts = sorted(chance.randrange(len(body) + 1) for _ in range(chance.randrange(6)))
    meter = measure(*(body[start:end] for start, end in pairwise([0, *cuts, len(body)])))
    assert meter.depth == depth(value)
    assert meter._values == signs(value)
    assert not meter.is_long


@pytest.mark.parametrize("text", ['"\\\\"', '"\\\\\\""', '"\\\\\\\\"', '"\\u005c"', '"\\\\u0022,["', '"a\\nb\\\\",[]'])
def test_every_cut_through_escapes_is_the_same(text: str) -> None:
    body = f"[{text},1]".encode()
    whole = measure(body)
    for cut in range(len(body)):
        meter = measure(body[:cut], body[cut:])
        assert (meter.values, meter.depth) == (whole.values, whole.depth), cut


@pytest.mark.parametrize(("digits", "is_long"), [(MAX_DIGITS, False), (MAX_DIGITS + 1, True), (5000, True)])
def test_long_numbers_are_found_across_cuts(digits: int, is_long: bool) -> None:
    body = b"[" + b"7" * digits + b',"' + b"8" * 5000 + b'"]'
    assert measure(body).is_long is is_long
    assert measure(*(bytes([byte]) for byte in body)).is_long is is_long


def test_escapes_count_as_values() -> None:
    assert measure(b'"' + rb"\n" * 1000 + b'"').values == 1000 // ESCAPES_PER_VALUE


@pytest.mark.parametrize("number", ["5e-324", "1.5E+300", "-0.25e7", "7" * 399, "0." + "7" * 300])
def test_slow_numbers_count_for_more_wherever_they_are_cut(number: str) -> None:
    body = f"[{number},{number}]".encode()
    whole = measure(body)
    assert whole.values > 2
    for cut in range(len(body)):
        assert measure(body[:cut], body[cut:]).values == whole.values, cut


def test_text_that_is_not_ascii_counts_for_more() -> None:
    words = b"word " * 20_000
    pieces = [b'{"a":"', *[words] * 10, "\U0001f600".encode(), words, b'","b":"', words, b'"}']
    assert measure(*pieces).values in range(11 * len(words) // WIDE_PER_VALUE, 12 * len(words) // WIDE_PER_VALUE)
    assert measure(b'{"a":"', *[words] * 10, b'"}').values < 5


@pytest.mark.parametrize(
    "unit", [b"[],", b'"",', rb'"\\",', b"text, text: ", b'{"a":', b"1,", b"7" * 399 + b",", b"0." + b"7" * 399 + b","]
)
def test_the_time_is_linear(unit: bytes) -> None:
    def prepare(size: int) -> Any:
        pieces = [unit * 1000] * size
        return lambda: measure(*pieces)

    assert_linear(prepare, 40)

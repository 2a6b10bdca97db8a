"""Numbers in text, in one form: `1,250.00`, `1.250,00`, `1 250` and `1.25e3` are all `1250`.

A number that can be read in two ways has both forms: `1,250` is also `1.25`. Signs do not count. An amount with two
decimals is also its number of cents, and a percentage also a fraction. Digits in groups, as in a telephone number, are
also one number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal, DecimalException
from functools import lru_cache

MAX_NUMBER = 64
"""The characters of a number in a text that is compared by its value; a longer one is compared as text."""

_TOKEN = re.compile(r"\d+(?:[.,'\u2019_ ]\d+)*(?:e[+-]?\d{1,3})?(?: ?%)?", re.IGNORECASE)
_GROUPS = re.compile(r"\d[\d ()./-]{5,62}\d")
_GROUPED = re.compile(r"\d{1,3}(?:([.,'\u2019_ ])\d{2,3}(?:\1\d{2,3})*)?(?<=\d{3})(?:([.,])(\d+))?")
_DECIMAL = re.compile(r"\d+(?:[.,]\d+)?")
_CENTS = re.compile(r"\d.*[.,]\d\d")
_DIGITS = re.compile(r"\d+")
_ALONE = re.compile(rf"[^\w.,]*({_TOKEN.pattern})[^\w.,]*", re.IGNORECASE)


def numbers_in(text: str) -> Iterator[str]:
    """The numbers in a text, in one form."""
    for token in {*_TOKEN.findall(text)}:
        if len(token) <= MAX_NUMBER:
            yield from forms_of(token)
    for groups in {*_GROUPS.findall(text)}:
        yield _plain("".join(_DIGITS.findall(groups)), "")


def numbers_of(value: str | float) -> frozenset[str]:
    """The forms of an argument value: a number, or a string that is a number and nothing else."""
    if isinstance(value, str):
        if len(value) > MAX_NUMBER:
            return frozenset()
        alone, groups = _ALONE.fullmatch(value), _GROUPS.fullmatch(value.strip(" +("))
        digits = frozenset((_plain("".join(_DIGITS.findall(value)), ""),)) if groups else frozenset[str]()
        return digits if alone is None else forms_of(alone[1]) | digits
    if isinstance(value, int) and abs(value) >= 10**MAX_NUMBER:
        return frozenset()
    form = _form(str(abs(value)))
    return frozenset((form,) if form else ())


@lru_cache(4096)
def forms_of(token: str) -> frozenset[str]:
    """The values that a number in a text may stand for."""
    if token.isdigit():
        return frozenset((_plain(token, ""),))
    number, percent, _ = token.partition("%")
    mantissa, exponent, power = number.strip().casefold().partition("e")
    forms = {_form(reading + exponent + power) for reading in _readings(mantissa)}
    if not exponent and _CENTS.fullmatch(mantissa):
        forms.add(_form("".join(_DIGITS.findall(mantissa))))
    if percent:
        forms |= {_form(f"{form}e-2") for form in forms if form}
    return frozenset(form for form in forms if form)


def _readings(number: str) -> Iterator[str]:
    """The ways to read a number with separators, with a point before its decimals; parts if it is several numbers."""
    is_number = False
    if grouped := _GROUPED.fullmatch(number):
        is_number = True
        separator, point, decimals = grouped.groups()
        if separator is None or point != separator:
            whole = number if point is None else number[: -len(decimals) - 1]
            yield "".join(_DIGITS.findall(whole)) + (f".{decimals}" if point else "")
    if _DECIMAL.fullmatch(number):
        is_number = True
        whole, _, decimals = number.replace(",", ".").partition(".")
        yield f"{whole}.{decimals}"
    if not is_number or " " in number:
        yield from _DIGITS.findall(number)


def _form(number: str) -> str:
    """A number without exponent, leading and trailing zeros; empty if it is not one, or too long."""
    try:
        value = Decimal(number)
    except DecimalException:
        return ""
    if not value.is_finite() or abs(value.adjusted()) > MAX_NUMBER:
        return ""
    whole, _, decimals = f"{value:f}".partition(".")
    return _plain(whole, decimals)


def _plain(whole: str, decimals: str) -> str:
    if not whole.isascii():
        whole = str(int(whole))
    decimals = decimals.rstrip("0")
    return (whole.lstrip("0") or "0") + (f".{decimals}" if decimals else "")

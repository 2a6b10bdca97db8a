"""The columns of rows that one statement writes, as arrays of one type each."""

from __future__ import annotations


class Integers(list[int]):
    """An array of `int8`."""


class Floats(list[float | None]):
    """An array of `float8`."""


class Texts(list[str]):
    """An array of `text`."""


class Blobs(list[bytes]):
    """An array of `bytea`."""

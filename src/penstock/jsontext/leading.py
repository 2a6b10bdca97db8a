"""The JSON object at the start of bytes that go on after it."""

from __future__ import annotations

import json

from penstock.jsontext.scan import SPACE, is_too_deep

_decoder = json.JSONDecoder(strict=False)


def object_end(data: bytes) -> int:
    """Where the JSON object ends with which the data begins; 0 if it does not begin with one that can be read.

    A stream that is cut there has this object, so what follows it must not change it.
    """
    text = data.decode("utf-8", "surrogateescape")
    start = SPACE.match(text).end()  # type: ignore[union-attr]  # it matches the empty string
    if not text.startswith("{", start) or is_too_deep(text):
        return 0
    try:
        end = _decoder.raw_decode(text, start)[1]
        return len(text[:end].encode())
    except (
        ValueError,
        RecursionError,
    ):  # a UnicodeEncodeError is a ValueError: the object has bytes that are not UTF-8
        return 0

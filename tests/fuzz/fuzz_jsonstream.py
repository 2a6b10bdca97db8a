"""Fuzzes the incremental JSON parser: it never raises, and its result agrees with the standard library's.

The first byte of an input selects how the rest is cut.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))
with atheris.instrument_imports(include=["penstock"]):
    from penstock import PartialJSON
    from penstock.jsontext.partial import ValueScanner, is_too_deep
    from tests.sanity import without_lone_surrogates


def refuse(constant: str) -> None:
    raise ValueError(constant)


def check(data: bytes) -> None:
    text = data[1:].decode("utf-8", "surrogatepass" if is_surrogate_safe(data[1:]) else "replace")
    chance = random.Random(data[0] if data else 0)
    view, scanner, at, end = PartialJSON(), ValueScanner(), 0, -1
    while at < len(text):
        size = chance.choice([1, 1, 2, 5, 30])
        piece = text[at : at + size]
        view.feed(piece)
        if end < 0 and (position := scanner.feed(piece)) >= 0:
            end = at + position
        at += size
    view.close()
    assert end == ValueScanner().feed(text)
    check_verdict(view, text, end)


def is_surrogate_safe(data: bytes) -> bool:
    try:
        data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return False
    return True


def check_verdict(view: PartialJSON, text: str, end: int) -> None:
    if is_too_deep(text):
        return
    try:
        expected = json.loads(text, strict=False, parse_constant=refuse)
    except ValueError:
        assert view.error
        assert not view.is_complete
        return
    assert view.is_complete, view.error
    assert view.value == without_lone_surrogates(expected)
    if isinstance(expected, dict | list | str):
        assert not text[end:].strip(" \t\r\n")


def seed(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    samples = [
        '{"a": [1, -2.5e3, true, null], "b": {"c": "d\\n\\u00e9\\ud83d\\ude00"}}',
        '"\\ud83d"',
        "[[[]]]",
        " 12 ",
        '{"": ""}',
    ]
    for number, sample in enumerate(samples):
        (folder / f"sample-{number}").write_bytes(bytes([number]) + sample.encode())


if __name__ == "__main__":
    folders = [Path(argument) for argument in sys.argv[1:] if not argument.startswith("-")]
    if folders and not any(folders[0].glob("sample-*")) and not folders[0].is_file():
        seed(folders[0])
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()

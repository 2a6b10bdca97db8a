"""The quirks of servers by number, read from the tables of docs/quirks.md.

An installed package contains a copy of that page, which the build adds (hatch_build.py).
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from pathlib import Path

import msgspec
from msgspec import Struct

ROW = re.compile(r"^\| (\d+) \|(.*)\|$", re.MULTILINE)
BAR = re.compile(r"(?<!\\)\|")
"""The end of a cell; a bar inside a cell is escaped."""
LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


class Quirk(Struct, frozen=True):
    """A quirk: which servers have it, what they send, and what penstock does."""

    servers: str
    sends: str
    does: str


@cache
def quirk_json() -> bytes:
    """The quirks as JSON, by number."""
    return msgspec.json.encode(quirks())


@cache
def quirks() -> dict[int, Quirk]:
    """The quirks by number."""
    return {int(number): _quirk(cells) for number, cells in ROW.findall(_page())}


def _page() -> str:
    """The page of quirks: the copy in the package, or that of the source checkout."""
    packaged = files("penstock.inspector").joinpath("quirks.md")
    page = packaged if packaged.is_file() else Path(__file__).parents[3] / "docs" / "quirks.md"
    return page.read_text(encoding="utf-8")


def _quirk(row: str) -> Quirk:
    servers, sends, does = (cell.strip().replace("\\|", "|") for cell in BAR.split(row))
    return Quirk(servers, sends, LINK.sub(r"\1", does))

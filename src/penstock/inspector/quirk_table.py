"""The quirks of servers by number, for people who read about one: made from docs/quirks.md."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import msgspec
from msgspec import Struct


class Quirk(Struct, frozen=True):
    """A quirk: which servers have it, what they send, and what penstock does."""

    servers: str
    sends: str
    does: str


@cache
def quirk_json() -> bytes:
    """The quirks as JSON, by number."""
    return files("penstock.inspector").joinpath("quirks.json").read_bytes()


@cache
def quirks() -> dict[int, Quirk]:
    """The quirks by number."""
    return msgspec.json.decode(quirk_json(), type=dict[int, Quirk])

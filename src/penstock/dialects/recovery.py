"""What a dialect does about a call that is broken, if its block may still go on behind it."""

from __future__ import annotations

from penstock.dialects.source import Mismatch, Source


def give_up(source: Source, why: Mismatch) -> None:
    """The open call is broken; nothing is held now."""
    assert source.call is not None
    source.call.fail("malformed", str(why))
    source.call = None
    source.drop()

"""Properties of damaged streams and of random runs that do not hold, and why.

Whoever mends one of them removes it here: a test fails if a property holds on all tried streams of a wire that is
listed for it. On other wires it fails too rarely for that, and is only tolerated.
"""

from __future__ import annotations

from msgspec import Struct


class Known(Struct, frozen=True):
    """Why a property does not hold, and the wires on which nearly every fuzzing shows it."""

    why: str
    wires: list[str] = []


KNOWN: dict[str, Known] = {
    "a cut call without arguments is not whole": Known(
        "arguments after the reason for the end, for a call that had none: decision 43"
    ),
    "calls of a prefix are calls of the whole": Known(
        "an item of Responses that ends again, under another place, with other arguments than it had"
    ),
    "nothing after the end of a call": Known("state for the block of a call comes after the end of the call"),
    "the loose path gives the same": Known(
        "frames without a type, an error beside choices, the order of orphans, a body of which nothing was understood"
    ),
}

KNOWN_OF_RUNS: dict[str, Known] = {}

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
    "calls of a prefix are calls of the whole": Known(
        "a frame that cannot be read after the reason for the end damages a Chat call that has no arguments"
    ),
    "a cut call without arguments is not whole": Known(
        "arguments, or a frame that may have had them, after the reason, for a call that had none: decision 43"
    ),
    "the loose path gives the same": Known(
        "an error beside choices, the order of orphans, the words of the error for a body of which nothing was "
        "understood; a body of damaged frames only"
    ),
}

KNOWN_OF_RUNS: dict[str, Known] = {}

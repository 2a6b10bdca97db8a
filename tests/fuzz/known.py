"""Properties that do not hold yet, and why. The numbers are those of the faults in `tests/faults.md`.

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
        "as with arguments: arguments after the finish reason of a Chat response, or after the final arguments of a "
        "Responses call"
    ),
    "calls of a prefix are calls of the whole": Known(
        "arguments after the finish reason of a Chat response, for a call that had none; the item of a Responses call "
        "after its final arguments"
    ),
    "nothing after the end of a call": Known("state for the block of a call comes after the end of the call"),
    "the loose path gives the same": Known(
        "frames without a type, an error beside choices, the order of orphans, a body of which nothing was understood"
    ),
}

KNOWN_OF_RUNS: dict[str, Known] = {}

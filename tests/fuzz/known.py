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
    "the history is valid": Known(
        "a hosted result without its call, an item of Responses that begins again after its end, state for the block "
        "of a call: `check` refuses them"
    ),
    "nothing after the end of a call": Known("state for the block of a call comes after the end of the call"),
    "the loose path gives the same": Known(
        "frames without a type, an error beside choices, the order of orphans, a body of which nothing was understood"
    ),
}

RUN = ["run"]
"""Stands for the wires of a property that nearly every fuzzing of runs shows."""

KNOWN_OF_RUNS: dict[str, Known] = {
    "the history is valid": Known(
        "with a slow reader, a call of which only the start was read has the result of its early execution, and an "
        "interrupted answer is kept for a deferred call that was not read; a hosted result without its call",
        RUN,
    ),
    "what starts ends": Known("a cancel right after a run was loaded drops the ends of tools that had started before"),
    "the history is what was read": Known("a run that expires and is then cancelled keeps what was not read"),
    "the result is the one that was reported": Known("ids of an interrupted answer are used again", RUN),
    "a call with side effects runs once": Known("ids of an interrupted or withdrawn answer are used again"),
    "results are true": Known("ids of a withdrawn answer are used again"),
}

"""Properties that do not hold yet, and why. The numbers are those of the faults in `tests/faults.md`.

Whoever mends one of them removes it here: a test fails if a property holds on all tried streams of a wire that is
listed for it. On other wires it fails too rarely for that, and is only tolerated.
"""

from __future__ import annotations

from msgspec import Struct

from tests.fuzz.protocols import WIRES


class Known(Struct, frozen=True):
    """Why a property does not hold, and the wires on which nearly every fuzzing shows it."""

    why: str
    wires: list[str] = []


SSE_WIRES = [wire for wire in WIRES if wire not in ("bedrock", "ollama")]

KNOWN: dict[str, Known] = {
    "a cut call without arguments is not whole": Known("1", ["anthropic", "bedrock", "cohere"]),
    "a call that comes twice is one": Known("3", WIRES),
    "what is unknown changes nothing": Known("5, 9", ["anthropic", "bedrock", "openai-responses"]),
    "no call with a hole": Known("6; in Chat Completions also a call that begins after the hole and gets its pieces"),
    "calls are strict": Known("8"),
    "a hole is an error": Known("10", [*SSE_WIRES, "ollama"]),
    "a hole is no plain stop": Known("10", [*SSE_WIRES, "ollama"]),
    "token counts are whole numbers": Known("14: negative counts are taken over"),
    "nothing after the finish": Known("15", [*SSE_WIRES, "ollama"]),
    "calls of a prefix are calls of the whole": Known(
        "pieces after a finish reason, or after the end of a call's block, change a call that a prefix has whole; so "
        "does the item of a Responses call after its final arguments"
    ),
    "the history is valid": Known(
        "a hosted result without its call, an item of Responses that begins again after its end, state for the block "
        "of a call: `check` refuses them"
    ),
    "nothing after the end of a call": Known("4; state for the block of a call"),
    "the loose path gives the same": Known(
        "frames without a type or with an error beside choices; the order of orphans"
    ),
    "a prefix is cut": Known("1"),
}

RUN = ["run"]
"""Stands for the wires of a property that nearly every fuzzing of runs shows."""

KNOWN_OF_RUNS: dict[str, Known] = {
    "the history is valid": Known("4", RUN),
    "an invalid call does not run": Known("4", RUN),
    "the result is the one that was reported": Known("ids of an interrupted answer are used again", RUN),
    "a call with side effects runs once": Known("ids of an interrupted or withdrawn answer are used again"),
    "results are true": Known("ids of a withdrawn answer are used again"),
    "limits hold": Known("a step more after an interrupted answer that is kept", RUN),
}

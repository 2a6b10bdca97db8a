"""Scripts of random runs: the tools, the limits, the answers of the model, and what happens when.

A script has a list of moves. Each move picks one of the inputs that are legal at that moment, so that a script stays
playable when moves are removed from it.
"""

from __future__ import annotations

from random import Random
from typing import Any

from msgspec import Struct

from penstock import (
    Error,
    Finish,
    Limits,
    Refusal,
    Retry,
    StreamChunk,
    Text,
    ToolCall,
    ToolCallClosed,
    ToolCallDelta,
    ToolCallInvalid,
    ToolCallStart,
    Usage,
)
from penstock.events import Fault, FinishReason, SealedBy
from penstock.jsontext.values import canonical_json
from penstock.tools.policy import ToolPolicy
from tests.fuzz.generate import make_case
from tests.fuzz.protocols import WIRES
from tests.support import decode_pieces

MAX_STEPS = 8
"""After this many requests the model only says something."""

FAULTS: list[Fault] = ["malformed", "duplicated", "cumulative", "double_encoded", "control_characters", "trailing_text"]


class Move(Struct, frozen=True):
    """A number that picks one of the legal inputs, and one for what goes with it."""

    choice: float
    detail: int


class Script(Struct, frozen=True):
    """A run to play: everything that chance decides."""

    seed: int
    moves: list[Move]
    answers: list[list[StreamChunk]]
    policies: dict[str, ToolPolicy]
    limits: Limits
    run_repaired: list[Fault] = []
    is_prompt: bool = True  # the reader reads each event at once
    is_logged: bool = False  # the run has a log, from which it is rebuilt
    has_crashes: bool = False  # at each boundary between two inputs, a copy of the run dies and is continued
    read_size: int = 100  # how many chunks come at once after the last move
    has_hooks: bool = False  # hooks decide on each step


def make_script(seed: int) -> Script:
    """The script of this seed."""
    chance = Random(f"run {seed}")
    answers = [random_chunks(chance) for _ in range(chance.choice([1, 2, 3, 4]))]
    moves = [Move(chance.random(), chance.randrange(1000)) for _ in range(chance.choice([5, 20, 60, 120]))]
    limits = Limits(
        steps=chance.choice([None, 1, 2, 50]), calls=chance.choice([None, None, None, 1, 3]),
        tokens=chance.choice([None, None, 10, 1000]), repeats=chance.choice([None, 1, 10]),
    )  # fmt: skip
    repaired = chance.sample(FAULTS, chance.choice([0, 0, 2, 6]))
    return Script(
        seed,
        moves,
        answers,
        random_policies(chance),
        limits,
        repaired,
        is_prompt=seed % 2 == 0,
        is_logged=seed % 4 >= 2,
        has_crashes=seed % 16 in (2, 3),
        has_hooks=seed % 32 >= 16,
    )


def random_policies(chance: Random) -> dict[str, ToolPolicy]:
    def check(arguments: dict[str, Any]) -> dict[str, Any]:
        if "n" in arguments:
            raise ValueError("no n, please")
        return arguments

    return {
        "look": ToolPolicy(start="closed", is_read_only=True, retries=chance.choice([None, 0, 2])),
        "write": ToolPolicy(start=chance.choice(["call", "turn"]), check=chance.choice([None, check])),
        "shell": ToolPolicy(
            start=chance.choice(["call", "turn"]), parallel=False, timeout=1.0, is_idempotent=chance.random() < 0.3
        ),
        "ask": ToolPolicy(
            start=chance.choice(["call", "turn", "closed"]), check=chance.choice([None, check]),
            needs_approval=chance.choice([lambda values: True, lambda values: bool(values), lambda values: 1 / 0 > 1]),
            expires=60.0,
        ),
        "elsewhere": ToolPolicy(
            start=chance.choice(["call", "turn"]), is_deferred=True,
            needs_approval=chance.choice([False, False, True]),
        ),
    }  # fmt: skip


# Answers.


def random_chunks(chance: Random) -> list[StreamChunk]:
    """The chunks of an answer: decoded from a fuzzed stream, whole or cut, or events in any order."""
    if chance.random() < 0.3:
        return scrambled_chunks(chance)
    case = make_case(chance.choice(WIRES), chance.randrange(10**6))
    body = b"".join(case.reads())
    if chance.random() < 0.2:
        body = body[: chance.randrange(len(body) + 1)]
    return decode_pieces(case.wire, [body])


def scrambled_chunks(chance: Random) -> list[StreamChunk]:
    """Blocks of texts and calls, mixed; calls that change after their arguments closed, that fail, or never end."""
    runs = [random_block(chance, block) for block in range(chance.randrange(5))]
    chunks: list[StreamChunk] = []
    while runs := [run for run in runs if run]:
        chunks.append(chance.choice(runs).pop(0))
        if chance.random() < 0.1:
            others: list[StreamChunk] = [Usage(5, 2), Usage(900, 300), Text(9, "hm"), Error("boom"), Refusal(8, "no")]
            chunks.append(chance.choice(others))
        if chance.random() < 0.03:
            chunks.append(Retry("again"))
            runs = [random_block(chance, block) for block in range(chance.randrange(4))]
    reasons: list[FinishReason] = ["tool_calls", "stop", "length", "cut", "error", "content_filter"]
    reason = chance.choices(reasons, [4, 1, 1, 1, 1, 1])[0]
    return [*chunks, Finish(reason)] if chance.random() < 0.9 else chunks


def random_block(chance: Random, block: int) -> list[StreamChunk]:
    """The events of one block, in the order in which decoders give them."""
    if chance.random() < 0.2:
        return [Text(block, "hm"), Text(block, "yes")]
    id, name = (
        f"c{chance.choice([block, block, 0])}",
        chance.choice(["look", "look", "write", "ask", "nothing", "shell", "elsewhere"]),
    )
    values: list[dict[str, Any]] = [{}, {"city": "Rome"}, {"city": "Oslo"}, {"n": 1}]
    arguments = chance.choice(values)
    raw = canonical_json(arguments)
    chunks: list[StreamChunk] = [ToolCallStart(block, id, name), ToolCallDelta(block, raw)]
    chunks += [
        ToolCallClosed(block, id, name, chance.choice([arguments, arguments, *values]))
        for _ in range(chance.choice([0, 1, 1, 1, 2]))
    ]
    why: Fault = chance.choice([*FAULTS, "cut", "unnamed"])
    sealed_by: SealedBy = chance.choice(["call_end", "whole", "finish", "done"])
    match chance.randrange(10):
        case 0 | 1:
            chunks.append(ToolCallInvalid(block, id, name, raw, why, repaired=chance.choice([None, arguments])))
            if chance.random() < 0.2:  # a block that comes back to life, which it must not
                chunks += [ToolCallDelta(block, raw), ToolCallClosed(block, id, name, arguments)]
                chunks.append(ToolCall(id, name, arguments, raw, sealed_by=sealed_by, block=block))
        case 2:
            return chunks[: chance.randrange(len(chunks)) + 1]
        case _:
            chunks.append(ToolCall(id, name, arguments, raw, sealed_by=sealed_by, block=block))
    return chunks


LAST: list[StreamChunk] = [Text(0, "All done."), Usage(3, 2), Finish("stop")]

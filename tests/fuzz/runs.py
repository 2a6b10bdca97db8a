"""Fuzzes the machine of a run: any answers, tools that end in any way, decisions, cancels, limits, a process that dies.

python -m tests.fuzz.runs --seconds 60
python -m tests.fuzz.runs --seed 657    # one run again, made smaller
"""

from __future__ import annotations

import argparse
import random
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator

import msgspec

from penstock import StreamChunk, ToolCall, ToolCallClosed, ToolCallDelta, ToolCallStart
from tests.fuzz.run_crashes import CrashingPlayer
from tests.fuzz.run_player import Player
from tests.fuzz.run_scripts import Script, make_script
from tests.fuzz.run_watch import Broken


def broken_property(script: Script, counts: Counter[str] | None = None) -> tuple[str, str, list[str]] | None:
    """The property that does not hold for a script, what was seen, and the inputs up to there."""
    player = CrashingPlayer(script) if script.has_crashes else Player(script)
    try:
        player.play()
    except Broken as broken:
        return broken.name, broken.seen, player.inputs
    except Exception:  # noqa: BLE001  # that is what is looked for
        return "never raises", traceback.format_exc(limit=-5), player.inputs
    finally:
        if counts is not None:
            counts["runs"] += 1
            counts["boundaries"] += player.boundaries
            counts["crashes"] += player.crashes
    return None


# Smaller scripts.


def shrink(script: Script, name: str) -> Script:
    """A smaller script in which the same property does not hold."""
    tries, is_smaller = 0, True
    while is_smaller and tries < 1_500:
        is_smaller = False
        for candidate in _smaller(script):
            tries += 1
            found = broken_property(candidate)
            if found is not None and found[0] == name:
                script, is_smaller = candidate, True
                break
    return script


def _smaller(script: Script) -> Iterator[Script]:
    replace = msgspec.structs.replace
    for size in (32, 8, 1):
        for at in range(0, len(script.moves), size):
            yield replace(script, moves=script.moves[:at] + script.moves[at + size :])
    for number, answer in enumerate(script.answers):
        if len(script.answers) > 1:
            yield replace(script, answers=script.answers[:number] + script.answers[number + 1 :])
        for size in (8, 1):
            for at in range(0, len(answer), size):
                answers = [*script.answers]
                answers[number] = answer[:at] + answer[at + size :]
                if _is_orderly(answers[number]):
                    yield replace(script, answers=answers)


def _is_orderly(chunks: list[StreamChunk]) -> bool:
    """Whether every call has a start."""
    blocks = {chunk.block for chunk in chunks if isinstance(chunk, ToolCallStart)}
    calls = [chunk for chunk in chunks if isinstance(chunk, ToolCallDelta | ToolCallClosed | ToolCall)]
    return all(call.block in blocks for call in calls)


# Many scripts.


def first_failures(seeds: Iterable[int]) -> tuple[dict[str, Script], Counter[str]]:
    """The first script for each property that does not hold.

    And how many runs were tried, how many boundaries between two inputs, and how many crashes.
    """
    found: dict[str, Script] = {}
    counts = Counter[str]()
    for seed in seeds:
        script = make_script(seed)
        if broken := broken_property(script, counts):
            found.setdefault(broken[0], script)
    return found, counts


def explain(script: Script, name: str) -> str:
    """A script in which a property does not hold, made smaller, and what was seen."""
    small = shrink(script, name)
    broken = broken_property(small)
    assert broken is not None
    lines = [
        f"{name!r} does not hold: {broken[1]}", f"{small.limits} {small.run_repaired}",
        *(f"  {name}: {policy}" for name, policy in small.policies.items()), *broken[2],
        f"again: python -m tests.fuzz.runs --seed {script.seed}",
    ]  # fmt: skip
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "backslashreplace").decode()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int)
    options = parser.parse_args()
    if options.seed is not None:
        found, _ = first_failures([options.seed])
        sys.stdout.writelines(explain(script, name) for name, script in found.items())
        sys.exit(bool(found))
    sys.exit(fuzz(options.seconds))


def fuzz(seconds: float) -> bool:
    """Tries runs until the time is over; returns whether a property did not hold."""
    start, seed, counts = time.monotonic(), random.randrange(2**40), Counter[str]()
    reported = set[str]()
    while time.monotonic() - start < seconds:
        found, tried = first_failures([seed])
        counts += tried
        for name, script in found.items():
            if name not in reported:
                reported.add(name)
                sys.stdout.write(explain(script, name))
                sys.stdout.flush()
        seed += 1
    sys.stdout.write(
        f"{counts['runs']} runs tried, rebuilt at {counts['boundaries']} boundaries between two inputs, "
        f"crashed and continued at {counts['crashes']}, {len(reported)} faults\n"
    )
    return bool(reported)


if __name__ == "__main__":
    main()

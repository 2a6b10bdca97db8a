"""Fuzzes the decoders: valid streams of every wire, damaged in their structure.

python -m tests.fuzz.streams --seconds 60
python -m tests.fuzz.streams --wire gemini --seed 294    # one case again, made smaller
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterable

from tests.fuzz.cases import Case, describe
from tests.fuzz.generate import make_case, make_recorded_case
from tests.fuzz.properties import broken_properties
from tests.fuzz.protocols import WIRES
from tests.fuzz.recordings import recordings
from tests.fuzz.shrink import shrink


def first_failures(wire: str, seeds: Iterable[int]) -> tuple[dict[str, Case], int]:
    """The first case for each property that does not hold on a wire, and how many cases were tried."""
    found: dict[str, Case] = {}
    count = 0
    for seed in seeds:
        case = make_case(wire, seed)
        count += 1
        for name in broken_properties(case):
            found.setdefault(name, case)
    return found, count


def explain(case: Case, name: str) -> str:
    """A case in which a property does not hold, made smaller, and what was seen."""
    small = shrink(case, lambda candidate: name in broken_properties(candidate))
    seen = broken_properties(small)[name]
    text = f"{name!r} does not hold: {seen}\n{describe(small)}\n{again(case)}\n"
    return text.encode("utf-8", "backslashreplace").decode()


def again(case: Case) -> str:
    """How to try a case again."""
    flag = " --recorded" if case.origin.startswith("recording") else ""
    return f"again: python -m tests.fuzz.streams --wire {case.wire} --seed {case.seed}{flag}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--wire", choices=WIRES)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--recorded", action="store_true", help="the seed is that of a damaged recording")
    options = parser.parse_args()
    wires = [options.wire] if options.wire else WIRES
    if options.seed is None:
        sys.exit(fuzz(wires, options.seconds))
    cases = [case for wire in wires if (case := make_any(wire, options.seed, options.recorded)) is not None]
    found = [explain(case, name) for case in cases for name in broken_properties(case)]
    sys.stdout.writelines(found)
    sys.exit(bool(found))


def make_any(wire: str, seed: int, is_recorded: bool) -> Case | None:
    """The case of this seed; None if it is that of a recording and there are none."""
    if not is_recorded:
        return make_case(wire, seed)
    return make_recorded_case(wire, seed, recordings(wire)) if recordings(wire) else None


def fuzz(wires: list[str], seconds: float) -> bool:
    """Tries cases until the time is over; returns whether a property did not hold."""
    start, seed, count = time.monotonic(), random.randrange(2**40), 0
    reported: dict[tuple[str, str], str] = {}  # wire and property to the command that tries the case again
    while time.monotonic() - start < seconds:
        for wire in wires:
            case = make_any(wire, seed, is_recorded=seed % 4 == 0)
            if case is None:
                continue
            count += 1
            for name in broken_properties(case):
                is_new = (wire, name) not in reported
                reported.setdefault((wire, name), again(case))
                if is_new:
                    sys.stdout.write(explain(case, name))
                    sys.stdout.flush()
        seed += 1
    faults = [f"{name!r}, {command}" for (_, name), command in reported.items()]
    sys.stdout.write("\n".join([f"{count} streams tried on {len(wires)} wires, {len(faults)} faults", *faults, ""]))
    return bool(faults)


if __name__ == "__main__":
    main()

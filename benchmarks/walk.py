"""The functions that a text chunk passes, from the socket to the reader, on six paths: `make walk`.

Each path is walked in a process of its own (`walk_path`), over HTTP on 127.0.0.1, with a provider in another process
that sends one frame per read. The model writes prose with every letter of the alphabet; an agent has a tool, and the
client of the gateway declares five. The count of a path is the median over all texts after the first ones.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from statistics import median_low

from benchmarks.walk_text import WARM_UP

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True)
class Budget:
    """How many functions a text may pass: `goal`, and as long as that is not reached, `ceiling`."""

    goal: int
    ceiling: int

    @property
    def is_met(self) -> bool:
        return self.ceiling <= self.goal


BUDGETS = {
    "sync": Budget(18, 18),
    "async": Budget(18, 18),
    "logged sync": Budget(40, 40),
    "logged async": Budget(40, 40),
    "served": Budget(60, 57),
    "gateway in its lane": Budget(12, 12),
    "gateway out of its lane": Budget(60, 60),
}
"""Lower a ceiling when a path has become shorter; no ceiling may rise."""


@dataclass(frozen=True)
class Frame:
    """A frame of the provider, and the functions that were entered for it, as `thread module name`."""

    text: str
    is_text: bool
    functions: list[str]


@dataclass(frozen=True)
class Walk:
    """What was entered on a path, per frame."""

    frames: list[Frame]

    @property
    def counts(self) -> list[int]:
        """The functions per text, without the first texts."""
        return [len(frame.functions) for frame in self._texts]

    @property
    def of_a_text(self) -> list[str]:
        """The functions of the text with the median count."""
        return sorted(self._texts, key=lambda frame: len(frame.functions))[(len(self._texts) - 1) // 2].functions

    @property
    def _texts(self) -> list[Frame]:
        first = [*self._first_response()]
        return [frame for frame in first if frame.is_text][WARM_UP:]

    @property
    def call(self) -> list[Frame]:
        """The frames of a call: its start, and the pieces of its arguments."""
        return [frame for frame in self._first_response() if "tool_calls" in frame.text][3:6]

    def _first_response(self) -> Iterator[Frame]:
        for frame in self.frames:
            yield frame
            if frame.text == "[DONE]":
                return


def walk(path: str) -> Walk:
    command = [sys.executable, "-m", "benchmarks.walk_path", path]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if run.returncode:
        raise RuntimeError(f"the path {path!r} could not be walked: {run.stderr}")
    frames = json.loads(run.stdout.splitlines()[-1])
    return Walk([Frame(frame["frame"], frame["is_text"], frame["functions"]) for frame in frames])


def walk_all() -> dict[str, Walk]:
    """All paths, side by side: they mostly wait."""
    with ThreadPoolExecutor(len(BUDGETS)) as pool:
        return dict(zip(BUDGETS, pool.map(walk, BUDGETS), strict=True))


def main() -> None:
    walks = walk_all()
    for path, walked in walks.items():
        print(f"{path}: a text passes {median_low(walked.counts)} functions")
        _show(walked.of_a_text)
        print()
    print("A call of a sync agent, per frame:")
    for frame in walks["sync"].call:
        print(f"  {len(frame.functions)} functions for {frame.text}")
        _show(frame.functions, "    ")
    print(f"\n{'functions per text':24} median  least   most  above  files   goal  ceiling")
    for path, walked in walks.items():
        print(f"{path:24} {_row(walked, BUDGETS[path])}")
    print("\nOf all texts after the first ones; above: how many of them pass more than the ceiling.")
    sys.exit(any(median_low(walked.counts) > BUDGETS[path].ceiling for path, walked in walks.items()))


def _row(walked: Walk, budget: Budget) -> str:
    counts = walked.counts
    above = f"{sum(count > budget.ceiling for count in counts) / len(counts):.0%}"
    files = len({function.split()[1] for function in walked.of_a_text})
    numbers = f"{median_low(counts):6} {min(counts):6} {max(counts):6} {above:>6} {files:6} {budget.goal:6}"
    return f"{numbers} {budget.ceiling:8}{'' if budget.is_met else '  goal not reached'}"


def _show(functions: list[str], indent: str = "  ") -> None:
    """One line for each change of thread or module."""
    for (thread, module), group in groupby(functions, key=lambda function: function.split()[:2]):
        print(f"{indent}{thread[:16]:16} {module:36} {', '.join(function.split()[2] for function in group)}")


if __name__ == "__main__":
    main()

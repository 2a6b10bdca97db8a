"""The CPU time of `import penstock` compared to the only library that it needs, and the modules that it loads.

Names are imported on first use, so the first use of the decoder is measured too.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass

from benchmarks.report import Report, Table, say

MEASURE = "import msgspec"
JUDGED = "import penstock"
TARGET = 1.5
SHOWN = ("from penstock import Decoder", 'import penstock; penstock.Decoder("openai-chat")')
UNWANTED = ("aiohttp", "click", "httpx", "httpx2", "pydantic", "rich")
"""Modules that a program that only decodes should not load."""
ROUNDS = 15

_PROBE = """\
import sys, time
before = set(sys.modules)
begin = time.process_time()
{statement}
seconds = time.process_time() - begin
modules = sorted(set(sys.modules) - before)
import json
print(json.dumps({{"seconds": seconds, "modules": modules}}))
"""


@dataclass(frozen=True)
class Import:
    """An import in a new interpreter: its CPU time without the start of the interpreter, and the loaded modules."""

    seconds: float
    modules: tuple[str, ...]

    @property
    def unwanted(self) -> list[str]:
        return sorted({module.partition(".")[0] for module in self.modules}.intersection(UNWANTED))


def measure() -> Report:
    report = Report()
    best = _race(MEASURE, JUDGED, *SHOWN)
    lines = [_line(statement, best, report) for statement in best]
    columns = ["", "CPU ms", "modules", "unwanted among them", "× msgspec"]
    report.tables.append(Table("Import: CPU time in a fresh interpreter, beyond its own start", columns, lines))
    return report


def _line(statement: str, best: dict[str, Import], report: Report) -> list[str]:
    found = best[statement]
    ratio = found.seconds / best[MEASURE].seconds
    report.rows.append(
        {
            "statement": statement,
            "cpu_seconds": found.seconds,
            "ratio": ratio,
            "modules": found.modules,
            "unwanted": found.unwanted,
        }
    )
    if statement != MEASURE and found.unwanted:
        report.missed.append(f"{statement}: it must not load {', '.join(found.unwanted)}")
    return [
        statement,
        f"{found.seconds * 1e3:.1f}",
        str(len(found.modules)),
        ", ".join(found.unwanted) or "none",
        report.judge(statement, ratio, TARGET if statement == JUDGED else None),
    ]


def _race(*statements: str) -> dict[str, Import]:
    """The fastest run of each, in turns. The first round only warms the caches."""
    say(f"import, {len(statements)} statements, {ROUNDS} times each")
    tries: dict[str, list[Import]] = {statement: [] for statement in statements}
    for _ in range(ROUNDS + 1):
        for statement in statements:
            tries[statement].append(_import(statement))
    return {statement: min(found[1:], key=lambda one: one.seconds) for statement, found in tries.items()}


def _import(statement: str) -> Import:
    command = [sys.executable, "-c", _PROBE.format(statement=statement)]
    result = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return Import(result["seconds"], tuple(result["modules"]))

"""Runs benchmarks: `python -m benchmarks [NAME …]`; without a name, all quick ones. See README.md."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks import (
    agent,
    concurrent,
    decode,
    early,
    gateway,
    heal,
    imports,
    log,
    output,
    partial,
    peers,
    serve,
    text,
)
from benchmarks.report import Report

MEASUREMENTS: dict[str, Callable[[], Report]] = {
    "decode": decode.measure,
    "partial": partial.measure,
    "text": text.measure,
    "import": imports.measure,
    "agent": agent.measure,
    "agent-peers": early.measure_peers,
    "concurrent": concurrent.measure,
    "log": log.measure,
    "gateway": gateway.measure,
    "heal": heal.measure,
    "serve": serve.measure,
    "concurrent-peers": concurrent.measure_peers,
    "gateway-peers": gateway.measure_peers,
    "output-peers": output.measure_peers,
    "peers": peers.measure,
}
DEFAULT = ("decode", "partial", "text", "import", "agent", "concurrent", "log", "gateway", "heal", "serve")
"""The benchmarks that install nothing."""


def main() -> int:
    options = _options()
    names = MEASUREMENTS if "all" in options.what else options.what or DEFAULT
    reports: dict[str, Report] = {}
    for name in names:
        reports[name] = MEASUREMENTS[name]()
        print(reports[name], flush=True)
    if options.json:
        rows = {name: report.rows for name, report in reports.items()}
        options.json.write_text(json.dumps({"machine": _machine(), **rows}, indent=1) + "\n")
    missed = _summary("Missed", {name: report.missed for name, report in reports.items()})
    _summary("Not measured", {name: report.skipped for name, report in reports.items()})
    return 1 if missed and not options.no_check else 0


def _summary(title: str, lines: dict[str, list[str]]) -> bool:
    """Prints the lines under a title; returns whether there are any."""
    found = [f"  {name}: {line}" for name, many in lines.items() for line in many]
    print("\n".join([f"{title}:", *found]) if found else f"{title}: nothing")
    return bool(found)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Runs the benchmarks; results are ratios."
    )
    parser.add_argument(
        "what",
        nargs="*",
        metavar="|".join([*MEASUREMENTS, "all"]),
        help=f"what to measure (without it: {', '.join(DEFAULT)}); peers installs each of them under .bench first",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements to FILE")
    parser.add_argument("--no-check", action="store_true", help="exit with 0 even if a target was missed")
    options = parser.parse_args()
    if unknown := set(options.what).difference(MEASUREMENTS, ["all"]):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; use one of {', '.join(MEASUREMENTS)}, all")
    return options


def _machine() -> dict[str, Any]:
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "msgspec": version("msgspec"),
        "orjson": version("orjson"),
    }


if __name__ == "__main__":
    sys.exit(main())

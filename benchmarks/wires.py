"""The wires that are measured."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

import penstock
from benchmarks.report import Report
from penstock.errors import UnknownWireError


def known(wires: Iterable[str], report: Report) -> list[str]:
    """The wires that can be decoded; the report names those that were skipped."""
    faults = {wire: _fault(wire) for wire in wires}
    report.skipped += [f"{wire}, because {fault}" for wire, fault in faults.items() if fault]
    return [wire for wire, fault in faults.items() if not fault]


@cache
def _fault(wire: str) -> str:
    try:
        penstock.Decoder(wire)
    except (UnknownWireError, ImportError) as error:
        return str(error)
    return ""

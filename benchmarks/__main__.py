"""Measure penstock: `python -m benchmarks [decode|partial|import|peers|all] …`; README.md says how to read it."""

from __future__ import annotations

from benchmarks import decode, partial
print(partial.measure())

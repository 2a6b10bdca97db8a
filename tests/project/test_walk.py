"""The paths of a text chunk through the code are short."""

from __future__ import annotations

from statistics import median_low

from benchmarks.walk import BUDGETS, walk_all
from benchmarks.walk_text import PROSE, WARM_UP


def test_a_text_chunk_passes_few_functions_on_each_path() -> None:
    walks = walk_all()
    assert all(len(walked.counts) >= 20 for walked in walks.values())
    longer = {path: walk.of_a_text for path, walk in walks.items() if median_low(walk.counts) > BUDGETS[path].ceiling}
    assert longer == {}


def test_the_text_has_every_letter() -> None:
    counted = PROSE.split()[WARM_UP:]
    assert set("abcdefghijklmnopqrstuvwxyz") <= set("".join(counted).lower())

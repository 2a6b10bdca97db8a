"""The page on scaling has the numbers of its script, and these follow from the unit costs."""

from __future__ import annotations

import pytest

from benchmarks.scaling import COSTS, LOAD, PAGE, page, plan


def test_the_page_has_the_numbers_of_the_script() -> None:
    assert page() in PAGE.read_text(encoding="utf-8"), "python -m benchmarks.scaling --write writes them"


def test_the_plan_follows_from_the_costs() -> None:
    small, large = plan(10_000), plan(100_000)
    per_event = COSTS.drive_micros + LOAD.readers * COSTS.deliver_micros
    assert small.processes == pytest.approx(10_000 * LOAD.events * per_event / 1e6 / LOAD.use, abs=1)
    assert large.processes == pytest.approx(10 * small.processes, rel=0.05)
    assert large.memory_gb == pytest.approx(10 * small.memory_gb, rel=0.05)
    assert large.databases >= small.databases >= 1

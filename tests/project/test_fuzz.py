"""A bounded part of the structure-aware fuzzing; `make fuzz` does more of it, and something else each time."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.budget import sample, share
from tests.fuzz import runs, states, streams
from tests.fuzz.cases import plain
from tests.fuzz.generate import make_case
from tests.fuzz.protocols import WIRES
from tests.fuzz.shrink import shrink

STREAMS = sample(range(400), few=110)
"""The seeds of the streams that are tried on each wire."""
RUNS = share(5_000, 600)
STATES = share(3_000, 1_500)


@pytest.mark.parametrize("wire", WIRES)
def test_the_laws_hold_for_damaged_streams(wire: str, record_property: Any) -> None:
    found, count = streams.first_failures(wire, STREAMS)
    record_property("fuzzed streams", count)
    assert not found, "\n".join(streams.explain(case, name) for name, case in found.items())


def test_the_laws_hold_for_random_runs(record_property: Any) -> None:
    found, counts = runs.first_failures(range(RUNS))
    record_property("fuzzed runs", counts["runs"])
    record_property("boundaries", counts["boundaries"])
    record_property("crashes", counts["crashes"])
    assert counts["crashes"] > RUNS / 2
    assert not found, "\n".join(runs.explain(script, name) for name, script in found.items())


def test_a_changed_state_is_refused_or_its_run_ends_well(record_property: Any) -> None:
    failures, counts = states.first_failures(range(STATES))
    record_property("fuzzed states", counts["tried"])
    assert not failures, f"python -m tests.fuzz.states --seed …: {failures}"
    assert min(counts["refused"], counts["continued"]) > STATES / 10


@pytest.mark.parametrize("wire", WIRES)
def test_a_seed_gives_the_same_case_each_time(wire: str) -> None:
    assert [make_case(wire, seed).reads() for seed in range(30)] == [
        make_case(wire, seed).reads() for seed in range(30)
    ]


def test_a_failing_case_is_made_small() -> None:
    frames = [{"a": number, "b": {"c": "long text"}} for number in range(40)]
    case = msgspec.structs.replace(make_case("openai-chat", 0), kind="wild", pieces=plain(frames))
    small = shrink(case, lambda candidate: any(isinstance(f, dict) and f.get("a") == 33 for f in candidate.frames))
    assert small.frames == [{"a": 33}]

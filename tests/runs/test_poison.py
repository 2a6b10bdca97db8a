"""A run that ends its worker is parked, and all its neighbours are answered."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.chaos.poison import play
from tests.chaos.processes import Setup
from tests.postgres import new_schema

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")


@pytest.mark.parametrize(
    ("kind", "poisons"), [("sqlite", ["read"]), ("sqlite", ["effect", "second"]), ("postgres", ["again"])]
)
def test_a_run_that_ends_its_worker_is_parked_and_its_neighbours_are_answered(
    kind: str, poisons: list[str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    address = request.getfixturevalue("postgres_url") if kind == "postgres" else str(tmp_path / "runs.db")
    setup = Setup(address, new_schema(), str(tmp_path / "ledger"), 1.0)
    outcome = play(setup, poisons, takeovers=2)
    assert outcome.states == {"innocent": {"answered": 20}, "poison": {"parked": len(poisons)}}, outcome

"""Trials: rounds of one kind on one store."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Iterable
from pathlib import Path

from tests.chaos.database import Database
from tests.chaos.processes import Setup
from tests.chaos.round import How, Mode, Round
from tests.chaos.verdict import Verdict, judge
from tests.postgres import drop, new_schema

LEASE = 1.0
"""How many seconds a process owns a run after it last wrote."""

MAX_ROUNDS = 12
"""How many rounds a trial has at most until every point was reached."""


class Trial:
    """Rounds on one store; `url` is that of a PostgreSQL server, or empty for SQLite. A `database` may be hit."""

    def __init__(
        self, url: str, how: How, mode: Mode = "work", mutation: str = "", database: Database | None = None
    ) -> None:
        self._database = database
        self.verdict = Verdict()
        self._url = url
        self._how: How = how
        self._mode: Mode = mode
        self._mutation = mutation

    def play(self, *, hits: int, seed: int, points: Iterable[str] = ()) -> Verdict:
        """Play one round; without hits from outside, as many as it takes to reach all points."""
        left = deque(points)
        for number in range(MAX_ROUNDS):
            verdict = self._play_round(hits, seed * MAX_ROUNDS + number, left)
            self.verdict.add(verdict)
            if not left or verdict.problems or hits:
                break
        else:
            self.verdict.problems.append(f"these points were not reached in {MAX_ROUNDS} rounds: {[*left]}")
        return self.verdict

    def _play_round(self, hits: int, seed: int, points: deque[str]) -> Verdict:
        schema = new_schema() if self._url else "penstock"
        with tempfile.TemporaryDirectory(prefix="penstock-chaos-") as folder:
            address = self._url or str(Path(folder) / "runs.db")
            setup = Setup(address, schema, str(Path(folder) / "ledger"), LEASE, self._mutation)
            try:
                played = Round(
                    setup, how=self._how, mode=self._mode, hits=hits, points=points, seed=seed, database=self._database
                ).play()
                store = setup.open()
                verdict = judge(played, store)
                store.close()
            finally:
                if self._url:
                    drop(self._database.server_url if self._database else self._url, schema)
        reached = [hit.point for hit in played.hits if hit.point]
        points.extendleft(point for point in played.planned if point not in reached)
        return verdict

"""Answers that a log lost before the run took them: no position knows of them, and they can be given again."""

from __future__ import annotations

from collections.abc import Iterator
from operator import methodcaller
from pathlib import Path
from typing import Any

import pytest

from penstock import Agent, ApprovalRequest, Decision, Done, Model, Runs, tool
from penstock.log import PostgresStore, SQLiteStore, Store
from penstock.log.follow import LogReader
from penstock.log.take_up import read_run
from penstock.run.events import LogEvent, Waiting
from penstock.testing import Reply, Scripted, call
from tests.log_stores import open_store


class Desk:
    """An agent that asks before it pays, on a store that can lose answers."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.paid: list[int] = []

        @tool(approval=True)
        def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return "paid"

        def answer(request: Any) -> Reply | str:
            return "Paid." if request.results else Reply(call("pay", {"amount": 3}, id="c1"))

        self.runs = Runs(store, {"desk": Agent(Model("openai:gpt-5", via=Scripted(answer)), tools=[pay], name="desk")})

    def lose_answers(self) -> None:
        """Bring the store back to the moment before the answers."""
        statements = "DELETE FROM {}inputs", "UPDATE {}runs SET state = 'waiting'"
        if isinstance(self.store, SQLiteStore):
            for statement in statements:
                self.store._file.write(methodcaller("execute", statement.format("")), durable=True)
            return
        assert isinstance(self.store, PostgresStore)
        for statement in (*statements, "UPDATE {}runs SET open_inputs = 0"):
            self.store._execute(statement.format("{schema}.") + " RETURNING 1")

    @property
    def questions(self) -> list[str]:
        """The calls that wait for a decision."""
        return [request.call_id for request in read_run(self.store, self.runs.find("r")).waiting]


@pytest.fixture(params=["sqlite", "postgres"])
def desk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Desk]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else ""
    with open_store(request.param, tmp_path, url, lease=10.0) as store:
        yield Desk(store)


def read(reader: LogReader) -> list[LogEvent]:
    return [event for _, _, event in reader.next()]


def test_a_lost_answer_can_be_given_again_and_counts_once(desk: Desk) -> None:
    desk.runs.start("desk", "Pay.", run_id="r")
    assert desk.runs.drive("r").state == "waiting"
    reader = LogReader(desk.store, "r")
    events = read(reader)
    assert any(isinstance(event, ApprovalRequest) for event in events)
    assert isinstance(events[-1], Waiting)
    for _ in range(2):
        assert desk.runs.decide("r", "c1", True)
        assert not desk.runs.decide("r", "c1", True), "it is there"
        assert desk.runs.find("r").state == "ready"
        desk.lose_answers()
        assert read(reader) == [], "the reader has all that the log has"
        assert (desk.runs.find("r").state, desk.questions) == ("waiting", ["c1"])
    assert desk.runs.decide("r", "c1", True)
    assert desk.runs.drive("r").state == "over"
    rest = read(reader)
    assert [event.call_id for event in rest if isinstance(event, Decision)] == ["c1"]
    assert isinstance(rest[-1], Done)
    assert not desk.runs.decide("r", "c1", True)
    assert (desk.paid, desk.questions) == ([3], [])

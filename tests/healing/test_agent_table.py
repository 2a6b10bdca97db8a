"""The published results of coding agents: complete, as on the page, and with a reason for what is wrong."""

from __future__ import annotations

from tests.agents.agents import AGENTS, version
from tests.agents.page import TITLES, missing_columns, read_published, with_tables
from tests.agents.reasons import MISSING, WRONG
from tests.agents.table import COLUMNS, HABIT_ROWS, PAGE, STRICT_ROWS
from tests.habits import ALL_HABITS

PUBLISHED = read_published()
WRITES = "python -m tests.agents --only-write writes it"


def test_the_page_shows_the_published_results() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_tables(page, PUBLISHED), WRITES


def test_every_habit_was_played_to_the_present_version_of_every_agent() -> None:
    assert PUBLISHED.rows == (*ALL_HABITS, *STRICT_ROWS)
    assert {one.agent: one.version for one in PUBLISHED.columns} == {
        name: version(agent) for name, agent in AGENTS.items()
    }
    assert TITLES.keys() == AGENTS.keys()


def test_columns_that_are_missing_have_a_reason() -> None:
    assert missing_columns(PUBLISHED) == []
    assert MISSING.keys() == {(one.agent, one.wire, one.route) for one in COLUMNS if not one.is_possible}
    assert all(MISSING.values())


def test_wrong_cells_through_the_gateway_and_only_they_have_a_reason() -> None:
    wrong = {(one.agent, one.wire, row) for one in PUBLISHED.columns if one.route == "gateway" for row in one.wrong}
    assert wrong == WRONG.keys()
    assert all(WRONG.values())


def test_only_rows_of_the_table_are_wrong() -> None:
    assert {row for one in PUBLISHED.columns for row in one.wrong} <= {*HABIT_ROWS, *STRICT_ROWS}

"""The results of agents: kept after each cell, so that an interrupted run continues, and published as a table."""

from __future__ import annotations

import datetime
import hashlib
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from tests.agents.agents import AGENTS, HERE, ROOT, version
from tests.agents.routes import LITELLM_VERSION, ROUTES
from tests.agents.strict import STRICT
from tests.habits import ALL_HABITS

KEPT = ROOT / ".cache" / "agent-results.json"
"""The results so far, by this machine."""
PUBLISHED = HERE / "results.json"
"""The results that the page shows."""
PAGE = ROOT / "docs" / "agent-table.md"
HABIT_ROWS = (*ALL_HABITS,)
STRICT_ROWS = tuple(f"strict_{provider}" for provider in STRICT)
PROTOCOLS = {
    "openai-chat": "Chat",
    "openai-responses": "Responses",
    "anthropic": "Messages",
    "gemini": "Gemini",
}


class Column(Struct, frozen=True):
    """An agent on one of its wires, and the way to the server."""

    agent: str
    wire: str
    route: str

    @property
    def name(self) -> str:
        return f"{self.agent} {self.wire} {self.route}"

    @property
    def rows(self) -> tuple[str, ...]:
        """Its rows: servers of other protocols are only behind the gateway."""
        return (*HABIT_ROWS, *STRICT_ROWS) if self.route == "gateway" else HABIT_ROWS

    @property
    def is_possible(self) -> bool:
        """Whether the column is measured: not without a way to a server that speaks Chat Completions.

        Through LiteLLM, each agent is measured on its first protocol.
        """
        match self.route:
            case "direct":
                return self.wire == "openai-chat"
            case "litellm":
                return self.wire == AGENTS[self.agent].wires[0]
        return True


COLUMNS = tuple(
    Column(agent.name, agent.wires[place], route)
    for route in ROUTES
    for place in range(max(len(agent.wires) for agent in AGENTS.values()))
    for agent in AGENTS.values()
    if place < len(agent.wires)
)
"""All columns, those that are not measured too; the first protocol of each agent comes first."""


class Cell(Struct, frozen=True):
    """A result: what is wrong (empty if nothing is), when, and of which code."""

    problem: str
    date: str
    code: str


Cells = dict[str, dict[str, Cell]]
"""Results by the name of the column, then by row."""


class Results:
    """The results of this machine. Threads and processes may add to them."""

    def __init__(self, path: Path = KEPT) -> None:
        self._path = path
        self._lock = threading.Lock()
        self.cells = self._read()

    def add(self, column: Column, row: str, problem: str) -> None:
        """Keep a result."""
        import fcntl  # not on Windows, where nothing else of this module is missing

        today = datetime.datetime.now(datetime.UTC).date().isoformat()
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._lock, self._path.with_suffix(".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            self.cells = self._read()
            self.cells.setdefault(column.name, {})[row] = Cell(problem, today, code_of(column.route))
            new = self._path.with_suffix(".new")
            new.write_bytes(msgspec.json.encode(self.cells))
            new.replace(self._path)

    def _read(self) -> Cells:
        return msgspec.json.decode(self._path.read_bytes(), type=Cells) if self._path.exists() else {}

    def has(self, column: Column, row: str) -> bool:
        """Whether there is a result of the present code."""
        cell = self.cells.get(column.name, {}).get(row)
        return cell is not None and cell.code == code_of(column.route)

    def missing(self, column: Column, rows: Sequence[str]) -> list[str]:
        """The rows without a result of the present code."""
        return [row for row in rows if row in column.rows and not self.has(column, row)]


def code_of(route: str) -> str:
    """The code that a result depends on: that of the tests, and through the gateway also ours."""
    if route not in _codes:
        digest = hashlib.sha256()
        for path in _sources(route):
            digest.update(path.read_bytes())
        _codes[route] = digest.hexdigest()[:16]
    return _codes[route]


_codes: dict[str, str] = {}


def _sources(route: str) -> Iterator[Path]:
    yield from (HERE / name for name in ("agents.py", "session.py", "settings.py", "package-lock.json"))
    yield ROOT / "tests" / "habits.py"
    if route == "gateway":
        yield HERE / "strict.py"
        yield from sorted((ROOT / "src" / "penstock").rglob("*.py"))


# The published table.


class PublishedColumn(Struct, frozen=True, kw_only=True):
    """A column as it is published: the rows that are wrong, in a few words."""

    agent: str
    version: str
    wire: str
    route: str
    date: str
    wrong: dict[str, str]

    @property
    def column(self) -> Column:
        return Column(self.agent, self.wire, self.route)


class Published(Struct, frozen=True):
    """The published results."""

    rows: tuple[str, ...]
    litellm: str
    columns: tuple[PublishedColumn, ...]


def publish(results: Results) -> Published:
    """The results of this machine, in the form that is published; columns that are incomplete are left out."""
    columns = [_published(column, results.cells.get(column.name, {})) for column in COLUMNS if column.is_possible]
    rows = (*HABIT_ROWS, *STRICT_ROWS)
    return Published(rows, LITELLM_VERSION, tuple(column for column in columns if column is not None))


def _published(column: Column, cells: dict[str, Cell]) -> PublishedColumn | None:
    if any(row not in cells for row in column.rows):
        return None
    wrong = {row: cells[row].problem.partition(":")[0] for row in column.rows if cells[row].problem}
    return PublishedColumn(
        agent=column.agent, version=version(AGENTS[column.agent]), wire=column.wire, route=column.route,
        date=max(cells[row].date for row in column.rows), wrong=wrong,
    )  # fmt: skip

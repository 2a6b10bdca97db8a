"""The page with the results of agents: `python -m tests.agents --only-write` writes its tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from tests.agents.agents import AGENTS
from tests.agents.reasons import MISSING, WRONG
from tests.agents.table import (
    COLUMNS,
    HABIT_ROWS,
    PAGE,
    PROTOCOLS,
    PUBLISHED,
    STRICT_ROWS,
    Column,
    Published,
    PublishedColumn,
    Results,
    publish,
)
from tests.habits import ALL_HABITS

START, END = "<!-- agents -->", "<!-- end of agents -->"
ROUTES = {"gateway": "through Penstock", "direct": "direct", "litellm": "through LiteLLM"}
TITLES = {
    "codex": "Codex",
    "opencode": "opencode",
    "pi": "pi",
    "claude": "Claude Code",
    "gemini": "Gemini CLI",
    "qwen": "Qwen Code",
    "copilot": "Copilot CLI",
    "cn": "Continue (`cn`)",
    "cline": "Cline",
}
WHAT_HAPPENED = {
    "the agent ended": "E",
    "the agent hung": "H",
    "no file": "F",
    "other bytes": "B",
    "no result": "R",
    "no right answer": "A",
}
"""The letters of wrong cells, by the beginning of the problem; any other problem is an X."""
LEGEND = (
    "✓: the file has the right bytes, and the agent went on with the result. E: the agent ended without running the "
    "call. F: it ran the call, and there is no file. B: the file has other bytes. R: it asked again without a result. "
    "H: it hung. A: it did not get to the answer. X: it came back with a wrong number of results."
)


def write_page(results: Results) -> Path:
    """Write the results that are published, and the tables of the page."""
    published = publish(results)
    PUBLISHED.write_bytes(msgspec.json.format(msgspec.json.encode(published), indent=1) + b"\n")
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), published), encoding="utf-8")
    return PAGE


def read_published() -> Published:
    """The results that are published."""
    return msgspec.json.decode(PUBLISHED.read_bytes(), type=Published)


def with_tables(page: str, published: Published) -> str:
    """The page with the tables of some results."""
    before, after = page.partition(START)[0], page.partition(END)[2]
    return f"{before}{START}\n\n{tables(published)}\n{END}{after}"


def tables(published: Published) -> str:
    """All tables, in Markdown."""
    parts = [
        *_sums(published),
        "## By habit",
        *_by_habit(published),
        *(part for route in ROUTES for part in _by_agent(published, route)),
    ]
    return "\n\n".join(parts) + "\n"


def _sums(published: Published) -> Iterator[str]:
    rows = ["| agent | protocol | direct | through LiteLLM | **through Penstock** |", "|---|---|--:|--:|--:|"]
    by_column = {one.column: one for one in published.columns}
    for agent in AGENTS.values():
        for wire in agent.wires:
            found = {route: by_column.get(Column(agent.name, wire, route)) for route in ROUTES}
            version = next((one.version for one in found.values() if one is not None), "")
            cells = [_sum(found[route], is_possible=Column(agent.name, wire, route).is_possible) for route in ROUTES]
            gateway, direct, litellm = cells
            rows.append(
                f"| {TITLES[agent.name]} {version} | {PROTOCOLS[wire]} | {direct} | {litellm} | **{gateway}** |"
            )
    totals = {route: _total(published, route) for route in ROUTES}
    rows.append(f"| **all** | | {totals['direct']} | {totals['litellm']} | **{totals['gateway']}** |")
    yield "\n".join(rows)
    dates = sorted({one.date for one in published.columns})
    yield (
        f"Cells that are right, of {len(HABIT_ROWS)} habits. Made on {' and '.join(dates)} with LiteLLM "
        f"{published.litellm}. Not measured (–):"
    )
    yield _missing()
    strict = [one for one in published.columns if one.route == "gateway"]
    right = sum(row not in one.wrong for one in strict for row in STRICT_ROWS)
    yield (
        "Behind the gateway were also strict servers of four protocols (Chat Completions, Responses, Messages and "
        f"Gemini), which refuse what their providers would refuse: {right} of {len(strict) * len(STRICT_ROWS)} runs "
        "came to the right answer."
    )
    if WRONG:
        yield "Cells through Penstock that cannot be right:"
        yield "\n".join(f"- {agent} ({PROTOCOLS[wire]}), {row}: {why}" for (agent, wire, row), why in WRONG.items())


def _missing() -> str:
    """The columns that are not there, by reason."""
    by_reason: dict[str, list[str]] = {}
    for (agent, wire, _route), reason in MISSING.items():
        by_reason.setdefault(reason, []).append(f"{TITLES[agent]} ({PROTOCOLS[wire]})")
    return "\n".join(f"- {', '.join(columns)}: {reason}." for reason, columns in by_reason.items())


def _sum(column: PublishedColumn | None, *, is_possible: bool) -> str:
    if column is None:
        return "not run" if is_possible else "–"
    return str(sum(row not in column.wrong for row in HABIT_ROWS))


def _total(published: Published, route: str) -> str:
    columns = [one for one in published.columns if one.route == route]
    right = sum(row not in one.wrong for one in columns for row in HABIT_ROWS)
    return f"{right} of {len(columns) * len(HABIT_ROWS)}"


def _by_habit(published: Published) -> Iterator[str]:
    rows = [
        "| habit | what the server does | direct | through LiteLLM | **through Penstock** |",
        "|---|---|--:|--:|--:|",
    ]
    for habit in HABIT_ROWS:
        counts = {route: _count(published, route, habit) for route in ROUTES}
        what = (ALL_HABITS[habit].__doc__ or "").strip().rstrip(".")
        cells = f"{counts['direct']} | {counts['litellm']} | **{counts['gateway']}**"
        rows.append(f"| {_words(habit)} | {what} | {cells} |")
    yield "\n".join(rows)


def _count(published: Published, route: str, habit: str) -> str:
    columns = [one for one in published.columns if one.route == route]
    return f"{sum(habit not in one.wrong for one in columns)} of {len(columns)}"


def _by_agent(published: Published, route: str) -> Iterator[str]:
    columns = [one for one in published.columns if one.route == route]
    if not columns:
        return
    heads = " | ".join(f"{TITLES[one.agent]}, {PROTOCOLS[one.wire]}" for one in columns)
    rows = [f"| habit | {heads} |", "|---|" + ":-:|" * len(columns)]
    for row in (*HABIT_ROWS, *(STRICT_ROWS if route == "gateway" else ())):
        cells = (_cell(one.wrong.get(row)) for one in columns)
        rows.append(f"| {_words(row)} | {' | '.join(cells)} |")
    yield f"## Each agent {ROUTES[route]}"
    yield LEGEND
    yield "\n".join(rows)


def _cell(problem: str | None) -> str:
    return "✓" if problem is None else WHAT_HAPPENED.get(problem, "X")


def _words(row: str) -> str:
    return row.replace("_", " ")


def missing_columns(published: Published) -> list[str]:
    """The columns that are neither published nor impossible with a reason."""
    known = {one.column for one in published.columns}
    return [one.name for one in COLUMNS if one not in known and (one.agent, one.wire, one.route) not in MISSING]

"""The results of long sessions: kept in a file, and published as a table of the page with the results of agents."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tests.agents.agents import AGENTS, HERE
from tests.agents.page import TITLES
from tests.agents.table import PAGE, PROTOCOLS

PUBLISHED = HERE / "prefix.json"
"""The sessions that the page shows."""
START, END = "<!-- sessions -->", "<!-- end of sessions -->"


class PlayedSession(Struct, frozen=True, kw_only=True):
    """The result of a session. The changes are those of pairs, by their numbers; `broken` are pairs too."""

    agent: str
    version: str
    wire: str
    date: str
    steps: int
    pairs: int
    client_changes: dict[int, str]
    upstream_changes: dict[int, str]
    broken: tuple[int, ...]
    problems: tuple[str, ...]

    @property
    def by_client(self) -> int:
        """How many requests of the client are exact prefixes of its next one."""
        return self.pairs - len(self.client_changes)

    @property
    def by_upstream(self) -> int:
        """The same for the requests that arrived at the server."""
        return self.pairs - len(self.upstream_changes)

    @property
    def in_words(self) -> str:
        return (
            f"{self.agent:10} {self.wire:17} {self.steps:4} steps, {self.pairs:4} pairs; exact prefixes: client "
            f"{self.by_client}, upstream {self.by_upstream}; broken by the gateway: {len(self.broken)}"
        )


def read_sessions() -> list[PlayedSession]:
    """The sessions that are published."""
    return msgspec.json.decode(PUBLISHED.read_bytes(), type=list[PlayedSession]) if PUBLISHED.exists() else []


def publish_sessions(played: Sequence[PlayedSession]) -> Path:
    """Write sessions in place of earlier ones of the same agents, and the table of the page."""
    known = {(one.agent, one.wire): one for one in (*read_sessions(), *map(_short, played))}
    sessions = [known[name, wire] for name, agent in AGENTS.items() for wire in agent.wires if (name, wire) in known]
    PUBLISHED.write_bytes(msgspec.json.format(msgspec.json.encode(sessions), indent=1) + b"\n")
    PAGE.write_text(with_sessions(PAGE.read_text(encoding="utf-8"), sessions), encoding="utf-8")
    return PAGE


def _short(played: PlayedSession) -> PlayedSession:
    """A session without the texts of its requests: they are the client's."""
    changes = (played.client_changes, played.upstream_changes)
    client, upstream = ({number: text.partition(":")[0] for number, text in one.items()} for one in changes)
    return replace(played, client_changes=client, upstream_changes=upstream)


def with_sessions(page: str, sessions: Sequence[PlayedSession]) -> str:
    """The page with the table of some sessions."""
    before, after = page.partition(START)[0], page.partition(END)[2]
    return f"{before}{START}\n\n{_table(sessions)}\n\n{END}{after}"


def _table(sessions: Sequence[PlayedSession]) -> str:
    rows = [
        "| agent | protocol | steps | pairs | exact prefixes before the gateway | behind the gateway | broken by it |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    rows += [
        f"| {TITLES[one.agent]} {one.version} | {PROTOCOLS[one.wire]} | {one.steps} | {one.pairs} | {one.by_client} "
        f"| {one.by_upstream} | **{len(one.broken)}** |"
        for one in sessions
    ]
    sums = (
        sum(one.pairs for one in sessions),
        sum(one.by_client for one in sessions),
        sum(one.by_upstream for one in sessions),
    )
    broken = sum(len(one.broken) for one in sessions)
    rows.append(f"| **all** | | | {' | '.join(map(str, sums))} | **{broken}** |")
    dates = " and ".join(sorted({one.date for one in sessions}))
    return "\n".join(rows) + f"\n\nMade on {dates}."

"""The early start: when the tools of an agent start, and when its next request is sent, while three calls stream.

The server runs here; each agent, ours and those of the peers, runs in its own process (`early_agents`).
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks import peers, process
from benchmarks.early_agents import PREPARE, TOOL
from benchmarks.early_server import WIRE, PunctualServer
from benchmarks.environment import InstallFailed
from benchmarks.peers import HTTPX2, OPENAI, PYDANTIC, Client, Peer
from benchmarks.process import ProcessFailed
from benchmarks.report import Report, Table, say

CLOSED = (0.2, 0.4, 0.6)
"""When the arguments of each call are complete, in seconds after the start of the response."""
END = 1.0
"""When the response ends."""

LATE = 0.02
SECOND = 1.15
PREPARED_SECOND = 1.20
PREPARED = f"default with {PREPARE} s of prepare"

PEERS = (
    Peer(
        "pydantic-ai",
        peers.PYDANTIC_AI,
        (
            Client(WIRE, "pydantic_ai_async", "pydantic-ai, Agent.run_stream_events(), async"),
            Client(WIRE, "pydantic_ai_sync", "pydantic-ai, Agent.run_stream_sync(), sync"),
        ),
    ),
    Peer(
        "openai-agents",
        ("openai-agents==0.24.0", *OPENAI, *HTTPX2, *PYDANTIC),
        (
            Client(WIRE, "openai_agents_async", "openai-agents, Runner.run_streamed(), async"),
            Client(WIRE, "openai_agents_sync", "openai-agents, Runner.run_sync(), sync, no stream"),
        ),
    ),
    Peer(
        "langchain",
        ("langchain==1.4.7", "langchain-openai==1.7.3", *OPENAI, *HTTPX2, *PYDANTIC),
        (
            Client(WIRE, "langchain_async", "langchain, create_agent().astream(), async"),
            Client(WIRE, "langchain_sync", "langchain, create_agent().stream(), sync"),
        ),
    ),
)


@dataclass(frozen=True)
class Policy:
    """A start policy of our agent: whether tools start early, and when the second request should have been sent."""

    function: str
    label: str
    is_early: bool
    second: float | None


OURS = (
    Policy("penstock_read_only_async", "penstock, read-only, async", True, SECOND),
    Policy("penstock_read_only_sync", "penstock, read-only, sync", True, SECOND),
    Policy("penstock_default_async", "penstock, default, async", False, None),
    Policy("penstock_default_sync", "penstock, default, sync", False, None),
    Policy("penstock_prepared_async", f"penstock, {PREPARED}, async", False, PREPARED_SECOND),
    Policy("penstock_prepared_sync", f"penstock, {PREPARED}, sync", False, PREPARED_SECOND),
)


class Trial:
    """One run against the server, with its times in seconds after the start of the response."""

    def __init__(self, python: str | Path, function: str) -> None:
        with PunctualServer(CLOSED, END) as server:
            starts = process.ask(python, "early_agents", function, server.base_url)
        if not len(starts) == server.results == len(CLOSED):
            raise ProcessFailed("it did not run every call once, or did not send every result")
        self.starts = [start - server.began for start in starts]
        self.second = server.second - server.began
        *closed, end = (sent - server.began for sent in server.sent[-len(CLOSED) - 1 :])
        self.closed: Sequence[float] = closed
        self.ended: Sequence[float] = [end] * len(CLOSED)

    def delays(self, moments: Sequence[float]) -> list[float]:
        """The seconds between these times and the starts of the tools."""
        return [start - moment for start, moment in zip(self.starts, moments, strict=True)]


def table(report: Report) -> Table:
    """Our agent: a loop that waits for the end of the stream takes at least `END` + `TOOL`."""
    return _table([_our_line(policy, report) for policy in OURS])


def measure_peers() -> Report:
    """Our agent and those of the peers, each in its own environment."""
    report = Report(notes=["the ms of a peer are counted from the end of the stream"])
    lines = list(table(report).rows)
    for peer in PEERS:
        try:
            python = peers.python_of(peer)
        except InstallFailed as failure:
            report.skipped.append(f"{peer.name}: not installed, {failure}")
            continue
        report.notes.append(f"{peer.name}: {', '.join(peer.requirements)}")
        for client in peer.clients:
            try:
                lines.append(_peer_line(client, python, report))
            except ProcessFailed as failure:
                report.skipped.append(f"{client.label}: {failure}")
    report.tables.append(_table(lines))
    return report


def _our_line(policy: Policy, report: Report) -> list[str]:
    trial = _trial(sys.executable, policy.function, policy.label, report)
    delays = trial.delays(trial.closed if policy.is_early else trial.ended)
    if min(delays) < 0:
        report.missed.append(f"{policy.label}: a tool started {-min(delays) * 1000:.0f} ms too early")
    return [
        policy.label,
        _starts(trial),
        report.judge(f"{policy.label}: ms from closing to start", max(delays) * 1000, LATE * 1000),
        report.judge(f"{policy.label}: second request, seconds", trial.second, policy.second),
    ]


def _peer_line(client: Client, python: Path, report: Report) -> list[str]:
    trial = _trial(python, client.function, client.label, report)
    late = report.judge(client.label, max(trial.delays(trial.ended)) * 1000, None)
    return [client.label, _starts(trial), late, report.judge(client.label, trial.second, None)]


def _trial(python: str | Path, function: str, label: str, report: Report) -> Trial:
    say(f"agent, early start: {label}")
    trial = Trial(python, function)
    report.rows.append({"run": label, "starts": trial.starts, "second_request": trial.second})
    return trial


def _starts(trial: Trial) -> str:
    return " ".join(f"{start:.3f}" for start in trial.starts)


def _table(lines: Sequence[Sequence[str]]) -> Table:
    moments = ", ".join(map(str, CLOSED))
    title = f"Three calls that close at {moments} s in a stream that ends at {END} s, tools of {TOOL} s"
    return Table(title, ["", "tools start at, s", "latest, ms after it might", "second request, s"], lines)

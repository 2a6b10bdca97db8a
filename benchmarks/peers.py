"""The CPU time of the peers on the same bytes, as a multiple of the floor measured in the same process."""

from __future__ import annotations

import json
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.environment import HOME, ROOT, Environment, InstallFailed
from benchmarks.process import variables
from benchmarks.report import Report, Table, say
from benchmarks.streams import FRAMES, READS, standard

HTTPX2 = ("httpx2==2.16.0",)
PYDANTIC = ("pydantic==2.14.3",)
OPENAI = ("openai==3.49.0",)
PYDANTIC_AI = ("pydantic-ai-slim[openai]==2.66.0", *OPENAI, *HTTPX2, *PYDANTIC)
FLOOR = ("orjson==3.13.0",)


@dataclass(frozen=True)
class Client:
    """One way to use a peer: a function of `clients`, and its label in the tables."""

    wire: str
    function: str
    label: str


@dataclass(frozen=True)
class Peer:
    """A library, its requirements, and the ways to use it."""

    name: str
    requirements: Sequence[str]
    clients: Sequence[Client]


PEERS = (
    Peer(
        "penstock",
        ("msgspec==0.22.0", *HTTPX2),
        (
            Client("openai-chat", "httpx2_alone", "httpx2 alone, no decoding"),
            Client("openai-chat", "penstock_on_httpx2", "penstock on httpx2"),
            Client("anthropic", "httpx2_alone", "httpx2 alone, no decoding"),
            Client("anthropic", "penstock_on_httpx2", "penstock on httpx2"),
        ),
    ),
    Peer(
        "openai",
        (*OPENAI, *HTTPX2, *PYDANTIC),
        (
            Client("openai-chat", "openai_create", "openai, create(stream=True)"),
            Client("openai-chat", "openai_stream", "openai, stream()"),
        ),
    ),
    Peer(
        "anthropic",
        ("anthropic==2.8.0", *HTTPX2, *PYDANTIC),
        (
            Client("anthropic", "anthropic_create", "anthropic, create(stream=True)"),
            Client("anthropic", "anthropic_stream", "anthropic, stream()"),
        ),
    ),
    Peer(
        "litellm",
        # Without mcp, completion(tools=…) of this version fails on an import.
        ("litellm==1.106.2", "openai==2.54.0", "httpx==0.28.1", "mcp==2.3.0", *PYDANTIC),
        (Client("openai-chat", "litellm_completion", "litellm, completion(stream=True)"),),
    ),
    Peer(
        "langchain-openai",
        ("langchain-openai==1.7.3", *OPENAI, *HTTPX2, *PYDANTIC),
        (
            Client("openai-chat", "langchain_stream", "langchain-openai, stream()"),
            Client("openai-chat", "langchain_sum", "langchain-openai, sum of stream()"),
        ),
    ),
    Peer(
        "pydantic-ai",
        PYDANTIC_AI,
        (Client("openai-chat", "pydantic_ai_direct", "pydantic-ai, model_request_stream()"),),
    ),
)


def measure() -> Report:
    report = Report()
    for peer in PEERS:
        try:
            python = python_of(peer)
        except InstallFailed as failure:
            report.rows += [_row(peer, client, fault=f"not installed: {failure}") for client in peer.clients]
            continue
        report.notes.append(f"{peer.name}: {', '.join((*peer.requirements, *FLOOR))}")
        for client in peer.clients:
            report.rows += _trial(peer, client, python)
    for wire in dict.fromkeys(row["wire"] for row in report.rows):
        report.tables.append(_table(wire, [row for row in report.rows if row["wire"] == wire]))
    report.notes += [f"{row['client']}, {row['wire']}: {row['fault']}" for row in report.rows if row["fault"]]
    return report


def python_of(peer: Peer) -> Path:
    """The Python of a peer's environment, which is created if necessary."""
    requirements = (*peer.requirements, *FLOOR)
    environment = Environment(peer.name, requirements)
    if not environment.is_ready:
        say(f"{peer.name}: installing {', '.join(requirements)} into {HOME.name}/{peer.name}")
        environment.make()
    return environment.python


def _trial(peer: Peer, client: Client, python: Path) -> Iterator[dict[str, Any]]:
    """One row per stream and way to use the peer, and one for a failure."""
    say(f"peers, {peer.name}: {client.label}, {client.wire}, starting")
    command = [str(python), "-m", "benchmarks.trial", client.function, client.wire]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as errors:
        process = subprocess.Popen(command, cwd=ROOT, env=variables(), stdout=subprocess.PIPE, stderr=errors, text=True)
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                result = json.loads(line)
                step = f"{client.label}, {result['stream']}, {result['way']}"
                say(f"peers, {peer.name}: {step}: {result['ratio']:.1f} × floor")
                yield _row(peer, client, **result, fault="a wrong result" if result["is_right"] is False else "")
        if status := process.wait():
            errors.seek(0)
            output = errors.read().strip().splitlines()[-1:]
            why = "took too long" if status == -signal.SIGALRM else " ".join(output) or f"exit {status}"
            yield _row(peer, client, fault=f"failed: {why}")


def _row(peer: Peer, client: Client, fault: str, **measured: Any) -> dict[str, Any]:
    return {"peer": peer.name, "client": client.label, "wire": client.wire, "fault": fault, **measured}


def _table(wire: str, rows: Sequence[dict[str, Any]]) -> Table:
    cells = {(row["client"], row["stream"], row["way"]): row for row in rows if "ratio" in row}
    names = [stream.name for stream in standard() if stream.wire == wire]
    columns = [(name, way) for way in (FRAMES, READS) for name in names]
    lines = [
        [client, *(_cell(cells.get((client, *column))) for column in columns)]
        for client in dict.fromkeys(row["client"] for row in rows)
    ]
    title = f"Peers on {wire}: CPU time as a multiple of the floor, {FRAMES} and in {READS}"
    return Table(title, ["", *(name if way == FRAMES else f"{name}, 64K" for name, way in columns)], lines)


def _cell(row: dict[str, Any] | None) -> str:
    if row is None:
        return "failed"
    return "wrong" if row["fault"] else f"{row['ratio']:.1f}"

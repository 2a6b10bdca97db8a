"""Structured output: the CPU time per chunk and per step of our agent and of a peer, on the same bytes.

The server runs here; each agent runs in its own process (`output_agents`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import peers, process
from benchmarks.environment import InstallFailed
from benchmarks.peers import Peer
from benchmarks.process import ProcessFailed
from benchmarks.report import Report, Table, say
from penstock import Model, Text
from penstock.testing import Loopback, ReceivedRequest, Reply, Scripted, call

WIRE = "openai-chat"
CHAPTERS = 40
STEPS = 30
SHARE = 0.2
"""The target: the share of the peer's CPU time that ours may take."""

PEER = Peer("pydantic-ai", peers.PYDANTIC_AI, ())


def book(chapters: int) -> dict[str, Any]:
    """An output of about 300 characters per chapter."""
    text = "It was a dark and stormy night; the rain fell in torrents, except at occasional intervals. " * 3
    return {
        "title": "A book",
        "chapters": [{"title": f"Chapter {at}", "words": 45, "text": text} for at in range(chapters)],
    }


LONG, SHORT = book(CHAPTERS), book(1)


def long_answer(request: ReceivedRequest) -> Reply:
    """One answer with a long output."""
    return Reply(json.dumps(LONG))


def many_steps(request: ReceivedRequest) -> Reply:
    """A call in each step, and a short output in the last."""
    done = sum(message["role"] == "tool" for message in request.body["messages"])
    return Reply(call("look", {"place": str(done)})) if done < STEPS else Reply(json.dumps(SHORT))


def chunks_of(reply: Reply) -> int:
    """How many chunks of text a reply has."""
    with Model("openai:gpt-4o", wire="openai-chat", via=Scripted(reply)).stream("Go.") as stream:
        return sum(isinstance(chunk, Text) for chunk in stream)


def measure_peers() -> Report:
    """Our agent and the peer's, each in its own environment."""
    report = Report()
    try:
        python = peers.python_of(PEER)
    except InstallFailed as failure:
        report.skipped.append(f"{PEER.name}: not installed, {failure}")
        return report
    report.notes.append(f"{PEER.name}: {', '.join(PEER.requirements)}")
    chunks = chunks_of(Reply(json.dumps(LONG)))
    size = len(json.dumps(LONG)) // 1000
    rows = [
        _row(f"per chunk, {size} KB in {chunks} chunks", chunks, long_answer, LONG, python, report),
        _row(f"per step, {STEPS} steps", STEPS + 1, many_steps, SHORT, python, report),
    ]
    title = "Structured output with the value so far after each chunk, async: µs of CPU"
    report.tables.append(Table(title, ["", "penstock", PEER.name, f"share, at most {SHARE}"], rows))
    return report


def _row(
    label: str, count: int, answer: Callable[[ReceivedRequest], Reply], expected: Any, python: Path, report: Report
) -> list[str]:
    say(f"output, {label}")
    try:
        ours = _micros(sys.executable, "penstock", answer, expected, count)
        theirs = _micros(python, "pydantic_ai", answer, expected, count)
    except ProcessFailed as failure:
        report.skipped.append(f"{label}: {failure}")
        return [label, "-", "-", "-"]
    report.rows.append({"run": label, "penstock_us": ours, "peer_us": theirs})
    return [label, f"{ours:.1f}", f"{theirs:.1f}", report.judge(label, ours / theirs, SHARE)]


def _micros(
    python: str | Path, function: str, answer: Callable[[ReceivedRequest], Reply], expected: Any, count: int
) -> float:
    with Loopback(answer) as server:
        result = process.ask(python, "output_agents", function, server.base_url(WIRE))
    if result["output"] != expected:
        raise ProcessFailed(f"{function} has another output")
    return float(result["seconds"]) / count * 1e6

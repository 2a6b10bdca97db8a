"""Runs an agent through habits: it is started again after each habit that goes wrong."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.testing import Loopback
from tests.agents.agents import AGENTS, AgentProcess
from tests.agents.routes import ROUTES
from tests.agents.session import Session

IDLE_SECONDS = 120.0
"""An agent that asks for nothing for so long hangs."""
INTERRUPTED = threading.Event()
"""Ends all agents, without a result."""
_OUTPUT = 400


def run_habits(name: str, wire: str, route: str, habits: Sequence[str], on_result: Callable[[str, str], None]) -> None:
    """Play habits to an agent. `on_result` gets each with its problem, which is empty if it went right."""
    agent = AGENTS[name]
    session = Session(agent, habits, on_result)
    with Loopback(session.answer) as server, ROUTES[route](server.url) as address:
        while not session.is_done:
            with tempfile.TemporaryDirectory(prefix=f"penstock-{name}-", ignore_cleanup_errors=True) as folder:
                _run_once(session, AgentProcess(agent, wire, address, Path(folder)))


def _run_once(session: Session, process: AgentProcess) -> None:
    """One session, until the agent ends or hangs."""
    session.start(process.work)
    session.active_at = time.monotonic()
    try:
        has_ended = False
        while not has_ended and not INTERRUPTED.is_set() and time.monotonic() - session.active_at < IDLE_SECONDS:
            has_ended = process.wait(1)
    finally:
        process.stop()
    if INTERRUPTED.is_set():
        raise InterruptedError("the run was interrupted")
    end = "the agent ended" if has_ended else "the agent hung"
    session.stop(f"{end}: {process.output[-_OUTPUT:]}")

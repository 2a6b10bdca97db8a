"""A browser without any client: its `EventSource` follows a run, and comes back after its connection was cut."""

from __future__ import annotations

from pathlib import Path

from tests.clients.conftest import run_node


def test_a_browser_that_was_cut_off_twice_has_every_event_once(chromium: Path, server: str) -> None:
    page = run_node("event_source.mjs", server, str(chromium))
    assert page["events"] == page["expected"]
    assert page["events"][-1][1] == "done"
    assert page["opens"] >= 3
    assert page["isClosed"]  # by the server: a run that is over has nothing to come back for

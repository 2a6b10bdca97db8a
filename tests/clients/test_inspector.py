"""The inspector's page in headless Chromium."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import FOLDER, ROOT, run_node
from tests.clients.inspector_server import SECRET

BLOCKED_MILLISECONDS = 100
"""How much CPU time a task of the page may take."""


@pytest.fixture(scope="module")
def inspected(clients: Path) -> Iterator[str]:
    """The address of a server with exchanges."""
    chromium = FOLDER / "chromium"
    if not (chromium / "fonts.conf").exists():  # the last file that is written
        run_node("chromium.mjs", str(chromium))
    command = [sys.executable, "-m", "tests.clients.inspector_server"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()
            process.wait(20)


def look(address: str, scenario: str, *arguments: str) -> Any:
    seen = run_node("inspector.mjs", address, str(FOLDER / "chromium"), scenario, *arguments)
    assert (seen["problems"], seen["outside"]) == ([], [])
    return seen


def test_five_thousand_frames_open_and_scroll_without_blocking_the_page(inspected: str) -> None:
    seen = look(inspected, "long")
    assert "5,000 frames" in seen["facts"]
    assert seen["drawn"] < 100
    assert seen["last"]["top"] == 4_999 * 26
    assert seen["count"] > 100
    assert max(seen["tasks"]) <= BLOCKED_MILLISECONDS


def test_frames_stand_beside_events_with_what_is_odd_about_them(inspected: str) -> None:
    seen = look(inspected, "odd")
    assert [row["events"] for row in seen["rows"][2:4]] == ["“I will ”", "“look.”"]
    assert seen["rows"][-1]["events"].endswith("finish tool_calls (stop)")
    assert [row["isOdd"] for row in seen["rows"]] == [False, True, *[False] * 6, True]
    assert seen["lanes"] == ["connect", "first byte", "text", "weather"]
    assert [text.partition(" ")[0] for text in seen["findings"]] == ["#104unknown", "#19call", "#53the"]
    assert "a comment as data" in seen["detail"]
    assert "My key is ***" in seen["request"]
    assert SECRET not in str(seen)
    assert seen["isClosed"]
    assert ["stop" in row["frame"] for row in seen["filtered"]] == [True]


def test_the_first_exchange_of_the_list_is_open(inspected: str) -> None:
    first, *others = look(inspected, "newest")["current"]
    assert first
    assert others
    assert not any(others)


def test_an_exchange_is_copied_as_a_vector_and_exported_as_a_recording(inspected: str) -> None:
    seen = look(inspected, "copies")
    assert seen["vector"]["quirks"] == [19, 53, 104]
    assert seen["vector"]["expected"]["tool_calls"][0]["arguments"] == {"city": "Rome"}
    assert seen["name"] == "odd.jsonl"


def test_a_live_answer_appears_as_it_comes(inspected: str) -> None:
    seen = look(inspected, "live")
    assert (seen["begin"], len(seen["during"]["rows"]), seen["during"]["isLive"]) == (1, 2, True)
    assert seen["after"][-1]["events"] == "finish stop"


def test_the_page_fits_wide_and_narrow_windows(inspected: str) -> None:
    look(inspected, "pictures", *filter(None, [os.environ.get("INSPECTOR_PICTURES", "")]))
